import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diptych.errors import DataError
from diptych.index import ranking
from diptych.index.entries import Filters, SearchRequest
from diptych.index.query import Cursor
from diptych.index.ranking import Candidates, Ranking
from diptych.index.search import Searcher
from diptych.index.sqlite.writer import Writer


def pages(searcher, k=3, text="red dog", change=None, **request):
    """The answers on all pages; `change` is called after the first of them."""
    answers, cursor = [], None
    while cursor is not None or not answers:
        (answer,) = searcher.search_texts([text], SearchRequest(k=k, cursor=cursor, **request))
        answers.append(answer)
        cursor = answer.next
        if change is not None and len(answers) == 1:
            change()
        assert len(answers) < 200
    return answers


def ids(answers):
    return [hit.entry.id for answer in answers for hit in answer.hits]


@pytest.mark.parametrize("mode", ["meaning", "words", "both"])
@pytest.mark.parametrize("rescores", [False, True])
def test_pages_are_the_parts_of_one_answer(kit, store, mode, rescores):
    """With near-duplicates in between, and for models that re-rank."""
    for number in range(30):
        kit.put(store, [f"dog{number}"], [f"red dog {number}"] if number % 2 else (), folder="a")
    kit.put(store, [f"dog{number % 7}" for number in range(40)], folder="b")
    searcher = Searcher(store, kit.FakeModel(not rescores), rerank=100)
    (whole,) = searcher.search_texts(["red dog"], SearchRequest(k=200, mode=mode))
    assert whole.next is None
    assert len(whole.hits) in (15, 30)
    for k in (1, 4, 15, 29, 30):
        answers = pages(searcher, k, mode=mode)
        assert ids(answers) == ids([whole])
        assert [len(answer.hits) for answer in answers[:-1]] == [k] * (len(answers) - 1)
        scores = [hit.score for answer in answers for hit in answer.hits]
        assert scores == pytest.approx([hit.score for hit in whole.hits])
        assert [h.stands_out for a in answers for h in a.hits] == [h.stands_out for h in whole.hits]
        assert all(answer.searched == whole.searched for answer in answers)


def test_re_ranked_tiers_follow_each_other_without_repeats(kit, store):
    kit.put(store, [f"n{number % 60}" for number in range(90)])
    answers = pages(Searcher(store, kit.FakeModel(False), rerank=25), 2)
    assert sorted(ids(answers)) == list(range(1, 61))
    scores = [hit.score for answer in answers for hit in answer.hits]
    assert scores != sorted(scores, reverse=True)  # else there would be one tier
    assert Searcher(store, kit.FakeModel(False), rerank=100).search_texts(["red dog"], SearchRequest(k=60))[0].hits


def test_similar_entries_texts_and_filters_have_pages(kit, store):
    kit.put(store, [f"n{number}" for number in range(20)], [f"word {number}" for number in range(9)])
    kit.put(store, [f"m{number}" for number in range(20)], folder="b/c")
    searcher = Searcher(store, kit.FakeModel())
    images = store.vectors("image")[0].tolist()
    first = searcher.search_similar(images[3], SearchRequest(k=30))
    second = searcher.search_similar(images[3], SearchRequest(k=30, cursor=first.next))
    assert second.next is None
    assert sorted(ids([first, second])) == [id for id in images if id != images[3]]
    assert len(set(ids(pages(searcher, 2, to="text")))) == 9
    assert sorted(ids(pages(searcher, 7, filters=Filters(folder="b")))) == images[20:]
    with pytest.raises(DataError, match="cursor: not one"):
        searcher.search_similar(images[4], SearchRequest(cursor=first.next))


def test_later_pages_repeat_no_message(kit, store):
    kit.put(store, [f"n{number}" for number in range(9)])
    answers = pages(Searcher(store, kit.FakeModel()), text="red longword")
    assert [answer.message is None for answer in answers] == [False, True, True]


@pytest.mark.parametrize("mode", ["meaning", "both"])
def test_a_later_page_continues_when_the_index_changes(kit, store, mode):
    kit.put(store, [f"n{number}" for number in range(40)])
    searcher = Searcher(store, kit.FakeModel())
    before = ids(pages(searcher, 5, mode=mode))

    def add():
        kit.put(store, [f"m{number}" for number in range(40)], folder="b")

    after = ids(pages(searcher, 5, mode=mode, change=add))
    assert len(after) == len(set(after))
    assert set(before) <= set(after)
    assert after[:5] == before[:5]


def test_a_page_whose_last_hit_is_removed_continues_after_its_score(kit, store):
    kit.put(store, [f"n{number}" for number in range(40)])
    searcher = Searcher(store, kit.FakeModel())
    before = ids(pages(searcher, 5))
    keys = {entry.id: entry.key for entry in store.entries(before)}

    def remove():
        with store.database.transaction():
            Writer(store, [keys[before[4]], keys[before[9]]]).finish({}, [])

    after = ids(pages(searcher, 5, change=remove))
    assert after == [id for id in before if id != before[9]]


def test_the_pages_go_on_when_the_index_gets_its_first_caption(kit, store):
    """From then on, a text is searched for by words as well."""
    kit.put(store, [f"n{number}" for number in range(40)])
    kit.put(store, ["a photo with a caption"], folder="b")
    searcher = Searcher(store, kit.FakeModel())

    def describe():
        kit.put(store, ["another photo"], ["red dog"], folder="c")

    answers = pages(searcher, 5, change=describe)
    assert len(ids(answers)) > 30
    assert answers[1].hits


