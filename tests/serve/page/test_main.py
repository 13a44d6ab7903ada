"""Searching on the page by text and by picture, in a real browser; and what the page shows if something fails."""

import base64
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from diptych.data.formats.scenes import make_scenes
from support.browsing import (
    MARKUP,
    captions,
    change_answers,
    expect_first,
    expect_focus,
    png,
    refuse,
    status,
    upload,
)


def test_it_searches_while_typing_and_back_returns(open_page):
    page = open_page()
    status(page, "^32 images and 62 captions, newest first.$")
    page.locator("#text").press_sequentially("gone away", delay=1)
    status(page, "^.*images? for “gone away”, of 32, in")
    expect(page.locator("#panes .hit .caption", has_text="gone away")).not_to_have_count(0)
    expect(page).to_have_url(re.compile(r"gone\+away"))
    expect(page).to_have_title("gone away · Diptych")
    page.get_by_label("Search by").select_option("exact words")
    status(page, "^1 image for “gone away”")
    page.get_by_label("Search by").select_option("meaning")
    page.go_back()
    status(page, "^1 image for “gone away”")
    page.go_back()
    status(page, "gone away”, of 32")
    page.go_back()
    status(page, "newest first")
    expect(page.locator("#text")).to_have_value("")


def test_the_service_is_told_how_to_search(open_page):
    page = open_page()
    page.fill("#text", "stars")
    status(page, "for “stars”")
    for name, mode in (("meaning", "meaning"), ("exact words", "words"), ("both", "both"), ("automatic", None)):
        with page.expect_request("**/search?*") as asked:
            page.get_by_label("Search by").select_option(name)
        assert parse_qs(urlsplit(asked.value.url).query).get("mode") == (mode and [mode])
        page.wait_for_url("**/?q=stars&mode=" + mode + "*" if mode else "**/?q=stars&index=scenes")


def test_a_late_answer_is_ignored(open_page):
    page = open_page()
    held = []
    page.route("**/search?*text=slow*", lambda route: held.append(route))  # noqa: PLW0108 (Playwright marks the handler)
    page.fill("#text", "slow")
    expect(page.locator(".pane")).to_have_attribute("aria-busy", "true")
    status(page, "Searching")
    page.fill("#text", "gone away")
    status(page, "gone away")
    shown = captions(page)
    assert len(held) == 1
    late = {"hits": [], "found": False, "message": "late", "searched": 1, "milliseconds": 1, "to": "image"}
    held[0].fulfill(json=late)
    page.evaluate("fetch('health').then((answer) => answer.text())")  # processed after the late answer
    assert captions(page) == shown
    status(page, "gone away")


DROP = """async ({ name, type, data, how }) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const brought = new DataTransfer();
  brought.items.add(new File([bytes], name, { type }));
  const event = how === "paste"
    ? new ClipboardEvent("paste", { clipboardData: brought, bubbles: true })
    : new DragEvent("drop", { dataTransfer: brought, bubbles: true, cancelable: true });
  document.body.dispatchEvent(event);
}"""


@pytest.mark.parametrize("how", ["choose", "drop", "paste"])
def test_a_picture_finds_captions_and_similar_images(open_page, how):
    page = open_page("?q=stars")
    status(page, "stars")
    scene = make_scenes(train=0, val=0, test=3, texts=2, seed=0)
    if how == "choose":
        page.set_input_files("#picture", upload(scene.pictures[2].load()))
    else:
        data = base64.b64encode(png(scene.pictures[2].load())).decode()
        brought = {"name": "holiday.png", "type": "image/png", "data": data, "how": how}
        page.evaluate(DROP, brought)
    status(page, "similar to the picture")
    assert page.locator("#terms img").evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 128
    assert set(captions(page, ".texts .caption")[:2]) == set(scene.texts[4:6])
    expect_first(page, scene.texts[4], ".tile .caption")
    expect(page.locator("#text")).to_have_value("")
    page.go_back()
    status(page, "stars")
    page.go_forward()
    status(page, "similar to the picture")


