"""Favourites, albums and exports, from the selection and from the large view; the index keeps them."""

import zipfile

import pytest
from playwright.sync_api import expect

from support.browsing import check, expect_captions, status

# Submits another id than that of the picture, as if it had left the index.
GONE = """() => {
  const { submit } = HTMLFormElement.prototype;
  HTMLFormElement.prototype.submit = function () {
    this.elements.body.value = '{"ids": [987654]}';
    submit.call(this);
  };
}"""


@pytest.fixture
def page(open_many):
    """The page over an index without albums and favourites; whatever a test adds is removed."""
    page = open_many()
    status(page, "300 images")
    yield page
    page.unroute_all(behavior="ignoreErrors")
    listed = page.request.get(f"{page.url.partition('?')[0].partition('#')[0]}albums").json()["albums"]
    root = page.url.partition("?")[0].partition("#")[0]
    for album in listed:
        if album["id"]:
            assert page.request.delete(f"{root}albums/{album['id']}").ok
    ids = [image["id"] for image in page.request.get(f"{root}home?album=0&k=500").json()["images"]]
    if ids:
        assert page.request.post(f"{root}favourites", data={"ids": ids, "favourite": False}).ok


def test_favourites_are_kept_and_can_be_undone(page):
    for place in (0, 2, 3):
        check(page, place)
    page.locator("#selection").get_by_role("button", name="Favourite").click()
    notice = page.locator("#notices")
    expect(notice).to_contain_text("Added 3 pictures to Favourites.")
    page.keyboard.press("Escape")
    library = page.locator("#library")
    library.get_by_role("button", name="Favourites").click()
    status(page, "^3 images, newest first")
    expect_captions(page, ["000.png", "002.png", "003.png"])
    expect(library.locator("[aria-current]")).to_have_text("Favourites")
    page.locator("#text").press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("f")  # what is a favourite already is removed
    expect(notice).to_contain_text("Removed 1 picture from Favourites.")
    status(page, "^2 images, newest first")
    notice.get_by_role("button", name="Undo").click()
    expect(notice).to_contain_text("Added 1 picture to Favourites.")
    page.locator(".tile .hit").first.click()
    favourite = page.locator("#viewer [data-control=favourite]")
    expect(favourite).to_have_attribute("aria-pressed", "true")
    favourite.click()
    expect(favourite).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("f")
    expect(favourite).to_have_attribute("aria-pressed", "true")


def test_a_notice_is_seen_and_used_in_the_large_view(page):
    page.locator(".tile .hit").nth(1).click()
    viewer, notice = page.locator("#viewer"), page.locator(".notice")
    viewer.locator("[data-control=favourite]").click()
    expect(notice).to_contain_text("Added 1 picture to Favourites.")
    page.keyboard.press("ArrowRight")
    expect(viewer).to_contain_text("002.png")
    notice.get_by_role("button", name="Undo").click()  # which waits until nothing covers it
    expect(notice).to_contain_text("Removed 1 picture from Favourites.")
    viewer.get_by_role("button", name="Add to album").click()
    page.keyboard.type("Norway")
    page.keyboard.press("Enter")
    expect(notice).to_contain_text("Added 1 picture to Norway.")
    page.keyboard.press("Escape")
    expect(viewer).to_be_hidden()
    notice.get_by_role("button", name="Undo").click()
    expect(notice).to_contain_text("Removed 1 picture from Norway.")


def test_albums_are_made_and_filled(page):
    check(page, 1)
    check(page, 4)
    page.get_by_role("button", name="Add to album").click()
    dialog = page.locator(".ask")
    expect(dialog).to_contain_text("Add 2 pictures to an album")
    page.keyboard.type("Norway <b>2026</b>")
    page.keyboard.press("Enter")
    expect(page.locator("#notices")).to_contain_text("Added 2 pictures to Norway <b>2026</b>.")
    page.get_by_role("button", name="Add to album").click()  # now one can be chosen
    dialog.get_by_role("button", name="Norway <b>2026</b>").click()
    expect(dialog).to_have_count(0)
    page.keyboard.press("Escape")
    library = page.locator("#library")
    album = library.get_by_role("button", name="Norway <b>2026</b> 2", exact=True)
    album.click()
    status(page, "^2 images, newest first")
    expect(page.locator(".term")).to_contain_text("In Norway <b>2026</b>")
    expect_captions(page, ["001.png", "004.png"])
    page.fill("#text", "picture 4")
    status(page, "for “picture 4”, of 2, in")
    page.go_back()
    status(page, "^2 images, newest first")
    check(page, 0)
    page.get_by_role("button", name="Remove from album").click()
    status(page, "^1 image, newest first")
    expect(page.locator("#selection")).to_be_hidden()


