"""The viewer of the page and its accessibility: keyboard, markup in names, a phone, light and dark."""

import re

import pytest
from playwright.sync_api import expect

from diptych.serve.app import PAGE_FOLDER
from diptych.serve.uploads import MAX_BYTES
from support.browsing import MARKUP, captions, expect_first, expect_focus, focused, status


def test_the_keyboard_alone(open_page):
    page = open_page("?q=two+red+squares")
    status(page, "images? for")
    page.locator("#status").click()
    page.keyboard.press("/")
    expect_focus(page, "#text")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    first, second, third = captions(page)[:3]
    page.keyboard.press("Enter")
    dialog = page.locator("dialog")
    expect(dialog).to_contain_text("2 of 32")
    expect(dialog).to_contain_text(second)
    page.keyboard.press("ArrowRight")
    expect(dialog).to_contain_text(third)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")  # the first has none before it
    expect(dialog).to_contain_text("1 of 32")
    expect(dialog).to_contain_text(first)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator(".hit:focus")).to_contain_text(third)  # the one shown last
    page.keyboard.press("ArrowDown")  # the same column, one row down
    assert focused(page) > 3


def test_back_closes_the_large_image_first(open_page):
    page = open_page("?q=gone+away")
    status(page, "gone away")
    page.fill("#text", "two red squares")
    status(page, "two red squares")
    dialog = page.locator("dialog")
    for _ in range(2):
        page.locator(".hit").nth(1).click()
        expect(dialog).to_contain_text("2 of 32")
        page.go_back()
        expect(dialog).to_be_hidden()
        expect(page.locator("#panes .hit").nth(1)).to_be_focused()
        status(page, "two red squares")
    for _ in range(2):  # if closed by a key, it leaves nothing to go back to
        page.locator(".hit").nth(1).click()
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
    page.go_back()
    status(page, "gone away")
    expect_focus(page, "#results")
    page.locator(".hit").first.click()
    page.get_by_role("button", name="Similar pictures").click()
    status(page, "similar to the picture")
    page.go_back()
    status(page, "gone away")
    expect(dialog).to_be_hidden()


def test_more_like_this(open_page):
    page = open_page("?q=gone+away")
    page.locator(".hit").first.click()
    expect(page.locator("dialog")).to_contain_text("the file no longer exists")
    page.get_by_role("button", name="Similar pictures").click()
    status(page, "similar to the picture")
    expect(page).to_have_url(re.compile("like="))
    expect(page.locator("#text")).to_have_value("")
    expect(page.locator("dialog")).to_be_hidden()
    expect_focus(page, "#results")
    expect_first(page, "gone away", ".texts .caption")
    page.get_by_role("button", name="Menu").click()
    page.get_by_label("Compare with").select_option("others")  # which does not know the id, and the file is gone
    expect(page.locator(".pane").last.locator(".problem")).to_contain_text("the file no longer exists")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Remove: More like this").click()
    status(page, "newest first")


def test_the_importance_of_words_is_shown_and_described(open_page):
    page = open_page("?q=zebra+gone+away+stars")
    page.locator(".hit").first.click()
    words = page.locator(".words .word")
    expect(words).to_have_text(["zebra", "gone", "away", "stars"])
    expect(words).to_have_class([re.compile(rf"\b{kind}\b") for kind in ("unknown", "helps", "helps", "harms")])
    items = page.locator(".words li").all_text_contents()
    assert "is unknown" in items[0]
    assert "raises the score, +0." in items[1]
    assert "lowers the score, -0." in items[3]
    lines = [words.nth(i).evaluate("(word) => getComputedStyle(word).textDecorationStyle") for i in range(4)]
    assert lines == ["dotted", "solid", "solid", "wavy"]


