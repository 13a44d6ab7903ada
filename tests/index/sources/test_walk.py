"""A walk lists every image once, and counts every other file."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import DataError
from diptych.index.sources.accounting import FileCounts
from diptych.index.sources.selection import Selection
from diptych.index.sources.walk import Walk
from support.photos import draw


def walk(folder, *patterns, follow_links=False):
    return Walk(str(folder), Selection(patterns, follow_links)).run()


NAMES = st.sampled_from(
    [
        *("a.jpg", "b.JPG", "a.txt", "c.txt", "film.psd", "letter.pdf", "README", "x.", "odd.a b c", "über.png", "jpg"),
        *(".hidden.jpg", "Thumbs.db", "\udcff.jpg", "\udcff.pdf"),
    ]
)
FOLDERS = st.sampled_from(["", "s", "s/t", "@eaDir", ".git", "cut"])
ENTRIES = st.lists(
    st.tuples(
        FOLDERS, NAMES, st.sampled_from(["file", "file", "file", "to image", "to folder", "out", "nowhere", "pipe"])
    ),
    max_size=12,
    unique_by=lambda entry: entry[:2],
)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes and no such names")
@settings(max_examples=40)
@given(ENTRIES, st.booleans(), st.sampled_from([(), ("cut",), ("*.jpg", "!a.jpg")]))
def test_the_counts_add_up_to_the_number_of_files(entries, follow_links, patterns):
    with tempfile.TemporaryDirectory() as name:
        top, elsewhere = Path(name, "photos"), Path(name, "elsewhere")
        draw(top / "seen.png")
        draw(elsewhere / "other.png")
        targets = {"to image": top / "seen.png", "to folder": top, "out": elsewhere, "nowhere": top / "nothing"}
        for folder, file, kind in entries:
            path = top / folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "file":
                path.touch()
            elif kind == "pipe":
                os.mkfifo(path)
            else:
                path.symlink_to(targets[kind])
        listing = walk(top, *patterns, follow_links=follow_links)
        counts = FileCounts.count(listing, set(listing.files))
        expected = 0
        for folder, folders, files in os.walk(top):
            left_out = {".git", "@eaDir", *(["cut"] if "cut" in patterns else [])}
            links = [below for below in folders if Path(folder, below).is_symlink()]
            expected += len(files) + len(links)
            folders[:] = set(folders) - left_out
        leaving = [path for path in top.rglob("*") if path.is_symlink() and path.is_dir() and follow_links]
        if not leaving:
            assert counts.found == expected, (listing, entries)
        assert (counts.indexed, counts.waiting) == (len(listing.files), 0)
        assert listing.skipped <= len(listing.problems)
        assert all(key.isprintable() for key in listing.problems)


def test_kinds_of_files_that_are_no_images(tmp_path):
    draw(tmp_path / "a.jpg")
    for name in ("a.PSD", "b.psd", "c.pdf", "README", ".DS_Store", "notes.txt", "Dr. Smith's letter"):
        (tmp_path / name).touch()
    draw(tmp_path / "@eaDir" / "a.jpg")
    listing = walk(tmp_path)
    assert listing.ignored == {
        ".psd": 2,
        ".pdf": 1,
        ".txt": 1,
        "without an ending": 1,
        "hidden": 1,
        "with other endings": 1,
    }
    assert listing.folders == {"@eaDir": 1}
    assert list(listing.files) == ["a.jpg"]


def test_patterns_leave_out_files_and_folders(tmp_path):
    for name in ("a.jpg", "b.gif", "raw/c.jpg", "s/raw.jpg"):
        draw(tmp_path / name)
    listing = walk(tmp_path, "*.gif", "/raw/")
    assert sorted(listing.files) == ["a.jpg", "s/raw.jpg"]
    assert (listing.ignored, listing.folders) == ({"by a pattern": 1}, {"raw": 1})


def test_links_are_followed_out_of_the_folder_and_loops_end(tmp_path):
    top, other = tmp_path / "photos", tmp_path / "other"
    draw(top / "a.jpg")
    for name in ("b.jpg", "deep/c.jpg", "alone.jpg"):
        draw(other / name)
    (other / "b.txt").write_text("a dog")
    (other / "back").symlink_to(top)
    (other / "itself").symlink_to(other)
    (top / "album").symlink_to(other)
    (top / "again").symlink_to(other / "deep")
    (top / "alone.jpg").symlink_to(other / "alone.jpg")
    (top / "z.jpg").symlink_to(other / "b.jpg")
    (top / "same.jpg").symlink_to("a.jpg")
    (top / "gone.jpg").symlink_to("nothing")
    (top / "loop.jpg").symlink_to("loop.jpg")
    listing = walk(top, follow_links=True)
    assert set(listing.files) == {"a.jpg", "again/c.jpg", "album/alone.jpg", "album/b.jpg"}
    assert listing.text_files == {"album/b.txt"}
    assert listing.files["album/b.jpg"][2] is not None
    assert listing.problems.keys() == {"gone.jpg", "loop.jpg"}
    assert listing.ignored["linking to what is listed already"] == 5
    problems = walk(top).problems
    assert "a link that leaves the folder; it is not followed, unless with --follow-links" in problems["album"]


def test_a_link_to_a_parent_of_the_folder_lists_nothing_twice(tmp_path):
    draw(tmp_path / "b.jpg")
    draw(tmp_path / "photos" / "s" / "a.jpg")
    (tmp_path / "photos" / "up").symlink_to(tmp_path)
    assert set(walk(tmp_path / "photos", follow_links=True).files) == {"s/a.jpg", "up/b.jpg"}


def test_a_folder_that_cannot_be_read(tmp_path, monkeypatch):
    draw(tmp_path / "a.jpg")
    draw(tmp_path / "s" / "b.jpg")
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("s"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    listing = walk(tmp_path)
    assert (list(listing.files), listing.unlisted, listing.skipped) == (["a.jpg"], ["s/"], 0)
    assert listing.problems["s/"].startswith("this folder cannot be read (Permission denied)")
    with pytest.raises(DataError, match="cannot be read"):
        walk(tmp_path / "s")


def test_raw_photos_and_videos_are_listed_but_not_a_raw_photo_beside_its_jpeg(tmp_path):
    for name in ("a.NEF", "a.JPG", "b.cr3", "film.MP4", "sub/a.dng", "c.heic", "c.dng"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    listing = walk(tmp_path)
    assert sorted(listing.files) == ["a.JPG", "b.cr3", "c.heic", "film.MP4", "sub/a.dng"]
    assert listing.ignored == {"RAW beside a JPEG": 2}
    (tmp_path / "a.JPG").unlink()
    assert "a.NEF" in walk(tmp_path).files
