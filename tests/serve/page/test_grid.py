"""Many pictures in the grid: scrolling, the keyboard, and what stays in the document."""

from playwright.sync_api import expect

from support.browsing import captions, scroll_until, status

TILES = "document.querySelectorAll('.tile').length"
FOCUSED = ".tile .hit:focus .caption"
NAME = "document.activeElement.querySelector?.('.caption')?.textContent"
SOME_BEFORE = """(name) => [...document.querySelectorAll(".tile")].some((tile) => {
  const { top, bottom } = tile.getBoundingClientRect();
  return bottom > 70 && top < innerHeight && tile.querySelector(".caption").textContent <= name;
})"""


def test_scrolling_loads_every_picture_and_keeps_few_in_the_document(open_many):
    page = open_many(width=900, height=500)
    status(page, "300 images")
    seen = set()

    def is_all_seen():
        seen.update(captions(page, ".tile .caption"))
        assert page.evaluate(TILES) < 120
        return len(seen) == 300

    scroll_until(page, is_all_seen)


def test_the_keyboard_moves_by_rows_and_columns(open_many):
    page = open_many(width=900, height=500)
    status(page, "300 images")
    page.locator("#text").press("ArrowDown")
    expect(page.locator(FOCUSED)).to_have_text("000.png")
    page.keyboard.press("ArrowRight")
    expect(page.locator(FOCUSED)).to_have_text("001.png")
    before = page.evaluate("document.activeElement.getBoundingClientRect().toJSON()")
    page.keyboard.press("ArrowDown")
    after = page.evaluate("document.activeElement.getBoundingClientRect().toJSON()")
    assert after["top"] > before["top"]
    assert after["left"] < before["right"]
    assert before["left"] < after["right"]  # one above the other
    page.keyboard.press("ArrowUp")
    for _ in range(60):
        page.keyboard.press("ArrowDown")
    box = page.evaluate("document.activeElement.getBoundingClientRect().toJSON()")
    assert box["top"] >= 60
    assert box["bottom"] <= 500
    page.wait_for_function("() => scrollY > 1000")
    page.keyboard.press("Home")
    expect(page.locator(FOCUSED)).to_have_text("000.png")
    expect(page.locator(".tile .hit[tabindex='0']")).to_have_count(1)  # Tab leads past the pictures, not through them
    page.keyboard.press("ArrowUp")  # stays
    expect(page.locator(FOCUSED)).to_have_text("000.png")


def test_pictures_stay_in_view_when_the_window_changes(open_many):
    page = open_many(width=900, height=500)
    status(page, "300 images")
    page.locator("#text").press("ArrowDown")
    for _ in range(15):
        page.keyboard.press("ArrowDown")
    page.wait_for_function("() => scrollY > 500")
    name = page.evaluate(NAME)
    page.set_viewport_size({"width": 500, "height": 700})
    page.wait_for_function("() => document.querySelector('.grid').clientWidth < 480")
    page.wait_for_function(SOME_BEFORE, arg=name)
    expect(page.locator(FOCUSED)).to_have_text(name)  # and keep the focus


def test_the_layout_is_known_before_the_pictures_are_loaded(open_many, tab):
    held = []
    tab.route("**/image/*", lambda route: held.append(route))  # noqa: PLW0108 (Playwright marks the handler)
    page = open_many()
    status(page, "300 images")
    before = [page.locator(".tile").nth(i).bounding_box() for i in range(8)]
    page.wait_for_function("() => document.querySelectorAll('.tile').length > 8")
    for route in held:
        route.continue_()
    tab.unroute("**/image/*")
    image = page.locator(".tile img").first
    image.evaluate("(image) => image.decode()")
    assert [page.locator(".tile").nth(i).bounding_box() for i in range(8)] == before
    box = image.bounding_box()
    width, height = image.evaluate("(image) => [image.naturalWidth, image.naturalHeight]")
    assert abs(box["width"] / box["height"] - width / height) < 0.03


def test_names_and_fits_show_on_hover_and_focus(open_page):
    page = open_page("?q=two+red+squares")
    status(page, "images? for")
    about = page.locator(".tile .about").first
    expect(about).to_have_css("opacity", "0")
    page.locator(".tile").first.hover()
    expect(about).to_have_css("opacity", "1")
    page.mouse.move(0, 0)
    expect(about).to_have_css("opacity", "0")
    page.locator("#text").press("ArrowDown")
    expect(about).to_have_css("opacity", "1")


NARROW_TILE = """async () => {
  const { makeTile, placeTile } = await import("./page/tile.js");
  const item = { id: 1, image: null, name: "a.mp4#12.0", key: "a.mp4#12.0", moment: 3725, near: [2, 3] };
  const tile = makeTile(item, "index", false);
  placeTile(tile, { left: 0, top: 0, width: 100, height: 180 });
  document.querySelector("main").append(tile);
  const box = (element) => element.getBoundingClientRect().toJSON();
  return [box(tile), ...[...tile.querySelectorAll(".badge")].map(box)];
}"""


def test_the_time_and_the_number_of_similar_pictures_fit_into_a_narrow_picture(open_page):
    tile, time, similar = open_page().evaluate(NARROW_TILE)
    assert min(time["left"], similar["left"]) >= tile["left"]
    assert max(time["right"], similar["right"]) <= tile["right"]
    assert similar["top"] >= time["bottom"]