def test_places_are_drawn_if_the_index_localises(open_page):
    page = open_page()
    served = page.request.get(f"{page.url}indexes").json()["indexes"]
    able = [{**index, "localizes": True} for index in served]
    page.route("**/indexes", lambda route: route.fulfill(json={"indexes": able}))
    places = [{"box": [0.25, 0.5, 0.75, 1.0], "score": 0.5}, {"box": [0, 0, 0.1, 0.1], "score": 0.1}]
    phrases = [{"phrase": MARKUP, "places": places}, {"phrase": "nothing", "places": []}]
    page.route("**/localize?*", lambda route: route.fulfill(json={"id": 1, "phrases": phrases}))
    page.goto(page.url + "?q=two+red+squares")
    page.locator(".hit").first.click()
    button = page.get_by_role("button", name="Show where")
    button.click()
    drawn = page.locator(".place")
    expect(drawn).to_have_count(2)
    expect(drawn.first).to_have_text(MARKUP)
    box, image = drawn.first.bounding_box(), page.locator(".frame img").bounding_box()
    assert box["x"] - image["x"] == pytest.approx(image["width"] / 4, abs=1)
    assert box["y"] - image["y"] == pytest.approx(image["height"] / 2, abs=1)
    assert (box["width"], box["height"]) == pytest.approx((image["width"] / 2, image["height"] / 2), abs=1)
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".phrases")).to_contain_text("25% to 75% from the left, 50% to 100% from the top")
    button.click()
    expect(drawn).to_have_count(0)