def test_a_picture_is_lost_when_the_page_is_reloaded(open_page):
    page = open_page("?q=stars")
    status(page, "stars")
    photos = make_scenes(train=0, val=0, test=2, texts=1, seed=0).pictures
    files = [upload(photos[i].load(), f"{i}.png") for i in range(2)]
    page.set_input_files("#picture", files[0])
    expect(page.locator("#terms")).to_contain_text("0.png")
    page.reload()
    gone = "This picture is no longer available, because the page was reloaded. Choose it again."
    expect(page.locator(".problem p")).to_have_text(gone)
    page.set_input_files("#picture", files[1])
    expect(page.locator("#terms")).to_contain_text("1.png")
    expect(page.locator(".problem")).to_have_count(0)
    page.go_back()
    expect(page.locator(".problem p")).to_have_text(gone)
    expect(page.locator("#terms")).to_be_hidden()
    page.go_forward()
    expect(page.locator("#terms")).to_contain_text("1.png")
    expect(page.locator(".problem")).to_have_count(0)


def test_pictures_that_cannot_be_used(open_page):
    page = open_page()
    status(page, "newest first")
    page.set_input_files("#picture", {"name": "a.png", "mimeType": "image/png", "buffer": b"no image"})
    problem = page.locator(".problem")
    expect(problem).to_contain_text(re.compile("^The file: not an image"))
    expect(page.locator("#terms img")).to_have_count(0)
    expect(page.locator(".term > span")).to_have_text("a.png")
    expect(problem).to_have_attribute("role", "alert")
    photo = make_scenes(train=0, val=0, test=1, texts=1, seed=0).pictures[0].load()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose another picture").click()
    chooser.value.set_files(upload(photo))
    status(page, "similar to the picture")
    expect(problem).to_have_count(0)
    posts = []
    page.on("request", lambda request: request.method == "POST" and posts.append(request.url))
    page.evaluate(
        """() => {
          const brought = new DataTransfer();
          brought.items.add(new File([new Uint8Array(20 * 1024 * 1024 + 1)], "huge.png"));
          document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: brought, bubbles: true }));
        }"""
    )
    expect(page.locator("#problem")).to_contain_text("huge.png is 20.0 MB; the limit is 20 MB")
    assert posts == []


def test_an_empty_index(open_page):
    page = open_page()
    change_answers(page, "**/indexes", lambda answer: answer["indexes"][0].update(images=0, texts=0))
    page.reload()
    expect(page.locator(".lead")).to_have_text("This index is empty.")
    page.unroute("**/indexes")
    page.get_by_role("button", name="Check again").click()
    status(page, "32 images")
    page.route("**/indexes", lambda route: route.fulfill(json={"indexes": []}))
    page.reload()
    expect(page.locator(".problem")).to_contain_text("The server has no index")


