"""The history of the browser: places and open pictures can be returned to."""

import re

from playwright.sync_api import expect

from support.browsing import status

FIRST = """() => [...document.querySelectorAll(".tile")]
  .map((tile) => [tile.dataset.id, tile.getBoundingClientRect()])
  .find(([, box]) => (box.top + box.bottom) / 2 > 84)[0]"""

VISIBLE = """(id) => {
  const box = document.querySelector(`.tile[data-id="${id}"]`)?.getBoundingClientRect();
  return box && box.bottom > 84 && box.top < innerHeight / 2;
}"""


def scroll_far(page):
    """Scroll to a picture that is not on the first page, and wait until the URL names the place."""
    page.wait_for_function("() => (scrollBy(0, 300), scrollY > 2000)")  # in each frame
    page.wait_for_function(f"(id) => location.hash === `#at-${{({FIRST})()}}`")
    return page.evaluate(FIRST)


def test_back_and_reload_return_to_the_place(open_many):
    page = open_many(width=900, height=500)
    status(page, "300 images")
    first = scroll_far(page)
    page.reload()
    page.wait_for_function("() => scrollY > 1500")
    expect(page).to_have_url(re.compile(f"#at-{first}$"))
    page.wait_for_function(VISIBLE, arg=first)
    page.fill("#text", "picture 7")
    status(page, "for “picture 7”")
    page.wait_for_function("() => scrollY === 0")
    page.go_back()
    status(page, "newest first")
    page.wait_for_function("() => scrollY > 1500")
    page.wait_for_function(VISIBLE, arg=first)


def test_the_url_opens_the_picture(open_many):
    page = open_many(width=900, height=500)
    status(page, "300 images")
    scroll_far(page)
    tile = page.locator(".tile").nth(10)
    name = tile.locator(".caption").inner_text()
    tile.locator(".hit").click()
    dialog = page.locator("#viewer")
    expect(dialog).to_contain_text(name)
    expect(page).to_have_url(re.compile("#photo-"))
    page.reload()
    expect(dialog).to_contain_text(name)
    expect(dialog).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#name")).not_to_have_text(name)
    shown = page.locator("#name").inner_text()
    page.go_back()
    expect(dialog).to_be_hidden()
    page.go_forward()
    expect(dialog).to_be_visible()
    expect(page.locator("#name")).to_have_text(shown)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    status(page, "newest first")


def test_a_place_that_no_longer_exists_is_the_top(open_page):
    page = open_page("#at-99999")
    status(page, "newest first")
    page.wait_for_function("() => scrollY === 0")
    page.goto("about:blank")
    page = open_page("#photo-99999")
    status(page, "newest first")
    expect(page.locator("#viewer")).to_be_hidden()
