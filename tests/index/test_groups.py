import numpy as np

from diptych.index import groups
from diptych.index.entries import SearchRequest
from diptych.index.exact import Pool
from diptych.index.groups import new_groups


def grouped(store, request, rows, parts=1):
    """The row that represents each row, which arrive in so many parts."""
    added = new_groups(store, Pool(*store.vectors(request.to)), request)
    return np.concatenate([added.add(part) for part in np.array_split(np.array(rows), parts)]).tolist()


def test_copies_are_represented_by_the_first_however_they_arrive(kit, store):
    kit.put(store, ["p", "q", "p", "r", "q", "p"])
    for parts in (1, 2, 6):
        assert grouped(store, SearchRequest(), [5, 1, 0, 3, 2, 4], parts) == [5, 1, 5, 3, 5, 1]


def test_only_the_last_hits_are_compared(kit, store, monkeypatch):
    kit.put(store, ["p", "q", "p", "q"])
    monkeypatch.setattr(groups, "WINDOW", 1)
    assert grouped(store, SearchRequest(), [0, 1, 2, 3], 1) == [0, 1, 0, 1]
    assert grouped(store, SearchRequest(), [0, 1, 2, 3], 4) == [0, 1, 2, 3]


def test_texts_with_the_same_words_are_one_hit(kit, store):
    kit.put(store, ["p"], ["red dog", "Red  dog!", "blue"])
    texts = [entry.text for entry in store.entries(store.vectors("text")[0])]
    expected = [texts.index("red dog"), texts.index("red dog"), texts.index("blue")]
    rows = [texts.index("red dog"), texts.index("Red  dog!"), texts.index("blue")]
    for parts in (1, 3):
        assert grouped(store, SearchRequest("text"), rows, parts) == expected


def test_excluded_entries_are_no_hits(kit, store):
    kit.put(store, ["p", "q", "p"], ["red dog", "blue"])
    images = store.vectors("image")[0].tolist()
    assert grouped(store, SearchRequest(without=images[2]), [0, 1, 2]) == [-1, 1, -1]
    assert grouped(store, SearchRequest(excluded=("dog",)), [0, 1, 2]) == [-1, 1, 2]
    assert grouped(store, SearchRequest("text", excluded=("dog",)), [0, 1]) == [-1, -1]
