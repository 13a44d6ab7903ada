"""The pictures by date, and examples of queries, in a real browser."""

import re

from playwright.sync_api import expect

from support.browsing import change_answers, expect_captions, expect_first, refuse, scroll_until, status

EXAMPLES = ["a dog on a beach", "two red squares"]


def test_pictures_are_listed_by_month_newest_first(open_many):
    page = open_many()
    status(page, "^300 images, newest first.$")
    expect(page.locator(".group h3").first).to_have_text("November 2026")
    expect_first(page, "000.png")
    expect(page.locator("#direction")).to_be_hidden()  # the index has no texts
    listed = page.request.get(f"{page.url}home?k=300").json()["images"]
    months = list(dict.fromkeys(image["day"][:7] for image in listed))
    assert len(months) > 3
    titles = page.locator(".group h3")
    scroll_until(page, lambda: titles.count() == len(months))


def test_examples_are_queries(open_page):
    page = open_page()
    page.route("**/examples?*", lambda route: route.fulfill(json={"index": "scenes", "examples": EXAMPLES}))
    page.reload()
    example = page.locator(".example")
    expect(example).to_have_text(EXAMPLES)
    page.locator("#text").press("ArrowDown")
    example.nth(1).click()
    status(page, "for “two red squares”")
    expect(page.locator("#text")).to_have_value("two red squares")
    page.go_back()
    expect(example).to_have_count(2)
    refuse(page, "**/examples?*", 503, "not now")
    page.reload()
    status(page, "newest first")
    expect(page.locator(".problem")).to_have_count(0)


def test_filters_apply_to_pictures_by_date(open_many):
    page = open_many("?since=2026-11-11")
    status(page, "^10 images, newest first.$")
    expect_captions(page, [f"00{number}.png" for number in range(10)])
    expect(page.locator("#filtered")).to_have_text(" · 1")
    expect(page.locator(".example")).to_have_count(0)
    page.locator("#filters summary").click()
    page.fill("[name=until]", "2026-11-12")
    status(page, "^2 images, newest first.$")
    page.fill("[name=since]", "2027-01-01")
    expect(page.locator(".hint")).to_contain_text("Remove a filter to see more.")
    page.get_by_role("button", name="Clear filters").click()
    status(page, "^300 images, newest first.$")


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
    status(page, "^No images.$")
    page.get_by_role("button", name="Remove: In nowhere").click()
    page.wait_for_url("**/?index=scenes")
    page.locator("#library").get_by_role("button", name="Favourites").click()
    expect(page.locator(".hint")).to_contain_text("Select pictures and choose “Favourite”, or open one.")


def test_numbers_folders_and_albums_follow_an_index_that_changes(open_many):
    page = open_many()
    status(page, "^300 images, newest first.$")
    expect(page.locator(".tree .count")).to_have_text(["75", "150"])
    change_answers(page, "**/indexes", lambda answer: answer["indexes"][0].update(images=305))
    change_answers(page, "**/folders?*", lambda answer: answer["folders"][0].update(images=80))
    page.fill("#text", "picture 7")
    status(page, "for “picture 7”")
    page.fill("#text", "")
    status(page, "^305 images, newest first.$")
    expect(page.locator(".tree .count")).to_have_text(["80", "150"])
    change_answers(page, "**/albums?*", lambda answer: answer["albums"].append({"id": 9, "name": "New", "images": 2}))
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # as when the tab is shown again
    expect(page.locator("#library").get_by_role("button", name="New 2")).to_be_visible()
