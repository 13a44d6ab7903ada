import pytest

from diptych.errors import IndexFileError
from diptych.index.spec import IndexSpec
from diptych.index.sqlite.location import SQLiteLocation

SPEC = IndexSpec("runs/a", "identity", 4, False, "float16", "photos", None, "1")


def refusal(call, *arguments, **options):
    with pytest.raises(IndexFileError) as raised:
        call(*arguments, **options)
    return str(raised.value)


def test_an_index_is_created_opened_and_removed(tmp_path):
    location = SQLiteLocation(tmp_path / "a.diptych")
    assert not location.exists()
    location.create(SPEC).close()
    store = location.open()
    assert (store.spec, store.address, store.exists()) == (SPEC, str(location), True)
    assert store.bytes_used() == (tmp_path / "a.diptych").stat().st_size
    store.close()
    assert list(location.examine()) == []
    location.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_replacement_lies_beside_it_and_is_another_instance(tmp_path):
    location = SQLiteLocation(tmp_path / "a.diptych")
    location.create(SPEC).close()
    reader = location.open()
    first = reader.instance
    beside = location.replacement()
    assert beside.path.parent == tmp_path
    beside.create(SPEC).close()
    location.replace(beside)
    assert reader.spec == SPEC
    assert reader.instance != first
    assert not beside.exists()
    reader.close()


def test_places_that_are_no_index(tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    make_one = f"a folder, not an index; make one of it: diptych open {run}, or diptych index starter {run}"
    assert make_one in refusal(SQLiteLocation(run).open)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.diptych").touch()
    assert refusal(SQLiteLocation(run).open).endswith("a folder, not an index; did you mean run.diptych?")
    assert "is a folder; name a file" in refusal(SQLiteLocation(run).check_target, fresh=False)
    for name in ("vocabulary.json", "tokeniser.json"):
        (run / name).write_text("{}")
        assert "a run, not an index; index your photos with it" in refusal(SQLiteLocation(run).open)
        (run / name).unlink()
    letter = SQLiteLocation(tmp_path / "letter.doc")
    letter.path.write_text("dear")
    letter.check_target(fresh=False)
    assert "letter.doc: not replaced, because it may not be an index" in refusal(letter.check_target, fresh=True)
