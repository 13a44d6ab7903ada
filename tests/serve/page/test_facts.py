"""What the large view knows about a picture, and what it does with the file."""

import json
import re

import pytest
from playwright.sync_api import expect

from support.browsing import change_answers, refuse, status


@pytest.fixture
def page(open_many):
    """The page over an index of pictures without a date of capture."""
    page = open_many()
    status(page, "300 images")
    return page


def facts(page):
    """The facts in the large view by their names."""
    pairs = page.locator("#viewer .known dl > div").all()
    return {pair.locator("dt").inner_text(): pair.locator("dd").inner_text() for pair in pairs}


def test_a_picture_without_a_date_has_that_of_its_file(page):
    page.locator(".tile .hit").nth(2).click()
    expect(page.locator("#viewer")).to_contain_text("File date")
    known = facts(page)
    assert known["File date"] == "November 18, 2026"
    assert known["Folder"] == "2026/beach"
    assert known["Size"].startswith("20 × 20, ")
    assert not {"Score", "Match", "Camera", "Place", "Moment"} & known.keys()
    page.locator("#viewer").get_by_role("button", name="2026/beach").click()
    page.wait_for_url("**folder=2026%2Fbeach*")
    expect(page.locator("#viewer")).to_be_hidden()


def test_camera_place_and_words_are_shown_if_known(page):
    told = {
        "day": "2026-02-03",
        "day_source": "taken",
        "camera": "Fujifilm X-T30",
        "latitude": -60.3868,
        "longitude": 5.325,
        "words": "PIZZERIA <b>",
    }
    change_answers(page, "**/entry/*", lambda answer: answer.update(told))
    page.locator(".tile .hit").first.click()
    expect(page.locator("#viewer")).to_contain_text("PIZZERIA <b>")
    known = facts(page)
    assert known["Date"] == "February 3, 2026"
    assert known["Camera"] == "Fujifilm X-T30"
    assert known["Place"].startswith("60.3868° S, 5.3250° E")
    link = page.get_by_role("link", name="Map on openstreetmap.org")
    href = link.get_attribute("href")
    assert href == "https://www.openstreetmap.org/?mlat=-60.38680&mlon=5.32500#map=14/-60.38680/5.32500"
    assert link.get_attribute("rel") == "noopener noreferrer"


def test_how_well_a_hit_fits_is_a_word_and_a_number(page):
    def change(answer):
        for hit in answer["hits"]:
            hit.update(fit="likely", stands_out=True, probability=0.874)

    change_answers(page, "**/search?*", change)
    page.fill("#text", "picture 7")
    status(page, "for “picture 7”")
    page.locator(".tile .hit").first.click()
    expect(page.locator("#viewer .known")).to_contain_text("Likely match (87%)")
    assert "Score" in facts(page)


def test_the_original_is_opened_downloaded_shown_and_copied(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".tile .hit").first.click()
    viewer = page.locator("#viewer")
    assert viewer.get_by_role("link", name="Open original").get_attribute("target") == "_blank"
    with page.expect_download() as download:
        viewer.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "000.png"
    sent = []

    def reveal(route):
        sent.append(json.loads(route.request.post_data))
        route.fulfill(status=204)

    page.route("**/reveal?*", reveal)
    with page.expect_response("**/reveal?*"):
        viewer.get_by_role("button", name="Show in folder").click()
    viewer.get_by_role("button", name="Copy path").click()
    expect(page.locator("#notices")).to_have_text("The path has been copied.")
    assert page.evaluate("navigator.clipboard.readText()").endswith("/000.png")
    assert [list(body) for body in sent] == [["id"]]


def test_another_computer_is_not_offered_paths(page):
    change_answers(page, "**/entry/*", lambda answer: answer.update(path=None))
    page.locator(".tile .hit").first.click()
    expect(page.locator("#viewer")).to_contain_text("File date")
    expect(page.get_by_role("button", name="Copy path")).to_have_count(0)
    expect(page.get_by_role("button", name="Show in folder")).to_have_count(0)


