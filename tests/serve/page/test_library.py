"""The side of the page: folders that open when needed, and thousands of albums."""

from playwright.sync_api import expect

from support.browsing import status


def test_folders_are_a_tree_that_loads_its_branches(open_many):
    page = open_many()
    asked = []
    page.on("request", lambda request: "/folders?" in request.url and asked.append(request.url))
    status(page, "300 images")
    tree = page.locator(".tree")
    expect(tree.locator("li")).to_have_count(2)
    expect(tree.locator(".row").first).to_have_text("202575")
    expect(tree.locator(".row").last).to_have_text("2026150")
    toggle = page.get_by_role("button", name="Folders in 2026")
    toggle.click()
    expect(toggle).to_have_attribute("aria-expanded", "true")
    expect(tree.locator("ul ul .name.row")).to_have_text(["beach75", "snow75"])
    assert [url.rpartition("=")[2] for url in asked] == ["", "2026"]
    page.get_by_role("button", name="beach 75").click()
    page.wait_for_url("**folder=2026%2Fbeach*")
    expect(page.locator(".term")).to_contain_text("In beach")
    names = page.locator("#panes .hit .caption")
    expect(names.nth(0)).to_have_text("002.png")
    expect(names.nth(1)).to_have_text("006.png")
    expect(tree.locator("[aria-current]")).to_have_text("beach75")
    page.reload()  # opens the branch of the current folder
    expect(tree.locator("[aria-current]")).to_have_text("beach75")
    page.fill("#text", "picture 7")
    status(page, "for “picture 7”, of 75, in")  # a folder restricts searches, too
    page.get_by_role("button", name="Remove: In beach").click()
    status(page, "for “picture 7”, of 300, in")
    page.get_by_role("button", name="All photos").click()
    status(page, "300 images")


def test_thousands_of_albums_stay_quick(open_many):
    page = open_many()
    albums = [{"id": 0, "name": "Favourites", "images": 3, "missing": 0, "cover": None}]
    albums += [{"id": i, "name": f"Album {i:05}", "images": i, "missing": 0, "cover": None} for i in range(1, 10_001)]
    page.route("**/albums?*", lambda route: route.fulfill(json={"index": "many", "albums": albums}))
    page.reload()
    library = page.locator("#library")
    rows = library.locator(".windowed .line")
    expect(rows.first).to_contain_text("Album 00001")
    assert rows.count() < 40
    library.locator(".windowed").evaluate("(list) => list.scrollTo(0, 44 * 5000)")
    expect(library).to_contain_text("Album 05003")
    assert rows.count() < 40
    library.get_by_label("Filter albums").fill("0999")
    expect(rows).to_have_count(11)
    expect(library.locator(".album-list [role=status]")).to_have_text("11 of 10,000 albums")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**album=999*")
