"""What a search starts from besides its text: pictures that hits should resemble or not, folders, albums."""

from playwright.sync_api import expect
from support.browsing import status


def test_more_and_less_like_some_hits(open_page):
    page = open_page("?q=two+red+squares")
    status(page, "images? for")
    asked = []
    page.on("request", lambda request: "/search?" in request.url and asked.append(request.url))
    ids = [page.locator(".tile").nth(i).get_attribute("data-id") for i in range(3)]
    for place in range(2):
        page.locator(".tile .check").nth(place).click(force=True)
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


def test_a_picture_and_words_are_combined(open_page):
    page = open_page("?q=two+red+squares")
    page.locator(".hit").first.click()
    page.get_by_role("button", name="Similar pictures").click()
    status(page, "similar to the picture")
    asked = []
    page.on("request", lambda request: "/similar?" in request.url and asked.append(request.url))
    page.fill("#text", "at night")
    status(page, "for “at night”")
    expect(page.locator(".term.start")).to_contain_text("More like this")
    assert all("text=at+night" in url for url in asked)
    page.reload()
    expect(page.locator(".term.start")).to_have_count(1)
    assert page.locator("#text").input_value() == "at night"
