import pytest

from diptych.index.backend import Content, text_hash
from diptych.index.sources.listing import ImageInfo
from diptych.index.sqlite.writer import Writer


def keys(store):
    """The key of every image by its id."""
    return {entry.id: entry.key for entry in store.entries(store.vectors("image")[0])}


def test_an_entry_that_is_gone_is_reused_for_the_same_content(copy):
    before = keys(copy)
    old = next(id for id, key in before.items() if key == "b.jpg")
    writer = Writer(copy, ["b.jpg"])
    with writer.transaction():
        writer.put_image("new.jpg", writer.content_of("b.jpg"), (1, 5, None), ImageInfo("new.jpg", ["a dog"]))
        assert writer.finish({}, []) == 0
    assert keys(copy) == {**before, old: "new.jpg"}
    assert writer.renamed == 1
    assert copy.captions([old]) == {old: ["a dog"]}


def test_finish_removes_what_is_gone_and_contents_without_entries(copy):
    writer = Writer(copy, ["trip/a.jpg", "trips/d.jpg"])
    with writer.transaction():
        assert writer.finish({"below/": "cannot be read"}, []) == 2
    assert set(keys(copy).values()) == {"b.jpg", "trip/sea/c.jpg"}
    assert writer.content("text", text_hash("a mouse")) is None
    assert writer.content("text", text_hash("a dog")) is not None  # another image has it, too
    assert copy.problems() == [("below/", "cannot be read")]
    assert copy.meta("unfinished") is False


def test_changed_texts_keep_their_ids_and_are_numbered_in_order(copy):
    ids = {entry.text: entry.id for entry in copy.entries(copy.vectors("text")[0]) if entry.key.startswith("b.jpg")}
    writer = Writer(copy, [])
    with writer.transaction():
        writer.add(Content("text", text_hash("a cow"), bytes(16)))
        info = ImageInfo("b.jpg", ["a cat", "a cow"])
        writer.put_image("b.jpg", writer.content_of("b.jpg"), (1, 2, None), info)
    texts = {entry.key: entry for entry in copy.entries(copy.vectors("text")[0]) if entry.key.startswith("b.jpg")}
    assert [texts[f"b.jpg#{number}"].text for number in (0, 1)] == ["a cat", "a cow"]
    assert texts["b.jpg#0"].id == ids["a cat"]


@pytest.mark.parametrize("permanent", [True, False])
def test_only_a_permanent_problem_removes_the_entry(copy, permanent):
    writer = Writer(copy, [])
    with writer.transaction():
        writer.put_problem("b.jpg", (3, 4, None), "broken", permanent=permanent)
        assert writer.finish({}, []) == permanent
    ((key, size, modified, reason),) = copy.problem_records()
    assert (key, size, modified, reason) == ("b.jpg", 3, 4 if permanent else -1, "broken")
    with writer.transaction():
        content = writer.content("image", bytes([1]))
        writer.put_image("b.jpg", content, (3, 5, None), ImageInfo("b.jpg", []))
    assert copy.problem_records() == []


def test_solved_problems_are_removed(copy):
    writer = Writer(copy, [])
    with writer.transaction():
        writer.put_problem("x.jpg", (1, 1, None), "broken", permanent=True)
        writer.put_problem("y.jpg", (1, 1, None), "broken", permanent=True)
        writer.finish({}, ["x.jpg"], {"sample": 3})
    assert [problem.key for problem in copy.problem_records()] == ["y.jpg"]
    assert copy.meta("storage_cost") == {"sample": 3}


def test_begin_notes_the_spec_and_that_work_is_unfinished(example, copy):
    Writer(copy, []).begin(example.SPEC)
    assert copy.meta("unfinished") is True
    assert copy.spec == example.SPEC
