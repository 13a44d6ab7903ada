"""The documentation of the HTTP API in a real browser: the whole document is shown, and requests can be tried."""

import json
import re
import urllib.request

import pytest
from playwright.sync_api import expect


@pytest.fixture
def docs(open_page):
    page = open_page("docs")
    expect(page.locator(".operation").first).to_be_visible()
    return page


def test_every_route_and_schema_is_shown(docs, address):
    with urllib.request.urlopen(f"{address}openapi.json") as response:
        document = json.load(response)
    routes = [(method, path) for path, methods in document["paths"].items() for method in methods]
    schemas = list(document["components"]["schemas"])
    expect(docs.locator(".operation")).to_have_count(len(routes) + len(schemas))
    expect(docs.locator("nav li")).to_have_count(len(routes) + len(schemas))
    search = docs.locator("#get-search")
    expect(docs.locator("#get-explain th", has_text=re.compile("^text required$"))).to_have_count(1)
    expect(search).to_contain_text("at least 1, at most 500, defaults to 20")
    expect(search.locator("tr", has_text="Where to continue").locator("td code").last).to_have_text("next")
    expect(docs.locator("p, td").filter(has_text="`")).to_have_count(0)
    dangling = "links => links.filter(link => !document.getElementById(link.hash.slice(1))).map(link => link.hash)"
    assert docs.locator("main a[href^='#'], nav a").evaluate_all(dangling) == []


def test_a_request_is_tried(docs):
    search = docs.locator("#get-search")
    search.get_by_text("Try it").click()
    search.get_by_label("text", exact=True).fill("a red circle")
    search.get_by_label("k", exact=True).fill("2")
    search.get_by_role("button", name="Send").click()
    expect(search.locator(".response pre").first).to_have_text(
        re.compile(r"^curl 'http://\S+/search\?(k=2&text=a\+red\+circle|text=a\+red\+circle&k=2)'$")
    )
    expect(search.locator(".response p")).to_have_text(re.compile("^200 OK"))
    assert len(json.loads(search.locator(".response pre").last.inner_text())["hits"]) == 2
    search.get_by_label("k", exact=True).fill("0")
    search.get_by_role("button", name="Send").click()
    expect(search.locator(".response .problem")).to_have_text(re.compile("^422"))
    expect(search.locator(".response pre").last).to_contain_text('"error": "k: ')


def test_json_and_pictures_are_tried(docs, address):
    batch = docs.locator("#post-search-batch")
    batch.get_by_text("Try it").click()
    batch.get_by_role("button", name="Send").click()
    expect(batch.locator(".response p")).to_have_text(re.compile("^200 OK"))
    expect(batch.locator(".response pre").last).to_contain_text('"text": "two dogs on a beach"')
    image = docs.locator("#get-image-id")
    image.get_by_text("Try it").click()
    with urllib.request.urlopen(f"{address}search?text=red&k=1") as response:
        image.get_by_label("id", exact=True).fill(str(json.load(response)["hits"][0]["id"]))
    image.get_by_role("button", name="Send").click()
    expect(image.locator(".response img")).to_be_visible()


def test_a_service_that_is_gone_is_said(docs):
    docs.route("**/openapi.json", lambda route: route.abort())
    docs.reload()
    expect(docs.locator("#problem")).to_contain_text("The documentation could not be loaded")


def test_a_narrow_window_does_not_scroll_sideways(open_page):
    page = open_page("docs#get-similar", width=390, scheme="dark")
    expect(page.locator("#get-similar h2")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
