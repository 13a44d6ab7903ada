"""The file of an index: several processes, failures, and files that are not an index."""

import shutil
import sqlite3

import pytest

from diptych.errors import IndexFileError
from diptych.index.sqlite.database import Database, remove_logs
from diptych.index.sqlite.store import Store


def test_a_reader_sees_changes_and_a_file_that_replaces_its_own(example, copy, tmp_path):
    reader = Store.open(copy.path)
    before = reader.generation
    with reader.reading():
        assert reader.counts()["image"] == 4
        with copy.database.transaction():
            copy.database.rows("DELETE FROM entries WHERE key = 'b.jpg'")
        assert reader.counts()["image"] == 4  # still the same state
    assert reader.counts() == {"image": 3, "text": 2}  # its texts are removed with it
    after = reader.generation
    assert after > before
    Store.create(tmp_path / "other.diptych", example.SPEC).close()
    remove_logs(copy.path)
    (tmp_path / "other.diptych").replace(copy.path)
    assert reader.generation > after
    assert reader.counts()["image"] == 0
    reader.close()


def test_a_file_is_complete_when_its_writer_has_ended_even_if_somebody_reads_it(copy, tmp_path):
    copy.close()
    reader, writer = Store.open(copy.path), Store.open(copy.path, write=True)
    assert reader.counts()["image"] == 4
    with writer.database.transaction():
        writer.database.rows("DELETE FROM entries WHERE key = 'b.jpg'")
    writer.close()
    shutil.copy(copy.path, tmp_path / "alone.diptych")  # without its log
    alone = Store.open(tmp_path / "alone.diptych")
    assert alone.counts()["image"] == 3
    alone.close()
    reader.close()


def test_changes_of_a_restored_copy_lead_to_another_generation(copy, tmp_path):
    copy.close()
    restored = Database(shutil.copy(copy.path, tmp_path / "restored.diptych"), write=True)
    changed = Database(copy.path, write=True)
    assert restored.generation == changed.generation
    for database in (restored, changed):
        with database.transaction():
            pass
    assert restored.generation != changed.generation
    restored.close()
    changed.close()


def test_a_failed_transaction_changes_nothing(copy):
    generation = copy.generation
    with pytest.raises(ZeroDivisionError), copy.database.transaction():
        copy.database.rows("DELETE FROM entries")
        _ = 1 / 0
    assert copy.counts()["image"] == 4
    assert copy.generation == generation


def refused(path):
    with pytest.raises(IndexFileError) as error:
        store = Store.open(path)
        store.vectors("image")
        store.close()
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    return str(error.value)


def test_a_file_that_is_not_an_index_is_refused_in_one_line(file, tmp_path):
    assert "no such index; make one: diptych index starter FOLDER" in refused(tmp_path / "gone.diptych")
    assert "is a folder" in refused(tmp_path)
    (tmp_path / "text").write_text("hello " * 1000)
    assert "not a Diptych index" in refused(tmp_path / "text")
    (tmp_path / "empty").touch()
    assert "not a Diptych index" in refused(tmp_path / "empty")
    content = file.read_bytes()
    (tmp_path / "cut").write_bytes(content[: len(content) // 2])
    assert "damaged (database disk image is malformed); `diptych index rebuild" in refused(tmp_path / "cut")
    newer = shutil.copy(file, tmp_path / "newer")
    other = sqlite3.connect(newer)
    other.execute("PRAGMA user_version = 9")
    other.close()
    assert "format 9; this version of Diptych reads format 2; update Diptych" in refused(newer)


def test_no_log_is_left_beside_a_closed_index_and_an_old_one_is_not_applied_to_a_new_file(example, copy, tmp_path):
    reader = Store.open(copy.path)
    with copy.database.transaction():
        copy.database.rows("DELETE FROM entries WHERE key = 'b.jpg'")
    copy.close()  # the reader keeps the log
    assert copy.path.with_name("an.diptych-wal").exists()
    copy.path.unlink()
    Store.create(copy.path, example.SPEC).close()
    reader.close()
    assert [file.name for file in tmp_path.iterdir()] == ["an.diptych"]
    other = Store.open(copy.path)
    assert other.counts() == {"image": 0, "text": 0}
    other.close()


def test_a_reader_survives_a_file_that_is_not_an_index_in_the_place_of_its_own(store, tmp_path):
    path, aside = store.path, tmp_path / "aside"
    reader = Store.open(path)
    path.rename(aside)
    path.write_bytes(bytes(range(256)) * 40)
    with pytest.raises(IndexFileError, match="not a Diptych index"):
        reader.counts()
    aside.replace(path)
    assert reader.counts() == store.counts()
    reader.close()


def test_an_existing_file_is_not_overwritten(example, tmp_path):
    (tmp_path / "x.diptych").write_text("precious")
    with pytest.raises(IndexFileError, match="already exists"):
        Store.create(tmp_path / "x.diptych", example.SPEC)
    assert (tmp_path / "x.diptych").read_text() == "precious"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("database or disk is full", "free some space"),
        ("database is locked", "another process is writing"),
        ("attempt to write a readonly database", "check the permissions"),
        ("database disk image is malformed", "diptych index rebuild"),
    ],
)
def test_an_error_of_sqlite_is_one_line_with_the_remedy(copy, monkeypatch, error, expected):
    class Broken:
        def execute(self, *_):
            raise sqlite3.OperationalError(error)

        def close(self):
            pass

    monkeypatch.setattr(copy.database, "_connection", Broken())
    with pytest.raises(IndexFileError, match=expected):
        copy.database.rows("SELECT 1")


def test_meta_that_is_not_json_is_a_damaged_file(copy):
    with copy.database.transaction():
        copy.database.rows("UPDATE meta SET value = '{' WHERE name = 'making'")
    with pytest.raises(IndexFileError, match="making in meta is not JSON"):
        copy.database.meta("making")
    assert copy.database.meta("none") is None


def test_nested_blocks_are_one_transaction(copy):
    generation = copy.generation
    with copy.database.transaction(), copy.database.reading(), copy.database.transaction():
        copy.database.rows("DELETE FROM entries")
    assert Database(copy.path, write=False).generation > generation
    assert copy.counts()["image"] == 0
