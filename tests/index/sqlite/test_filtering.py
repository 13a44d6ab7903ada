"""Filters select the same images in a search and in the list by day."""

import pytest

from diptych.errors import DataError
from diptych.index.entries import Filters


def keys(store, ids):
    return [entry.key for entry in store.entries(ids)]


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (Filters(), [0, 1, 2, 3]),
        (Filters(folder="trip"), [1, 2]),
        (Filters(folder="/trip/"), [1, 2]),
        (Filters(folder="trip/sea"), [2]),
        (Filters(folder="tri_"), []),
        (Filters(folder="."), [0, 1, 2, 3]),
        (Filters(since="1970-07-20", until="1971-01-02"), [1, 2]),
        (Filters(since="1971-01-03"), [3]),
        (Filters(split="train"), [0]),
        (Filters(columns=(("price", "5"),)), [1, 3]),
        (Filters(columns=(("price", "5"), ("shop's", "x"))), [1]),
        (Filters(folder="trip", columns=(("price", "7"),)), [2]),
    ],
    ids=lambda value: None if isinstance(value, list) else repr(value),
)
def test_filters_select_images_and_the_texts_of_these_in_a_search_and_by_day(example, store, filters, wanted):
    wanted = [list(example.IMAGES)[number] for number in wanted]
    assert keys(store, store.matching("image", filters)) == wanted
    assert sorted(id for _, id in store.newest(10, filters=filters)) == store.matching("image", filters).tolist()
    texts = store.entries(store.matching("text", filters))
    assert [text.text for text in texts] == [text for key in wanted for text in example.IMAGES[key][-1]]


def test_an_unknown_split_or_column_is_refused_with_the_known_ones(store):
    for filters, said in (
        (Filters(columns=(("prize", "5"),)), "no column 'prize' in the index; did you mean 'price'?"),
        (Filters(split="val"), "no split 'val' in the index; known: test, train"),
    ):
        with pytest.raises(DataError, match=said.replace("?", r"\?")):
            store.matching("image", filters)
        with pytest.raises(DataError, match=said.replace("?", r"\?")):
            store.newest(10, filters=filters)
    assert store.columns() == ["price", "shop's"]
    assert store.folders() == ["trip", "trip/sea", "trips"]
    assert store.splits() == ["test", "train"]


def test_an_image_without_a_day_is_on_no_side_of_a_day(copy):
    copy.database.rows("UPDATE entries SET day = '' WHERE key = 'b.jpg'")
    for filters in (Filters(since="1900-01-01"), Filters(until="2100-01-01")):
        assert "b.jpg" not in keys(copy, copy.matching("image", filters))
        assert len(copy.newest(10, filters=filters)) == 3


def test_filters_and_an_album_are_combined_by_day(copy):
    ids = dict(copy.database.rows("SELECT key, id FROM entries WHERE kind = 'image'"))
    with copy.edit_albums() as edit:
        edit.add(0, [ids["b.jpg"], ids["trip/a.jpg"], ids["trips/d.jpg"]])
    filters = Filters(columns=(("price", "5"),), split="test", until="1971-12-31", album=0)
    (first,) = copy.newest(1, filters=filters)
    assert keys(copy, [id for _, id in [first, *copy.newest(9, first, filters)]]) == ["trips/d.jpg", "trip/a.jpg"]
