"""The page as a whole: its sections, that no text becomes markup, and that it needs nothing from outside."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.report.run_page import Contents, render, write_page

EVIL = [
    "<img src=x onerror=alert(1)>",
    "</title></style><script>alert(1)</script>",
    '" onmouseover="alert(1)" x="',
    "' onload='alert(1)",
    "</code></pre></details><h1>",
    "{{ contents.title }}{% raw %}{# #}",
    "a & b &lt; &amp; <!-- -->",
    "javascript:alert(1)",
]


@pytest.fixture(scope="module")
def plain(read, everything):
    """The page of everything with innocent words."""
    return read(render(everything()))


def test_everything_is_there_and_well_formed(read, everything):
    page = read(render(everything()))
    sections = {"events", "recall", "curves", "questions", "best", "worst", "negatives", "sampling", "recipe"}
    sections |= {"attention", "cross", "phrases", "words", "separation", "correlation"}
    assert page.identities() == sections
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert headings.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(headings))
    assert [tag for tag, _ in page.elements].count("caption") == 3
    assert all(a.get("alt") for tag, a in page.elements if tag == "img")
    assert all(a.get("scope") in ("row", "col") for tag, a in page.elements if tag == "th")
    labelled = {a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a}
    assert labelled <= page.identities()


def test_nothing_leaves_only_the_title(read):
    page = read(render(Contents("An empty run")))
    assert page.words() == "An empty run Diptych report An empty run"
    assert not {"section", "table", "img", "dl", "details"} & {tag for tag, _ in page.elements}


@pytest.mark.parametrize(
    ("name", "identity"),
    [("directions", "recall"), ("curves", "curves"), ("phrases", "phrases")]
    + [
        (name, name)
        for name in ("events", "questions", "best", "worst", "attention", "negatives", "cross", "sampling", "recipe")
    ]
    + [(name, name) for name in ("words", "separation", "correlation")],
)
def test_an_empty_part_leaves_its_section_out(name, identity, read, everything, plain):
    empty = next(field.default for field in fields(Contents) if field.name == name)
    page = read(render(replace(everything(), **{name: empty})))
    assert page.identities() == plain.identities() - {identity}


@pytest.mark.parametrize("evil", EVIL)
def test_text_never_becomes_markup(evil, read, everything, plain):
    page = read(render(everything(evil)))
    assert page.shape() == plain.shape()
    texts = [text for _, text in page.texts]
    innocent = [text for _, text in plain.texts]
    assert [text.replace(evil, "words") for text in texts] == innocent
    assert sum(evil in text for text in texts) > 25


@given(text=st.text(min_size=1).filter(str.strip))
def test_no_text_at_all_becomes_markup(text, read, everything, plain):
    assert read(render(everything(text))).shape() == plain.shape()


def test_a_picture_address_cannot_leave_its_attribute(read, everything, plain):
    for evil in EVIL:
        page = read(render(everything(picture=evil)))
        assert page.shape() == plain.shape()
        assert {a["src"] for tag, a in page.elements if tag == "img"} == {evil}


def test_a_chart_that_is_not_markup_is_shown_as_text(read):
    page = read(render(Contents("t", curves=["<svg onload=alert(1)></svg>"])))  # a plain str, not Markup
    assert "<svg onload=alert(1)></svg>" in page.words()


def test_it_needs_nothing_from_outside(read, everything):
    html = render(everything())
    page = read(html)
    assert set(re.findall(r"[\w=\"]*https?://[^\"\s<]*", html)) == {'xmlns="http://www.w3.org/2000/svg'}
    assert not {"script", "link", "iframe", "object", "base", "form"} & {tag for tag, _ in page.elements}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert all(a["src"].startswith("data:image/") for _, a in page.elements if "src" in a)
    assert not re.search(r"url\(|@import|@font-face", html)
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_it_is_light_and_dark_and_fits_a_phone(everything):
    html = render(everything())
    assert "@media (prefers-color-scheme: dark)" in html
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    light, dark = (set(re.findall(r"(--[\w-]+):", part)) for part in html.split("@media (prefers", 2)[:2])
    assert light == dark
    assert set(re.findall(r"var\((--[\w-]+)", html)) <= light


def test_directions_are_kept_apart_whatever_their_order(everything):
    contents = everything()
    swapped = replace(contents, best=contents.best[::-1])
    assert render(swapped) == render(contents)


def test_the_same_contents_give_the_same_bytes(tmp_path, everything):
    write_page(tmp_path / "one.html", everything())
    write_page(tmp_path / "two.html", everything())
    first = (tmp_path / "one.html").read_bytes()
    assert first == (tmp_path / "two.html").read_bytes()
    assert first.startswith(b"<!doctype html>\n")


def test_a_file_name_that_is_no_utf8_can_be_written(tmp_path, everything):
    write_page(tmp_path / "page.html", everything("caf\udce9.jpg"))
    assert "caf?.jpg" in (tmp_path / "page.html").read_text("utf-8")


def test_many_events_fold_and_few_do_not(read):
    events = [f"skipped image {i}" for i in range(9)]
    page = read(render(Contents("t", events=events)))
    assert all(event in page.words() for event in events)
    assert "and 3 more" in page.words()
    assert "more" not in read(render(Contents("t", events=events[:6]))).words()


def test_the_recipe_keeps_its_lines(read):
    recipe = 'title = "x"\n\n[[stage]]\nepochs = 3  # <- few\n'
    page = read(render(Contents("t", recipe=recipe)))
    assert "".join(text for tag, text in page.texts if tag == "code") == recipe
