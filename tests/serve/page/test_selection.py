"""Selecting many pictures, and what can be done with them."""

from playwright.sync_api import expect

from support.browsing import captions, check, status

NUMBER = "#selection p"


def test_circles_ranges_and_keys_select(open_many):
    page = open_many(width=900, height=600)
    status(page, "300 images")
    bar = page.locator("#selection")
    expect(bar).to_be_hidden()
    check(page, 1)
    expect(page.locator(NUMBER)).to_have_text("1 picture selected")
    check(page, 5, modifiers=["Shift"])
    expect(page.locator(NUMBER)).to_have_text("5 pictures selected")
    page.locator(".tile .hit").nth(2).click()  # while some are selected, a click selects
    expect(page.locator(NUMBER)).to_have_text("4 pictures selected")
    expect(page.locator("#viewer")).to_be_hidden()
    expect(page.locator(".check[aria-pressed=true]")).to_have_count(4)
    page.keyboard.press("Escape")
    expect(bar).to_be_hidden()
    page.locator("#text").press("ArrowDown")
    page.keyboard.press("x")
    expect(page.locator(NUMBER)).to_have_text("1 picture selected")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+X")
    expect(page.locator(NUMBER)).to_have_text("4 pictures selected")
    page.keyboard.press("Enter")  # still opens
    expect(page.locator("#viewer")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(NUMBER)).to_have_text("4 pictures selected")
    page.keyboard.press("Control+a")
    expect(page.locator(NUMBER)).to_have_text("300 pictures selected")
    page.get_by_role("button", name="End the selection").click()
    expect(bar).to_be_hidden()


def test_the_circle_of_a_picture_with_the_focus_can_be_clicked(open_many):
    page = open_many()
    status(page, "300 images")
    page.locator("#text").press("ArrowDown")
    expect(page.locator(".tile .hit").first).to_be_focused()
    check(page, 0)
    expect(page.locator(NUMBER)).to_have_text("1 picture selected")


def test_select_all_takes_what_fits(open_page):
    page = open_page()

    def change(route):
        response = route.fetch()
        answer = response.json()
        for place, hit in enumerate(answer["hits"]):
            hit.update(stands_out=place < 7, fit="likely" if place < 7 else "weak")
        route.fulfill(response=response, json=answer)

    page.route("**/search?*", change)
    page.goto(page.url + "?q=stars")
    status(page, "^7 images")
    page.locator("#text").press("ArrowDown")
    page.keyboard.press("Control+a")
    expect(page.locator(NUMBER)).to_have_text("7 pictures selected")
    page.locator("#text").press("Control+a")  # selects the text
    expect(page.locator(NUMBER)).to_have_text("7 pictures selected")


def test_a_long_press_selects_on_a_phone(open_many):
    page = open_many(width=390, height=700)
    status(page, "300 images")
    press = """(tile) => {
      const at = { bubbles: true, pointerType: "touch", clientX: 50, clientY: 300 };
      tile.dispatchEvent(new PointerEvent("pointerdown", at));
    }"""
    tile = page.locator(".tile .hit").nth(3)
    tile.evaluate(press)
    expect(page.locator(NUMBER)).to_have_text("1 picture selected")
    tile.evaluate("(tile) => tile.click()")  # ends the press
    expect(page.locator("#viewer")).to_be_hidden()
    expect(page.locator(NUMBER)).to_have_text("1 picture selected")
    bar = page.locator("#selection").bounding_box()
    assert bar["x"] >= 0
    assert bar["x"] + bar["width"] <= 390
    tile.evaluate(press)
    tile.evaluate("(tile) => tile.dispatchEvent(new PointerEvent('pointercancel', { bubbles: true }))")  # it scrolled
    page.locator(".tile .hit").nth(4).evaluate(press)
    expect(page.locator(NUMBER)).to_have_text("2 pictures selected")


def test_the_circles_say_which_picture_they_select(open_many):
    page = open_many()
    status(page, "300 images")
    first = page.locator(".tile").first
    expect(first.get_by_role("button", name=f"Select {captions(page)[0]}", exact=True)).to_have_count(1)
