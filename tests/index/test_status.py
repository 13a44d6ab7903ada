from diptych.index.sqlite.writer import Writer
from diptych.index.status import status


def test_the_state_of_an_index(kit, store):
    kit.put(store, ["p", "q"], ["one"])
    found = status(store)
    assert (found["images"], found["texts"], found["size"], found["storage"]) == (2, 1, kit.SIZE, "float32")
    assert (found["model"], found["identity"], found["source"]) == ("runs/fake", "fake", "s")
    assert found["bytes"] == store.path.stat().st_size
    assert (found["synced"], found["storage_cost"], found["measured_with"]) == (None, {}, 0)
    assert (found["complete"], found["caches"], found["problems"]) == (True, [], [])


def test_an_unfinished_sync_and_its_problems(kit, store):
    writer = Writer(store, [])
    writer.begin(kit.spec())
    assert not status(store)["complete"]
    cost = {"int8": {"recall@10": 0.9}, "float32": {"recall@10": 1.0}, "of": 7, "sample": 7}
    with writer.transaction():
        writer.finish({"below/": "cannot be read"}, [], cost)
    writer.set_synced("2026-11-16T12:00:00+00:00", {"found": 3})
    found = status(store)
    assert found["complete"]
    assert found["problems"] == [{"key": "below/", "reason": "cannot be read"}]
    assert (found["storage_cost"], found["measured_with"]) == (
        {"float32": {"recall@10": 1.0}, "int8": {"recall@10": 0.9}},
        7,
    )
    assert found["synced"] == "2026-11-16T12:00:00+00:00"
