"""The tables of an index, one step per format: a new file takes all steps, an older file those it lacks.

A step only adds, so that an index keeps its entries, its vectors and their ids.
"""

from __future__ import annotations

import sqlite3

# Large columns come last, because SQLite reads a row from its beginning. `details` is a string that changes whenever
# the source changes what it says about an image, and `place` is the number of a text among those of its image.
_FIRST = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE contents(
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, hash BLOB NOT NULL, checksum INTEGER NOT NULL,
  look INTEGER, width INTEGER, height INTEGER, taken TEXT, vector BLOB NOT NULL, sets BLOB, UNIQUE(kind, hash));
CREATE TABLE thumbnails(content INTEGER PRIMARY KEY REFERENCES contents ON DELETE CASCADE, jpeg BLOB NOT NULL);
CREATE TABLE entries(
  id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, key TEXT NOT NULL,
  content INTEGER NOT NULL REFERENCES contents, image INTEGER REFERENCES entries ON DELETE CASCADE,
  path TEXT, folder TEXT NOT NULL DEFAULT '', size INTEGER, modified INTEGER, split TEXT, columns TEXT, details TEXT,
  text TEXT, place INTEGER);
CREATE UNIQUE INDEX image_keys ON entries(key) WHERE kind = 'image';
CREATE INDEX texts_of_images ON entries(image) WHERE image IS NOT NULL;
CREATE INDEX entries_of_contents ON entries(content);
CREATE TABLE problems(key TEXT PRIMARY KEY, size INTEGER, modified INTEGER, reason TEXT NOT NULL)
  WITHOUT ROWID;
"""

# The words of an image by their origin: its captions, the name of its file, its folder, and words in the picture.
# Without a condition it covers all images.
ADD_IMAGE_WORDS = """
INSERT INTO image_words(rowid, captions, name, folder, picture)
SELECT image.id, (SELECT group_concat(text, char(10)) FROM entries WHERE image = image.id),
  ltrim(substr(image.key, length(image.folder) + 1), '/'), image.folder,
  (SELECT words FROM picture_words WHERE content = image.content)
FROM entries AS image WHERE image.kind = 'image'
"""

# The day of an image, for browsing by date: that of its capture, or else that of its file where it was indexed.
_SET_DAY = """
UPDATE entries SET day = coalesce((SELECT taken FROM contents WHERE id = entries.content),
  date(nullif(modified, 0) / 1000000000, 'unixepoch', 'localtime'), '') WHERE kind = 'image'
"""

# `moment` is the second of a video that an image shows. An album names contents by their hash, so that its images may
# be renamed, and may be missing for a time. `folded` is the name in the form that no two albums share. `edited_images`
# notes files whose content has become another, new one, until a sync ends and they can be told from renamed files.
_SECOND = f"""
ALTER TABLE entries ADD COLUMN moment REAL;
ALTER TABLE entries ADD COLUMN day TEXT;
{_SET_DAY};
CREATE INDEX frames_of_videos ON entries(key, moment) WHERE moment IS NOT NULL;
CREATE INDEX images_by_day ON entries(day, id, folder, moment) WHERE kind = 'image';
CREATE INDEX images_by_folder ON entries(folder) WHERE kind = 'image';
CREATE INDEX images_by_split ON entries(split) WHERE split IS NOT NULL;
CREATE INDEX images_with_columns ON entries(id) WHERE columns IS NOT NULL;
CREATE TRIGGER day_of_new_image AFTER INSERT ON entries WHEN NEW.kind = 'image'
  BEGIN {_SET_DAY} AND id = NEW.id; END;
CREATE TRIGGER day_of_changed_image AFTER UPDATE OF content, modified ON entries WHEN NEW.kind = 'image'
  BEGIN {_SET_DAY} AND id = NEW.id; END;
CREATE TABLE details(
  content INTEGER PRIMARY KEY REFERENCES contents ON DELETE CASCADE, camera TEXT, latitude REAL, longitude REAL);
CREATE TABLE picture_words(content INTEGER PRIMARY KEY REFERENCES contents ON DELETE CASCADE, words TEXT NOT NULL);
CREATE TABLE albums(id INTEGER PRIMARY KEY, name TEXT NOT NULL, folded TEXT NOT NULL UNIQUE, created TEXT NOT NULL);
INSERT INTO albums VALUES(0, 'Favourites', 'favourites', '');
CREATE TABLE album_images(
  album INTEGER NOT NULL REFERENCES albums ON DELETE CASCADE, hash BLOB NOT NULL, added TEXT NOT NULL,
  PRIMARY KEY(album, hash)) WITHOUT ROWID;
CREATE INDEX albums_of_images ON album_images(hash);
CREATE TABLE edited_images(old INTEGER NOT NULL, new INTEGER NOT NULL);
CREATE TRIGGER note_edited_image AFTER UPDATE OF content ON entries
  WHEN NEW.kind = 'image' AND NEW.content != OLD.content
    AND NOT EXISTS (SELECT 1 FROM entries WHERE content = NEW.content AND id != NEW.id)
  BEGIN INSERT INTO edited_images VALUES(OLD.content, NEW.content); END;
CREATE VIRTUAL TABLE image_words USING fts5(
  captions, name, folder, picture, tokenize = "unicode61 remove_diacritics 2");
CREATE TRIGGER forget_image_words AFTER DELETE ON entries WHEN OLD.kind = 'image'
  BEGIN DELETE FROM image_words WHERE rowid = OLD.id; END;
{ADD_IMAGE_WORDS};
"""

_STEPS = (_FIRST, _SECOND)
FORMAT = len(_STEPS)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables of a file to the present format, all at once or not at all; call it only for an older format."""
    connection.execute("BEGIN IMMEDIATE")  # two processes may open the file at once
    try:
        ((version,),) = connection.execute("PRAGMA user_version")
        for step in _STEPS[version:]:
            for statement in _statements(step):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {max(version, FORMAT)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> list[str]:
    """The statements of a script; `executescript` would end the transaction."""
    statements, statement = [], ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return statements