def test_markup_in_names_and_captions_is_text(open_page):
    page = open_page(f"?q=dangerous+{MARKUP.replace('=', '%3D')}")
    status(page, re.escape(MARKUP))
    expect_first(page, f"dangerous {MARKUP}")
    page.locator(".hit").first.click()
    expect(page.locator("#name")).to_have_text(f"{MARKUP}.png")
    expect(page.locator(".words")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("radio", name="Captions").check()
    status(page, "captions? for")
    expect(page.locator(".texts .hit .caption").first).to_have_text(f"dangerous {MARKUP}")
    upload = {"name": f"{MARKUP}.png", "mimeType": "image/png", "buffer": b"no image"}
    page.set_input_files("#picture", upload)
    expect(page.locator("#terms")).to_contain_text(MARKUP)
    assert page.evaluate("window.broken") is None
    assert page.locator("[onerror]").count() == 0


def test_a_phone(open_page):
    page = open_page("?q=two+red+squares&beside=others", width=360, height=640)
    status(page, "others")
    beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(beyond) <= 0
    page.locator("summary").click()
    assert page.evaluate(beyond) <= 0
    page.locator("summary").click()
    page.get_by_role("button", name="Menu").click()
    menu = page.locator("#menu").bounding_box()
    assert menu["x"] >= 0
    assert menu["x"] + menu["width"] <= 360
    page.get_by_label("Compare with").select_option("none")
    page.keyboard.press("Escape")
    status(page, r"^\d+ images? for “two red squares”")
    boxes = [page.locator(".tile").nth(i).bounding_box() for i in range(6)]
    assert 2 <= len({box["x"] for box in boxes}) <= 4
    assert all(box["width"] >= 44 for box in boxes)
    page.get_by_role("button", name="Folders and albums").click()
    library = page.locator("#library").bounding_box()
    assert (library["x"], library["height"]) == (0, 640)
    assert page.evaluate(beyond) <= 0
    page.get_by_role("button", name="All photos").click()
    expect(page.locator("#library")).to_be_hidden()
    page.go_back()
    status(page, "for “two red squares”")
    page.locator(".hit").first.click()
    expect(page.locator(".words")).to_be_visible()
    dialog = page.locator("dialog").bounding_box()
    assert (dialog["width"], dialog["height"]) == (360, 640)
    assert page.evaluate(beyond.replace("document.documentElement", "document.querySelector('dialog')")) == 0
    small = """[...document.querySelectorAll("button:not(.link), select, summary, .switch label, .button, input")]
      .filter((one) => !one.closest(".hidden, .switch"))
      .filter((one) => one.checkVisibility()).map((one) => [one.className, one.getBoundingClientRect()])
      .filter(([, box]) => box.width < 44 || box.height < 42).map(([name, box]) => [name, box.width, box.height])"""
    assert page.evaluate(small) == []


def test_a_touch_screen_is_not_offered_keys(open_page, address):
    keys = open_page()
    keys.get_by_role("button", name="Menu").click()
    expect(keys.locator(".shortcuts")).to_be_visible()
    context = keys.context.browser.new_context(has_touch=True, is_mobile=True, viewport={"width": 390, "height": 800})
    try:
        page = context.new_page()
        page.goto(address)
        page.get_by_role("button", name="Menu").click()
        expect(page.get_by_role("link", name="HTTP API")).to_be_visible()
        expect(page.locator(".shortcuts")).to_be_hidden()
    finally:
        context.close()


# The contrast of each visible piece of text with what lies behind it, where that is a plain colour.
CONTRAST = """() => {
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  };
  const light = ([r, g, b]) => [r, g, b]
    .map((value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, which) => sum + value * [0.2126, 0.7152, 0.0722][which], 0);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const { rgb, a } = parse(getComputedStyle(one).backgroundColor);
      if (a > 0.7) return rgb;
    }
    return [255, 255, 255];
  };
  const top = document.querySelector("dialog[open]") ?? document.body;
  const walker = document.createTreeWalker(top, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("script, noscript, option, #drop, .skip, .hidden")) continue;
    if (!element.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color).rgb), light(behind(element))].sort().reverse();
    found.push([walker.currentNode.data.trim(), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast_and_controls_have_names(open_page, scheme):
    page = open_page("?q=zebra+gone+away+stars", scheme=scheme)
    status(page, "images? for")
    page.locator("summary").click()
    seen = page.evaluate(CONTRAST)
    page.locator(".hit").first.click()
    expect(page.locator(".words")).to_be_visible()
    seen += page.evaluate(CONTRAST)
    assert len(seen) > 60
    assert [(text, contrast) for text, contrast in seen if contrast < 4.5] == []
    page.keyboard.press("Escape")
    tree = page.locator("body").aria_snapshot()
    assert re.findall(r"- (?:button|textbox|searchbox|combobox|radio|link|dialog)(?: \[.*\])?:?$", tree, re.M) == []
    assert {"search", "main", "banner", "contentinfo"} <= set(re.findall(r"- (\w+)", tree))
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(20, 20, 22)") == (scheme == "dark")


def test_the_files_contain_no_inline_code_and_no_foreign_address():
    files = {file.name: file.read_text(encoding="utf-8") for file in PAGE_FOLDER.iterdir()}
    assert {"index.html", "style.css", "main.js"} <= set(files)
    for name, text in files.items():
        plain = text.replace("http://www.w3.org/2000/svg", "")  # a namespace, which is never opened
        plain = plain.replace("https://www.openstreetmap.org/?mlat", "")  # a link, which only the user opens
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|//\w+\.\w", plain), name
        assert len(text.splitlines()) <= 300, name
    assert not re.search(r"\s(style|on\w+)=|<style|<script(?! type=\"module\" src=\"page/)", files["index.html"])


def test_closing_moves_the_focus_once_and_at_once(open_page):
    """The focus must not move again when the browser reports the closing, which may be after the next key."""
    page = open_page("?q=two+red+squares")
    status(page, "images? for")
    page.locator(".hit").first.click()
    page.keyboard.press("ArrowRight")
    focused = page.evaluate("""() => {
      const hits = [...document.querySelectorAll(".hit")];
      document.querySelector("dialog [data-control=close]").click();
      const afterClosing = hits.indexOf(document.activeElement);
      hits[5].focus();
      const reported = new Promise((resolve) => document.querySelector("dialog").addEventListener("close", resolve));
      return reported.then(() => [afterClosing, hits.indexOf(document.activeElement)]);
    }""")
    assert focused == [1, 5]


def test_the_page_and_the_service_have_the_same_limit_of_uploads():
    assert f"MAX_UPLOAD = {MAX_BYTES >> 20} * 1024 * 1024;" in (PAGE_FOLDER / "api.js").read_text(encoding="utf-8")