def test_errors_are_shown_and_can_be_retried(open_page):
    page = open_page()
    refuse(page, "**/search?*", 503, f"a.png: the index cannot be read now {MARKUP}")
    page.fill("#text", "stars")
    problem = page.locator(".problem p")
    expect(problem).to_have_text(f"a.png: the index cannot be read now {MARKUP}")
    page.unroute("**/search?*")
    page.route("**/search?*", lambda route: route.abort())
    page.get_by_role("button", name="Try again").click()
    expect(problem).to_contain_text("The server is not responding")
    page.unroute("**/search?*")
    page.route("**/search?*", lambda route: route.fulfill(status=502, body="<html>"))
    page.get_by_role("button", name="Try again").click()
    expect(problem).to_contain_text("status 502")
    page.unroute("**/search?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".hit").first).to_be_visible()
    expect(problem).to_have_count(0)
    refuse(page, "**/indexes", 500, "something went wrong here")
    page.reload()
    expect(problem).to_have_text("Something went wrong here")
    page.unroute("**/indexes")
    page.get_by_role("button", name="Try again").click()
    status(page, "stars")


@pytest.mark.parametrize("width", [1100, 1920])
def test_the_header_is_as_wide_as_the_pictures(open_many, width):
    page = open_many(width=width)
    status(page, "300 images")
    grid, text, menu = (page.locator(name).bounding_box() for name in (".grid", "#text", "#open-menu"))
    assert abs(text["x"] - grid["x"]) <= 1
    assert abs(menu["x"] + menu["width"] - grid["x"] - grid["width"]) <= 1
    rows = page.evaluate("[...document.querySelectorAll('.tile')].map((tile) => tile.getBoundingClientRect().right)")
    assert max(rows) == pytest.approx(grid["x"] + grid["width"], abs=1)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_two_indexes_side_by_side(open_page):
    page = open_page("?q=two+red+squares")
    status(page, "of 32")
    page.get_by_role("button", name="Menu").click()
    page.get_by_label("Compare with").select_option("others")
    status(page, r"scenes: .* of 32, in \d+ ms\. others: .* of 8, in")
    page.keyboard.press("Escape")
    expect(page.locator(".pane h2")).to_have_text(["scenes", "others"])
    left, right = (page.locator(".pane").nth(i).bounding_box() for i in range(2))
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"] + 1
    expect(page.locator(".pane").last.locator(".hit")).to_have_count(8)
    page.fill("#text", "green rings")
    page.wait_for_url("**/?q=green+rings&*beside=others")
    page.goto(page.url.replace("q=green+rings", "like=1&of=scenes"))  # sends its bytes to the other index
    status(page, "scenes: .* others: ")
    page.go_back()
    page.wait_for_url("**/?q=green+rings&*beside=others")
    status(page, "scenes: .* others: ")
    page.get_by_role("button", name="Menu").click()
    page.get_by_label("Index").select_option("others")  # an index is not compared with itself
    status(page, r"“green rings”.* of 8")
    expect(page.locator(".pane")).to_have_count(1)


def test_filters_and_direction(open_page):
    page = open_page()
    offered = {"columns": ["place", "month"], "splits": ["test"]}
    change_answers(page, "**/indexes", lambda answer: answer["indexes"][0].update(offered))
    page.route("**/search?*", lambda route: route.abort())
    page.goto(page.url + "?q=stars")
    page.locator("summary").click()
    page.fill("[name=folder]", "a/b")
    page.fill("[name=since]", "2026-01-31")
    page.select_option("[name=split]", "test")
    page.get_by_label("place").fill("a=b")
    page.keyboard.press("Tab")
    page.wait_for_url("**where=place%3Da%3Db")
    page.keyboard.type("May")
    page.keyboard.press("Enter")
    page.wait_for_url("**where=month%3DMay")
    expect_focus(page, "[data-column=month]")
    wanted = "k=60&to=text&folder=a%2Fb&since=2026-01-31&split=test&where=place%3Da%3Db&where=month%3DMay&text=stars"
    with page.expect_request(lambda request: request.url.endswith(wanted)):
        page.get_by_role("radio", name="Captions").check()
    expect(page.locator(".problem")).to_be_visible()
    page.reload()
    expect(page.locator("summary")).to_have_text("Filters · 5")
    gap = """() => {
      const word = document.createRange();
      word.selectNode(document.querySelector("summary").firstChild);
      return document.querySelector("#filtered").getBoundingClientRect().left - word.getBoundingClientRect().right;
    }"""
    assert 4 <= page.evaluate(gap) <= 10
    page.locator("summary").click()
    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_url("**/?q=stars&to=text&index=scenes")
    expect(page.get_by_label("place")).to_have_value("")


def test_what_is_below_the_pictures_is_not_covered_by_the_side(open_page):
    page = open_page("?folder=nowhere")
    expect(page.locator(".lead")).to_be_visible()
    for width in (1200, 700):
        page.set_viewport_size({"width": width, "height": 700})
        page.locator("footer").scroll_into_view_if_needed()
        seen = page.evaluate(
            """() => {
              const footer = document.querySelector("footer");
              const words = document.createRange();
              words.selectNodeContents(footer);
              const { left, top, height } = words.getBoundingClientRect();
              return document.elementFromPoint(left + 5, top + height / 2) === footer;
            }"""
        )
        assert seen, width
