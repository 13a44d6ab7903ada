"""Results on the page: as many as there are, what fits less, suggestions, and nothing found."""

import re

from PIL import Image
from playwright.sync_api import expect

from support.browsing import captions, change_answers, expect_first, refuse, scroll_until, status, upload


def test_results_go_on_beyond_the_first_page(open_many):
    page = open_many("?q=picture", width=900, height=500)
    status(page, "of 300, in")
    hits = page.request.get(f"{page.url.partition('?')[0]}search?text=picture&k=500").json()["hits"]
    found = {hit["key"].rpartition("/")[2] for hit in hits}  # without near-duplicates
    assert len(found) > 120
    seen = set()

    def is_all_seen():
        seen.update(captions(page))
        return len(seen) >= len(found)

    scroll_until(page, is_all_seen)
    assert seen == found


def test_another_query_begins_at_its_best_hit(open_many):
    page = open_many("?q=picture+7")
    status(page, "for “picture 7”")
    page.mouse.wheel(0, 4000)
    page.wait_for_function("() => scrollY > 1000")
    page.fill("#text", "picture 8")
    status(page, "for “picture 8”")
    page.wait_for_function("() => scrollY === 0")
    expect_first(page, "008.png")


def test_captions_go_on_beyond_the_first_page(open_page):
    page = open_page("?q=two+squares&to=text", height=400)
    asked = []
    page.on("request", lambda request: "cursor=" in request.url and asked.append(request.url))
    status(page, "of 62, in")
    page.mouse.wheel(0, 20_000)
    expect(page.locator(".texts .hit")).to_have_count(62)
    assert len(asked) == 1


def test_what_fits_less_is_below_a_heading(open_page):
    page = open_page()

    def change(answer):
        answer.update(found=True, message="The model does not know “x”.")
        for place, hit in enumerate(answer["hits"]):
            hit.update(stands_out=place < 2, fit=["strong", "possible"][place] if place < 2 else "weak")
            hit["near"] = [hit["id"]] * 3 if place == 1 else []

    change_answers(page, "**/search?*text=stars*", change)
    page.fill("#text", "stars")
    status(page, "^2 images for “stars”, of 32, in")
    expect(page.locator(".note")).to_have_text("The model does not know “x”.")
    groups = page.locator(".group")
    expect(groups.first.locator(".hit")).to_have_count(2)
    expect(groups.first.locator("h3")).to_have_count(0)
    expect(groups.last.locator("h3")).to_have_text("Less likely")
    expect(groups.first.locator(".fit")).to_have_text(["Strong match", "Possible match"])
    name = groups.first.locator(".hit").nth(1).evaluate("(hit) => hit.textContent")
    assert "Possible match" in name  # for screen readers, too
    expect(page.locator(".near")).to_have_text(["+3 similar"])
    page.get_by_role("radio", name="Captions").check()
    status(page, "^2 captions for")
    expect(page.locator(".texts h3")).to_have_text("Less likely")
    page.get_by_role("radio", name="Images").check()
    page.locator(".hit").nth(1).click()
    expect(page.locator(".near-duplicates button")).to_have_count(4)


def test_a_suggestion_is_applied_with_one_click(open_page):
    page = open_page()
    change_answers(page, "**/search?*text=sqares*", lambda answer: answer.update(suggestion="two red squares"))
    page.fill("#text", "sqares")
    expect(page.locator(".note").first).to_have_text("Did you mean two red squares?")
    page.get_by_role("button", name="two red squares").click()
    status(page, "for “two red squares”")
    expect(page.locator("#text")).to_have_value("two red squares")
    page.go_back()
    status(page, "for “sqares”")


def test_nothing_found_says_what_to_try(open_page):
    page = open_page()

    def change(answer):
        answer.update(found=False, message="Nothing fits “stars” well.")
        for hit in answer["hits"]:
            hit.update(stands_out=False, fit="weak")

    change_answers(page, "**/search?*text=stars*", change)
    page.goto(page.url + "?q=stars&since=2020-01-01")
    note = page.locator(".nothing")
    expect(note).to_contain_text("Nothing fits “stars” well.")
    expect(note).to_contain_text("Describe what can be seen")
    expect(note).to_contain_text("Remove a filter")
    status(page, "^Nothing fits well for “stars”")
    expect(page.locator(".group h3").last).to_have_text("Less likely")
    expect(page.locator(".problem")).to_have_count(0)
    page.goto(page.url.partition("?")[0] + "?q=nowhere&mode=words")
    expect(note).to_contain_text("Search by meaning to find what can be seen in the pictures.")
    expect(note).not_to_contain_text("Describe what can be seen")
    note.get_by_role("button", name="Search by meaning").click()
    status(page, "for “nowhere”, of 32")
    expect(page.get_by_label("Search by")).to_have_value("meaning")


def test_quotes_that_find_nothing_can_be_removed(open_page):
    page = open_page("?q=%22red+nowhere%22")
    status(page, "^No results for “red nowhere”.$")
    note = page.locator(".nothing")
    expect(note.locator("li")).to_have_text(["Remove the quotes to find what can be seen in the pictures."])
    note.get_by_role("button", name="Remove the quotes").click()
    expect(page.locator("#text")).to_have_value("red nowhere")
    status(page, "for “red nowhere”, of 32")


def test_words_that_no_picture_shows_are_searched_in_names_and_folders(open_many):
    page = open_many()
    by_meaning = re.compile(r"/search\?(?!.*mode=words)")
    change_answers(page, by_meaning, lambda answer: answer.update(found=False, words_exist=True))
    page.fill("#text", "beach")
    note = page.locator(".nothing")
    expect(note).to_contain_text("Search for exact words, which some pictures have in their name, folder or captions.")
    note.get_by_role("button", name="Search for exact words").click()
    status(page, "images? for “beach”, of 300")
    expect(page).to_have_url(re.compile("mode=words"))
    expect(page.locator(".grid .hit").first).to_be_visible()
    expect(page.get_by_label("Search by")).to_have_value("words")


def test_a_mistyped_query_is_not_lectured(open_page):
    page = open_page()
    change_answers(page, "**/search?*", lambda answer: answer.update(found=False, suggestion="stars"))
    page.fill("#text", "satrs")
    expect(page.locator(".note").first).to_have_text("Did you mean stars?")
    expect(page.locator(".nothing")).to_be_visible()
    expect(page.locator(".nothing li")).to_have_count(0)


def test_a_page_that_fails_can_be_retried(open_many):
    page = open_many("?q=picture", width=900, height=500)
    refuse(page, re.compile(r"/search\?.*cursor="), 503, "the index cannot be read now")
    page.reload()
    status(page, "of 300, in")
    page.mouse.wheel(0, 20_000)
    expect(page.locator(".foot .problem")).to_contain_text("The index cannot be read now")
    page.unroute(re.compile(r"/search\?.*cursor="))
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".foot .problem")).to_have_count(0)


def test_what_the_service_refuses_is_not_asked_again(open_page):
    page = open_page()
    refuse(page, "**/search?*", 422, "the query '-dog' only excludes")
    page.fill("#text", "-dog")
    expect(page.locator(".problem")).to_have_text("The query '-dog' only excludes")
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)


def test_the_sentence_about_an_answer_stays_short_and_names_the_picture(open_page):
    page = open_page()
    page.fill("#text", "stars " * 100)
    status(page, r"for “(stars ){13}st …”, of 32")
    page.set_input_files("#picture", upload(Image.new("RGB", (30, 30))))
    status(page, "images? similar to the picture, of 32")
    page.fill("#text", "at night")
    status(page, "for “at night” and similar to the picture, of 32")
