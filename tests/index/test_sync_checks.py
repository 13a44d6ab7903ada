"""What a sync refuses, and how an index of folders changes with them."""

import pytest

from diptych.errors import DataError, IndexFileError
from diptych.index.entries import Filters, SearchRequest
from diptych.index.search import Searcher, open_store
from diptych.index.sources.resolve import SourceRequest
from diptych.index.status import status
from diptych.index.sync import rebuild, sync
from support.pictures import save_photo


@pytest.fixture
def folders(tmp_path):
    paths = [tmp_path / name for name in ("Pictures", "card/DCIM", "disk/DCIM")]
    for number, path in enumerate(paths):
        (path / "s").mkdir(parents=True)
        for place in range(3):
            save_photo(path / ("s" if place else ".") / f"{place}.png", 10 * number + place)
    return paths


def keys(index):
    store = open_store(index)
    try:
        return {entry.key: entry.path for entry in store.entries(store.vectors("image")[0])}
    finally:
        store.close()


def test_an_index_of_nothing_is_not_made(tmp_path, kit):
    folder, index = tmp_path / "photos", tmp_path / "x.diptych"
    folder.mkdir()
    with pytest.raises(DataError, match=r"photos: contains no files, so there is nothing to index$"):
        sync(kit.FakeModel(), str(folder), index)
    for name in ("a.psd", "b.PSD", "c.pdf", "README"):
        (folder / name).touch()
    with pytest.raises(DataError, match=r"contains no image .*; ignored 4: 2 \.psd, 1 \.pdf, 1 without an ending$"):
        sync(kit.FakeModel(), str(folder), index)
    (folder / "d.jpg").write_bytes(b"no photo")
    with pytest.raises(DataError, match=r"none of its images can be read, .* \(d\.jpg: not an image in a known format"):
        sync(kit.FakeModel(), str(folder), index)
    (folder / "d.jpg").unlink()
    (folder / "gone.jpg").symlink_to("nothing")
    with pytest.raises(DataError, match=r"no image can be read \(gone\.jpg: no such file, or a link to nothing\)"):
        sync(kit.FakeModel(), str(folder), index)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_every_file_is_accounted_for_in_the_status(folders, tmp_path, kit):
    (folders[0] / "0.txt").write_text("a dog")
    (folders[0] / "broken.jpg").write_bytes(b"no photo")
    (folders[0] / "film.psd").touch()
    result = sync(kit.FakeModel(), str(folders[0]), tmp_path / "x")
    assert (result.files.indexed, result.files.captions, result.files.skipped) == (3, 1, 1)
    assert (result.files.found, result.files.ignored) == (6, {".psd": 1})
    again = sync(kit.FakeModel(), str(folders[0]), tmp_path / "x")
    assert again.files == result.files
    store = open_store(tmp_path / "x")
    assert status(store)["files"] == result.files.to_json()
    store.close()


def test_patterns_are_stored_and_ignore_what_was_indexed_before(folders, tmp_path, kit):
    model, folder, index = kit.FakeModel(), str(folders[0]), tmp_path / "x"
    sync(model, folder, index)
    result = sync(model, SourceRequest((folder,), ignored=("0.*",)), index)
    assert (result.removed, result.files.ignored) == (1, {"by a pattern": 1})
    assert sync(model, folder, index).kept == 2
    assert rebuild(index, model).encoded == 2
    with pytest.raises(DataError, match=r"the index has 2; do the patterns '\*\.png' ignore all\? Nothing was changed"):
        sync(model, SourceRequest((folder,), ignored=("*.png",)), index)
    with pytest.raises(DataError, match="contains no image that can be indexed; ignored 1: 1 by a pattern"):
        sync(model, SourceRequest((folder,), ignored=("*.png", "s")), tmp_path / "new")
    assert keys(index).keys() == {"s/1.png", "s/2.png"}
    assert sync(model, SourceRequest((folder,), ignored=()), index).encoded == 1


def test_the_command_that_replaces_an_index_names_what_it_ignores(folders, tmp_path, kit):
    model, folder, index = kit.FakeModel(), str(folders[0]), tmp_path / "x"
    sync(model, SourceRequest((folder,), ("s/", "*.gif"), follow_links=True), index)
    with pytest.raises(IndexFileError, match=r"--ignore s/ --ignore '\*\.gif' --follow-links --storage int8 --fresh$"):
        sync(model, folder, index, storage="int8")