class Plain:
    """Candidates whose group is given by a list: the row that represents each row."""

    def __init__(self, hit_of):
        self.hit_of, self.looked_at = np.array(hit_of), []

    def add(self, rows):
        self.looked_at += rows.tolist()
        return self.hit_of[rows]


def ranking_of(scores, hit_of=None, tier=None, taken=None):
    """A ranking of rows with these scores, in this order; ids are ten times the rows."""
    scores = np.array(scores, np.float32)
    rows = np.arange(len(scores))
    made = []

    def extend(depth, since):
        if taken is not None:
            taken.append((depth, since))
        part = slice(0, depth)
        return Candidates(rows[part], scores[part], scores[part], depth < len(rows), "exact")

    def new():
        made.append(Plain(rows if hit_of is None else hit_of))
        return made[-1]

    return Ranking(len(rows), (10 * rows).__getitem__, extend, new, tier), made


def test_candidates_are_taken_and_looked_at_as_they_are_needed():
    taken = []
    plain, made = ranking_of(range(1000, 0, -1), taken=taken)
    places, more = plain.page(0, 5)
    assert (places.tolist(), more, taken) == ([0, 1, 2, 3, 4], True, [(26, 0)])
    assert len(made[-1].looked_at) == 26
    plain.page(5, 5)
    plain.page(10, 5)
    assert taken == [(26, 0), (31, 0), (36, 0)]
    assert plain.page(995, 5)[0].tolist() == [995, 996, 997, 998, 999]
    assert not plain.page(995, 5)[1]
    assert plain.page(1000, 5)[0].tolist() == []
    assert made[-1].looked_at == list(range(1000))


@given(
    st.lists(st.integers(-1, 30), min_size=1, max_size=80), st.integers(1, 9), st.integers(1, 20), st.integers(0, 9999)
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_hit_is_on_exactly_one_page(groups, k, window, seed):
    """For any groups, and any pages that another thread has read from the same ranking before."""
    first = {}
    hit_of = [-1 if group < 0 else first.setdefault(group, row) for row, group in enumerate(groups)]
    random = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "WINDOW", window + len(groups))
        shared, _ = ranking_of(sorted(random.normal(size=len(groups)), reverse=True), hit_of)
        found, start, more = [], 0, True
        while more:
            shared.page(int(random.integers(0, len(groups))), 3)
            places, more = shared.page(start, k)
            found += places.tolist()
            start = found[-1] + 1 if found else 0
    assert found == sorted(first.values())
    for place in found:
        assert set(shared.near(place)) <= {10 * row for row, hit in enumerate(hit_of) if hit == place != row}


def test_the_place_after_a_cursor():
    scores = [0.9, 0.8, 0.8, 0.8, 0.5, 0.4]
    plain, _ = ranking_of(scores)
    assert plain.start(Cursor(b"", 2, 10, 0.8)) == 2
    assert plain.start(Cursor(b"", 2, 10, 0.80001)) == 2  # encoded in another batch
    assert plain.start(Cursor(b"", 1, 30, 0.8)) == 4  # others are better now
    assert plain.start(Cursor(b"", 2, 15, np.float32(0.8))) == 2  # removed
    assert plain.start(Cursor(b"", 2, 50, 0.8)) == 4  # changed: another score now
    assert plain.start(Cursor(b"", 6, 99, 0.1)) == 6  # all others were better
    assert plain.start(Cursor(b"", 2**32 - 1, 99, 0.1)) == 6  # the index had more entries, or a client made it up
    tiers, _ = ranking_of([0.9, 0.2, 0.7, 0.6], tier=2)
    assert tiers.start(Cursor(b"", 3, 25, 0.65)) == 3
    assert tiers.start(Cursor(b"", 1, 5, 0.95)) == 0


def test_a_deep_page_is_compared_with_a_window_only(monkeypatch):
    monkeypatch.setattr(ranking, "WINDOW", 50)
    taken = []
    plain, made = ranking_of(range(1000, 0, -1), taken=taken)
    assert plain.start(Cursor(b"", 500, 4990, 501)) == 500
    assert plain.page(500, 5)[0].tolist() == [500, 501, 502, 503, 504]
    assert taken[0] == (500, 450)
    assert min(made[-1].looked_at) == 450
    assert plain.page(0, 5)[0].tolist() == [0, 1, 2, 3, 4]  # the beginning is read anew


def test_an_ivf_is_followed_by_exact_pages(kit, store):
    pytest.importorskip("faiss")
    kit.put(store, [f"n{number % 50}" for number in range(70)])
    searcher = Searcher(store, kit.FakeModel(), ivf="always")
    answers = pages(searcher, 6)
    assert [answer.method for answer in answers[:2]] == ["ivf", "exact"]
    assert sorted(ids(answers)) == list(range(1, 51))


def test_rankings_are_kept_for_the_next_page_of_one_generation(kit, store, monkeypatch):
    kit.put(store, [f"n{number}" for number in range(60)])
    searcher = Searcher(store, kit.FakeModel())
    made = []
    monkeypatch.setattr(
        ranking.Ranking, "_regroup", lambda self, original=Ranking._regroup: made.append(self) or original(self)
    )
    pages(searcher, 4)
    assert len(set(made)) == 2  # the first page's, and one for all others
    kit.put(store, ["another"])
    pages(searcher, 4)
    assert len(set(made)) == 4
