"""The pictures by date, and examples of queries, in a real browser."""

import re

from playwright.sync_api import expect

from support.browsing import captions, change_answers, refuse, status

EXAMPLES = ["a dog on a beach", "two red squares"]


def test_pictures_are_listed_by_month_newest_first(open_many):
    page = open_many()
    status(page, "^300 images, newest first.$")
    assert page.locator(".group h3").first.inner_text() == "November 2026"
    assert captions(page)[:3] == ["000.png", "001.png", "002.png"]
    expect(page.locator("#direction")).to_be_hidden()  # the index has no texts
    listed = page.request.get(f"{page.url}home?k=300").json()["images"]
    months = list(dict.fromkeys(image["day"][:7] for image in listed))
    assert len(months) > 3
    titles = []
    for _ in range(40):
        titles = [title for title in page.locator(".group h3").all_inner_texts() if title]
        if len(titles) == len(months):
            break
        page.mouse.wheel(0, 3000)
        page.evaluate("() => new Promise(requestAnimationFrame)")
    assert len(titles) == len(months)


def test_examples_are_queries(open_page):
    page = open_page()
    page.route("**/examples?*", lambda route: route.fulfill(json={"index": "scenes", "examples": EXAMPLES}))
    page.reload()
    example = page.locator(".example")
    expect(example).to_have_text(EXAMPLES)
    page.locator("#text").press("ArrowDown")
    example.nth(1).click()
    status(page, "for “two red squares”")
    assert page.locator("#text").input_value() == "two red squares"
    page.go_back()
    expect(example).to_have_count(2)
    refuse(page, "**/examples?*", 503, "not now")
    page.reload()
    status(page, "newest first")
    expect(page.locator(".problem")).to_have_count(0)


def test_an_index_that_cannot_be_listed_can_be_searched(open_page):
    page = open_page()
    refuse(page, "**/home?*", 409, "the backend of this index cannot list images by day; search it instead")
    page.reload()
    expect(page.locator(".lead")).to_have_text("32 images and 62 captions to search.")
    page.fill("#text", "stars")
    status(page, "for “stars”")


def test_problems_while_listing_can_be_retried(open_many):
    page = open_many()
    refuse(page, re.compile(r"/home\?.*cursor="), 503, "the index cannot be read now")
    page.reload()
    status(page, "300 images")
    page.mouse.wheel(0, 20000)
    problem = page.locator(".foot .problem")
    expect(problem).to_contain_text("The index cannot be read now")
    shown = page.evaluate("document.documentElement.scrollHeight")
    page.unroute(re.compile(r"/home\?.*cursor="))
    page.get_by_role("button", name="Try again").click()
    expect(problem).to_have_count(0)
    page.wait_for_function("(height) => document.documentElement.scrollHeight > height", arg=shown)


def test_a_place_without_pictures(open_page):
    page = open_page()
    change_answers(page, "**/home?*", lambda answer: answer.update(images=[], next=None))
    page.goto(page.url + "?folder=nowhere")
    expect(page.locator(".lead")).to_have_text("There is no picture here.")
    page.get_by_role("button", name="Remove: In nowhere").click()
    page.wait_for_url("**/?index=scenes")
