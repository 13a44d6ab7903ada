"""What a search starts from besides its text: pictures that hits should resemble or not, folders, albums."""

import re
from urllib.parse import parse_qsl, urlencode

from playwright.sync_api import expect

from support.browsing import check, status


def answer_without(page, route_name, *names):
    """Answer requests as if they did not have some parameters, and record the requests as they were."""
    asked = []

    def handle(route):
        asked.append(route.request.url)
        base, _, parameters = route.request.url.partition("?")
        kept = [(name, value) for name, value in parse_qsl(parameters) if name not in names]
        if route_name == "search" and "text" not in dict(kept):
            kept.append(("text", "squares"))
        route.fulfill(response=route.fetch(url=f"{base}?{urlencode(kept)}"))

    page.route(re.compile(rf"/{route_name}\?"), handle)
    return asked


def test_more_and_less_like_some_hits(open_page):
    page = open_page("?q=two+red+squares")
    status(page, "images? for")
    asked = []
    page.on("request", lambda request: "/search?" in request.url and asked.append(request.url))
    ids = [page.locator(".tile").nth(i).get_attribute("data-id") for i in range(3)]
    for place in range(2):
        check(page, place)
    page.get_by_role("button", name="More like these").click()
    page.wait_for_url(f"**more={ids[0]}+{ids[1]}*")
    expect(page.locator(".term")).to_have_count(2)
    status(page, "images? for “two red squares”")
    assert [f"more={ids[i]}" in asked[-1] for i in range(2)] == [True, True]
    expect(page.locator("#selection")).to_be_hidden()
    page.locator(f".tile[data-id='{ids[2]}'] .hit").click()
    page.get_by_role("button", name="Less like this").click()
    expect(page.locator(".term.less")).to_have_count(1)
    expect(page.locator(".term.less")).to_contain_text("Less like")
    status(page, "images? for “two red squares”")
    page.get_by_role("button", name="Remove: Less like").click()
    expect(page.locator(".term")).to_have_count(2)
    page.fill("#text", "")
    status(page, "images? like these")
    page.reload()
    expect(page.locator(".term")).to_have_count(2)
    page.get_by_role("link", name="Diptych").click()
    status(page, "newest first")
    check(page, 0)
    page.get_by_role("button", name="Less like these").click()
    expect(page.locator("#notices")).to_contain_text("Search for something first")
    status(page, "newest first")


def test_a_picture_and_words_are_combined(open_page):
    page = open_page("?q=two+red+squares")
    page.locator(".hit").first.click()
    page.get_by_role("button", name="Similar pictures").click()
    status(page, "similar to the picture")
    asked = answer_without(page, "similar", "text")
    page.fill("#text", "at night")
    status(page, "for “at night”")
    expect(page.locator(".term.start")).to_contain_text("More like this")
    assert all("text=at+night" in url for url in asked)
    page.reload()
    expect(page.locator(".term.start")).to_have_count(1)
    expect(page.locator("#text")).to_have_value("at night")
