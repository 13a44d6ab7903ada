"""What the tests of the page share: reading it, and answers of the service that are changed or refused."""

import io
import re
import time

from playwright.sync_api import expect

MARKUP = "<img src=x onerror=window.broken=1>"


def png(photo):
    """The bytes of a picture."""
    out = io.BytesIO()
    photo.save(out, "PNG")
    return out.getvalue()


def upload(photo, name="holiday.png"):
    """A picture as it is chosen for an upload."""
    return {"name": name, "mimeType": "image/png", "buffer": png(photo)}


def captions(page, selector="#panes .hit .caption"):
    """The names of the hits in the page, also of those that the browser has not laid out yet (`content-visibility`)."""
    return [text.strip() for text in page.locator(selector).all_text_contents()]


def expect_captions(page, names):
    """Wait until the hits in the page have these names."""
    expect(page.locator("#panes .hit .caption")).to_have_text(names)


def expect_first(page, name, selector="#panes .hit .caption"):
    """Wait until the first hit in the page has this name."""
    expect(page.locator(selector).first).to_have_text(name)


def expect_focus(page, selector):
    """Wait until the focus is on the element that a selector names."""
    expect(page.locator(selector)).to_be_focused()


def scroll_until(page, is_done, seconds=30):
    """Scroll down, frame by frame, until a condition holds; what comes next may take a while on a busy machine."""
    deadline = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < deadline
        page.evaluate("() => { scrollBy(0, 700); return new Promise(requestAnimationFrame); }")


def status(page, pattern):
    """Wait for the sentence about what is shown."""
    expect(page.locator("#status")).to_have_text(re.compile(pattern))


def check(page, place, **options):
    """Click on the circle that selects a picture, which nothing may cover."""
    page.locator(".tile .check").nth(place).click(**options)


def focused(page):
    """The place of the picture that has the focus, among those in the document."""
    return page.evaluate("[...document.querySelectorAll('#panes .hit')].indexOf(document.activeElement)")


def change_answers(page, path, change):
    """Let the service answer, and change its response."""

    def handle(route):
        response = route.fetch()
        answer = response.json()
        change(answer)
        route.fulfill(response=response, json=answer)

    page.route(path, handle)


def refuse(page, path, code, sentence):
    """Answer with an error."""
    page.route(path, lambda route: route.fulfill(status=code, json={"error": sentence}))
