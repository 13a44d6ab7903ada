"""The filters find the entries that an SQLite file would find, whatever the names contain."""

import pytest

from diptych.errors import DataError
from diptych.index.entries import Filters
from diptych.index.milvus.filtering import expression


@pytest.mark.parametrize(
    ("filters", "keys"),
    [
        (Filters(), ["b.jpg", "trip/a.jpg", "trip/sea_%/c.jpg", "trips/d.jpg"]),
        (Filters("trip"), ["trip/a.jpg", "trip/sea_%/c.jpg"]),
        (Filters("/trip/"), ["trip/a.jpg", "trip/sea_%/c.jpg"]),
        (Filters("trip/sea_%"), ["trip/sea_%/c.jpg"]),
        (Filters("tri"), []),
        (Filters('a" or id > 0 or folder == "'), []),
        (Filters(since="1970-07-20", until="1970-12-31"), ["trip/a.jpg"]),
        (Filters(since="1971-01-02", until="1971-01-02"), ["trip/sea_%/c.jpg"]),
        (Filters(split="train"), ["b.jpg"]),
        (Filters(columns=(("price", "5"),)), ["trip/a.jpg", "trips/d.jpg"]),
        (Filters(columns=(("price", "5"), ("sh\"op's", 'x\\"\n'))), ["trip/a.jpg"]),
        (Filters(columns=(("price", "8"),)), []),
    ],
)
def test_images_and_texts_pass(milvus_store, filters, keys):
    found = milvus_store.entries(milvus_store.matching("image", filters))
    assert sorted(entry.key for entry in found) == keys
    texts = milvus_store.entries(milvus_store.matching("text", filters))
    images = milvus_store.entries([text.image for text in texts])
    assert {image.key for image in images} == {key for key in keys if key != "trip/sea_%/c.jpg"}
    assert len(milvus_store.pool("image", filters)) == len(keys)


def test_what_the_index_does_not_have(milvus_store):
    with pytest.raises(DataError, match=r"no split 'tran' in the index; did you mean 'train'\?"):
        milvus_store.matching("image", Filters(split="tran"))
    with pytest.raises(DataError, match=r"no column 'prize' in the index; did you mean 'price'\?"):
        milvus_store.pool("image", Filters(columns=(("prize", "5"),)))
    with pytest.raises(DataError, match="albums need an index in an SQLite file"):
        milvus_store.pool("image", Filters(album=0))


def test_an_index_without_splits():
    with pytest.raises(DataError, match="its source has no splits"):
        expression(Filters(split="train"), list, list)