def test_albums_are_renamed_and_deleted(page):
    library = page.locator("#library")
    library.get_by_role("button", name="New album").click()
    page.keyboard.type("Norway")
    page.keyboard.press("Enter")
    expect(library).to_contain_text("Norway")
    page.locator(".tile .hit").nth(1).click()
    page.locator("#viewer").get_by_role("button", name="Add to album").click()
    page.locator(".ask").get_by_role("button", name="Norway").click()
    expect(page.locator("#viewer dd .link").last).to_have_text("Norway")
    page.keyboard.press("Escape")
    library.get_by_role("button", name="Rename Norway").click(force=True)
    page.keyboard.press("Control+a")
    page.keyboard.type("Oslo")
    page.keyboard.press("Enter")
    expect(library).to_contain_text("Oslo")
    expect(library).not_to_contain_text("Norway")
    page.locator(".tile .hit").nth(1).click()
    page.locator("#viewer").get_by_role("button", name="Oslo").click()
    expect(page.locator("#viewer")).to_be_hidden()
    library.get_by_role("button", name="Delete Oslo").click(force=True)
    expect(page.locator(".ask")).to_contain_text("The pictures themselves stay where they are.")
    page.get_by_role("button", name="Cancel").click()
    library.get_by_role("button", name="Delete Oslo").click(force=True)
    page.get_by_role("button", name="Delete album").click()
    expect(library).not_to_contain_text("Oslo")
    status(page, "300 images")  # the album that was open is left


def test_selected_pictures_are_exported(page):
    check(page, 0)
    check(page, 1)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download zip").click()
    assert download.value.suggested_filename == "pictures.zip"
    with zipfile.ZipFile(download.value.path()) as archive:
        assert {name.rpartition("/")[2] for name in archive.namelist()} >= {"000.png", "001.png"}
    with page.expect_download() as download:
        page.get_by_role("button", name="List of files").click()
    lines = download.value.path().read_text(encoding="utf-8").splitlines()
    assert [line.rpartition("/")[2] for line in lines] == ["000.png", "001.png"]
    page.route("**/export?*", lambda route: route.fulfill(status=404, json={"error": "none of these has a file"}))
    page.get_by_role("button", name="Download zip").click()
    expect(page.locator("#notices")).to_have_text("None of these has a file")
    expect(page.locator("iframe")).to_have_count(2)  # of the two that were downloaded


def test_an_export_does_not_pass_through_the_memory_of_the_page(page):
    check(page, 0)
    asked = []
    page.on("request", lambda request: "/export" in request.url and asked.append(request.resource_type))
    with page.expect_download() as download:
        page.get_by_role("button", name="Download zip").click()
    assert download.value.url.startswith(page.url.partition("?")[0])  # not a blob
    assert asked == ["document"]
    expect(page.locator("#notices")).to_contain_text("Downloading 1 picture as pictures.zip …")
    with page.expect_download():
        page.get_by_role("button", name="List of files").click()
    expect(page.locator("#notices")).to_contain_text("Downloading a list of 1 picture as pictures.txt …")


def test_an_export_that_the_service_refuses_says_why(page):
    check(page, 0)
    page.evaluate(GONE)
    page.get_by_role("button", name="Download zip").click()
    expect(page.locator("#notices [role=alert]")).to_have_text(
        "None of these entries is in this index; they may have been removed"
    )
    page.route("**/export?*", lambda route: route.abort())
    page.get_by_role("button", name="Download zip").click()
    expect(page.locator("#notices [role=alert]")).to_contain_text("The server is not responding")


def test_a_change_that_fails_says_why(page):
    page.route("**/favourites?*", lambda route: route.fulfill(status=503, json={"error": "the index is busy"}))
    check(page, 0)
    page.locator("#selection").get_by_role("button", name="Favourite").click()
    expect(page.locator("#notices [role=alert]")).to_have_text("The index is busy")
