"""An index of an earlier format opens, and keeps its entries, vectors and ids."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from diptych.errors import IndexFileError
from diptych.index.sqlite import database, migrations
from diptych.index.sqlite.doctor import examine
from diptych.index.sqlite.store import Store

EARLIER = Path(__file__).parent / "fixtures" / "format1.diptych"
ENTRIES = "SELECT id, kind, key, content, image, path, folder, size, modified, text, place FROM entries ORDER BY id"


@pytest.fixture
def earlier(tmp_path):
    return Path(shutil.copy(EARLIER, tmp_path / "earlier.diptych"))


def rows(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


@pytest.mark.parametrize("write", [False, True])
def test_an_earlier_index_opens_with_all_it_had(earlier, write):
    statements = [ENTRIES, "SELECT * FROM contents", "SELECT * FROM thumbnails", "SELECT * FROM problems"]
    before = [rows(earlier, statement) for statement in statements]
    store = Store.open(earlier, write=write)
    assert store.counts() == {"image": 3, "text": 3}
    store.close()
    assert [rows(earlier, statement) for statement in statements] == before
    assert rows(earlier, "PRAGMA user_version") == [(migrations.FORMAT,)]
    assert list(examine(earlier)) == []


def test_the_words_of_earlier_images_can_be_found(earlier):
    Store.open(earlier).close()
    found = "SELECT rowid FROM image_words WHERE image_words MATCH '{}' ORDER BY rowid"
    assert rows(earlier, found.format("ball")) == [(1,), (4,)]
    assert rows(earlier, found.format("name:b")) == [(4,)]
    assert rows(earlier, found.format("beach")) == [(6,)]


def test_the_words_of_a_removed_image_are_forgotten(earlier):
    store = Store.open(earlier, write=True)
    with store.database.transaction():
        store.database.rows("DELETE FROM entries WHERE key = 'a.jpg'")
    store.close()
    assert rows(earlier, "SELECT rowid FROM image_words WHERE image_words MATCH 'ball'") == [(4,)]


def test_a_new_index_has_the_tables_of_a_migrated_one(earlier, tmp_path):
    store = Store.open(earlier)
    Store.create(tmp_path / "new.diptych", store.spec).close()
    store.close()
    tables = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
    assert rows(earlier, tables) == rows(tmp_path / "new.diptych", tables)


def test_a_failure_in_the_middle_leaves_the_earlier_file_usable(earlier, monkeypatch):
    before = earlier.read_bytes()
    broken = (*migrations._STEPS[:1], migrations._STEPS[1] + "INSERT INTO nowhere VALUES(1);\n")
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "_STEPS", broken)
        with pytest.raises(IndexFileError, match=r"earlier format 1.*nowhere"):
            Store.open(earlier)
    assert earlier.read_bytes() == before
    Store.open(earlier).close()


def test_a_file_that_cannot_be_written_says_what_to_do(earlier, monkeypatch):
    opened = database.Database._open
    monkeypatch.setattr(database.Database, "_open", lambda self, mode: opened(self, "ro"))
    with pytest.raises(IndexFileError, match=r"earlier format 1.*permissions, then run: diptych index doctor"):
        Store.open(earlier)


def test_two_processes_may_migrate_at_once(earlier):
    with closing(sqlite3.connect(earlier, isolation_level=None)) as connection:
        migrations.migrate(connection)
        migrations.migrate(connection)  # the second one finds nothing to do
    assert Store.open(earlier).counts()["image"] == 3