def test_folders_are_added_and_removed(folders, tmp_path, kit):
    model, index = kit.FakeModel(), tmp_path / "all"
    pictures, card, disk = map(str, folders)
    (folders[0] / "0.txt").write_text("a dog")
    sync(model, pictures, index)
    before = open_store(index).entries([1])[0]
    result = sync(model, [pictures, card], index)
    assert (result.encoded, result.kept, result.renamed, result.removed) == (3, 3, 0, 0)
    found = keys(index)
    assert found["Pictures/s/1.png"] == f"{pictures}/s/1.png"
    assert found["DCIM/0.png"] == f"{card}/0.png"
    store = open_store(index)
    assert store.entries([1])[0].key == f"Pictures/{before.key}"
    assert store.folders() == ["DCIM", "DCIM/s", "Pictures", "Pictures/s"]
    assert len(store.matching("image", Filters(folder="DCIM/s"))) == 2
    assert {entry.key for entry in store.entries(store.vectors("text")[0])} == {"Pictures/0.png#0"}
    words = SearchRequest(mode="words")
    (answer,) = Searcher(store, model).search_texts(["Pictures"], words)
    assert len(answer.hits) == 3
    store.close()
    third = sync(model, disk, tmp_path / "alone")
    assert third.encoded == 3
    assert sync(model, [card, disk], index).encoded == 3
    assert {key.split("/")[0] for key in keys(index)} == {"Pictures", "DCIM", "DCIM-2"}
    assert sync(model, SourceRequest((), remove=(pictures,)), index).removed == 3
    assert rebuild(index, model).encoded == 6
    assert {key.split("/")[0] for key in keys(index)} == {"DCIM", "DCIM-2"}


def test_a_disk_that_is_not_connected_keeps_its_entries_while_others_are_updated(folders, tmp_path, kit):
    model, index = kit.FakeModel(), tmp_path / "all"
    sync(model, [str(folder) for folder in folders[:2]], index)
    folders[1].rename(tmp_path / "pocket")
    save_photo(folders[0] / "new.png", 77)
    result = sync(model, SourceRequest(), index)
    assert (result.encoded, result.removed, result.problems) == (1, 0, 1)
    store = open_store(index)
    ((key, reason),) = store.problems()
    store.close()
    assert key == "DCIM/"
    assert "cannot be read (No such file" in reason
    folders[1].mkdir()  # an empty mount point
    result = sync(model, SourceRequest(), index)
    assert (result.encoded, result.kept, result.removed, result.problems) == (0, 7, 0, 1)
    store = open_store(index)
    ((key, reason),) = store.problems()
    store.close()
    assert (
        key,
        f"the index has 3, which are kept; is its disk connected? To remove them: --remove-folder {folders[1]}",
    ) == (
        "DCIM/",
        reason.removeprefix("contains no image now, but "),
    )
    with pytest.raises(DataError, match="DCIM/ cannot be read, and its images would be lost"):
        rebuild(index, model)


def test_another_folder_is_not_mixed_in_by_mistake(folders, tmp_path, kit):
    model, index = kit.FakeModel(), tmp_path / "x"
    sync(model, str(folders[0]), index)
    with pytest.raises(IndexFileError) as error:
        sync(model, str(folders[1]), index)
    assert f"an index of {folders[0]}; name another file with --into, add to it: diptych index" in str(error.value)
    assert f"{folders[0]} {folders[1]} --into {index}, or replace it: diptych index" in str(error.value)
    sync(model, [str(folder) for folder in folders[:2]], index)
    with pytest.raises(IndexFileError, match=r"an index of .*Pictures, .*DCIM; name another file with --into") as error:
        sync(model, str(folders[2]), index)
    assert f"add to it: diptych index {model.address} {folders[0]} {folders[2]} --into" in str(error.value)
    assert sync(model, [str(folders[0]), str(folders[2])], index).removed == 0


def test_an_unfinished_index_of_several_folders_continues(folders, tmp_path, kit, monkeypatch):
    index = tmp_path / "x"
    sync(kit.FakeModel(), str(folders[0]), index)
    broken = kit.FakeModel()
    monkeypatch.setattr(broken, "encode_preprocessed", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sync(broken, [str(folder) for folder in folders[:2]], index)
    assert keys(index).keys() == {"Pictures/0.png", "Pictures/s/1.png", "Pictures/s/2.png"}
    assert sync(kit.FakeModel(), SourceRequest(), index).encoded == 3
