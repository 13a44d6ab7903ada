import pytest

from diptych.errors import DataError
from diptych.index.sources.selection import Selection
from diptych.index.sources.several import FoldersSource, name_folders
from support.photos import draw


@pytest.fixture
def two(tmp_path):
    for name in ("card/DCIM/a.jpg", "disk/DCIM/s/a.jpg"):
        draw(tmp_path / name)
    (tmp_path / "disk/DCIM/s/a.txt").write_text("a dog\n\xff")
    (tmp_path / "disk/DCIM/film.psd").touch()
    folders = name_folders([str(tmp_path / "card/DCIM"), str(tmp_path / "disk/DCIM")])
    return FoldersSource(folders, Selection())


def test_keys_begin_with_the_name_of_their_folder(two, tmp_path):
    assert [name for name, _ in two.folders] == ["DCIM", "DCIM-2"]
    listing = two.listing()
    assert set(listing.files) == {"DCIM/a.jpg", "DCIM-2/s/a.jpg"}
    assert (listing.text_files, listing.ignored) == ({"DCIM-2/s/a.txt"}, {".psd": 1})
    info = two.info("DCIM-2/s/a.jpg")
    assert (info.path, info.text_file, info.texts[0]) == ("DCIM-2/s/a.jpg", "DCIM-2/s/a.txt", "a dog")
    assert two.picture("DCIM-2/s/a.jpg").path == tmp_path / "disk/DCIM/s/a.jpg"


def test_the_images_of_a_folder_that_is_gone_are_kept(two, tmp_path):
    (tmp_path / "card").rename(tmp_path / "pocket")
    listing = two.listing()
    assert (list(listing.files), listing.unlisted) == (["DCIM-2/s/a.jpg"], ["DCIM/"])
    assert listing.problems["DCIM/"].endswith("cannot be read (No such file or directory); its known images are kept")
    (tmp_path / "disk").rename(tmp_path / "drawer")
    with pytest.raises(DataError, match=r"is its disk connected\? Nothing was changed"):
        two.listing()


def test_names_are_unique_and_stay():
    known = [("DCIM", "/card/DCIM")]
    assert name_folders(["/card/DCIM", "/disk/dcim"], known) == [*known, ("dcim-2", "/disk/dcim")]


def test_a_folder_within_another_is_refused(tmp_path):
    (tmp_path / "photos" / "s").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "photos" / "s")
    for inner in (tmp_path / "photos" / "s", tmp_path / "link"):
        with pytest.raises(DataError, match=f"{inner}: lies within {tmp_path}/photos, with which it is indexed"):
            name_folders([str(tmp_path / "photos"), str(inner)])
    assert len(name_folders([f"{tmp_path}/photos", f"{tmp_path}/photos 2"])) == 2