def test_a_file_that_is_gone_is_neither_opened_nor_downloaded(open_page):
    page = open_page("?q=gone+away")
    page.locator(".tile .hit").first.click()
    viewer = page.locator("#viewer")
    expect(viewer).to_contain_text("the file no longer exists")
    expect(viewer.get_by_role("link", name="Download")).to_have_count(0)
    expect(viewer.get_by_role("link", name="Open original")).to_have_count(0)
    expect(viewer.get_by_role("button", name="Show in folder")).to_have_count(0)
    expect(viewer.get_by_role("button", name="Similar pictures")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(viewer.get_by_role("link", name="Download")).to_be_visible()
    expect(viewer.get_by_role("button", name="Show in folder")).to_be_visible()


def test_a_picture_is_enlarged_by_a_click_or_a_key(page):
    page.locator(".tile .hit").first.click()
    image = page.locator(".frame img")
    page.wait_for_function("() => document.querySelector('.frame img').naturalWidth")
    small = image.bounding_box()["width"]
    image.click()
    expect(page.locator(".zoomed")).to_have_count(1)
    assert image.bounding_box()["width"] > 1.3 * small
    page.keyboard.press("z")
    expect(page.locator(".zoomed")).to_have_count(0)
    assert image.bounding_box()["width"] == pytest.approx(small, abs=1)
    page.get_by_role("button", name="Zoom").click()
    page.keyboard.press("ArrowRight")  # the next picture is shown as a whole
    expect(page.locator(".zoomed")).to_have_count(0)


def test_an_enlarged_picture_that_is_smaller_than_its_room_is_in_the_middle(page):
    page.locator(".tile .hit").nth(3).click()  # four times as wide as high
    page.keyboard.press("z")
    expect(page.locator(".zoomed")).to_have_count(1)
    room, frame = page.locator(".stage").bounding_box(), page.locator(".frame").bounding_box()
    assert frame["width"] > room["width"]
    assert frame["height"] < room["height"] - 100
    middle = room["y"] + room["height"] / 2
    assert frame["y"] + frame["height"] / 2 == pytest.approx(middle, abs=20)  # below it may be a scrollbar


def test_a_date_is_shown_once_it_is_known_what_it_is_the_date_of(page):
    refuse(page, "**/entry/*", 503, "the index cannot be read now")
    page.locator(".tile .hit").first.click()
    expect(page.locator("#viewer .known")).to_contain_text("The index cannot be read now")
    assert facts(page).keys() == {"Size"}


def test_the_position_has_a_total_once_all_are_listed(page):
    page.locator(".tile .hit").nth(1).click()
    expect(page.locator("#viewer .steps span.quiet")).to_have_text("2")
    expect(page.locator("#viewer [role=status]").last).to_have_text(re.compile("^2: "))
    page.goto(page.url.partition("?")[0].partition("#")[0] + "?q=001.png&mode=words")
    status(page, "^1 image for")
    page.locator(".tile .hit").first.click()
    expect(page.locator("#viewer [role=status]").last).to_have_text("1 of 1: 001.png")


def test_a_video_cannot_be_enlarged(page):
    change_answers(page, "**/home?*", lambda answer: answer["images"][0].update(key="a.mp4#72.5", moment=72.5))
    page.route("**/original/*", lambda route: None)  # still loading
    page.reload()
    page.locator(".tile .hit").first.click()
    expect(page.locator(".frame video")).to_have_count(1)
    expect(page.get_by_role("button", name="Zoom")).to_be_disabled()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("button", name="Zoom")).to_be_enabled()


def test_a_caption_is_no_moment_of_a_video(open_page):
    page = open_page("?q=two+red+squares&to=text")
    status(page, "captions? for")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.locator(".texts .hit").first.click()
    expect(page.locator("#viewer dt").first).to_be_visible()
    expect(page.locator("#name")).to_have_text(re.compile(r"^[^#]+\.png$"))
    page.wait_for_function("() => document.querySelector('#viewer .frame img')?.complete")
    assert not [url for url in asked if "/original/" in url]


def test_a_moment_of_a_video_is_played_from_there_or_shown(page):
    def change(answer):
        answer["images"][0].update(key="2026/holiday.mp4#72.5", moment=72.5)

    change_answers(page, "**/home?*", change)
    change_answers(page, "**/entry/*", lambda answer: answer.update(moment=72.5))
    page.reload()
    tile = page.locator(".tile").first
    expect(tile.locator(".badge")).to_have_text("▶ 1:12")
    assert tile.locator(".caption").text_content() == "holiday.mp4 at 1:12"
    asked = []
    page.on("request", lambda request: "/original/" in request.url and asked.append(request.url))
    tile.locator(".hit").click()
    expect(page.locator("#viewer dl")).to_contain_text("1:12")
    expect(page.locator(".frame img")).to_be_visible()  # the file is none that the browser can play
    assert asked
    assert asked[0].endswith("inline=1")
