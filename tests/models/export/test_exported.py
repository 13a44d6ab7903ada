import pytest

from diptych.errors import RunError
from diptych.files import file_hash, write_json
from diptych.models.export.exported import GRAPHS, Exported, exported_files, new_folder

FILES = (*GRAPHS, "vocabulary.json")


@pytest.fixture
def folder(tmp_path):
    for name in FILES:
        (tmp_path / name).write_text(name)
    read = {"kind": "crops", "shape": [3, 32, 32], "crops": {"name": "10C"}}
    files = {name: file_hash(tmp_path / name) for name in FILES}
    card = {"format": 1, "version": "0.1.0", "run": "own", "identity": "a1", "image_input": read, "size": 4}
    write_json(tmp_path / "export.json", {**card, "files": files})
    return tmp_path


def test_a_card_says_what_the_towers_read(folder):
    card = Exported.read(folder)
    assert (card.size, card.image_input.shape, card.image_input.crops.count) == (4, (3, 32, 32), 10)
    assert not card.rescores
    assert card.unknown == ()


def test_the_tokeniser_is_the_one_in_the_folder(folder):
    assert exported_files(folder) == FILES
    (folder / "vocabulary.json").unlink()
    assert exported_files(folder) == FILES
    (folder / "tokeniser.json").touch()
    assert exported_files(folder) == (*GRAPHS, "tokeniser.json")
    with pytest.raises(RunError, match=r"vocabulary\.json: cannot be read"):  # which the card lists
        Exported.read(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_damaged_or_missing_is_named(folder, name):
    (folder / name).write_text("x")
    with pytest.raises(RunError, match=f"{name}: damaged, or of another export; export the run again"):
        Exported.read(folder)
    (folder / name).unlink()
    with pytest.raises(RunError, match=f"{name}: cannot be read .*; export the run again"):
        Exported.read(folder)


@pytest.mark.parametrize(
    ("card", "why"),
    [
        ("{", "not valid JSON"),
        ("[]", "format None; this version of Diptych reads format 1"),
        ('{"format": 2}', "format 2; this version of Diptych reads format 1"),
        ('{"format": 1, "version": "9"}', "key 'run' is missing; export the run again"),
    ],
    ids=["cut", "list", "newer", "incomplete"],
)
def test_a_foreign_card_is_refused_in_one_line(folder, card, why):
    (folder / "export.json").write_text(card)
    with pytest.raises(RunError, match=why) as refused:
        Exported.read(folder)
    assert "export.json" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_new_folder_is_there_whole_or_not_at_all(tmp_path):
    into = tmp_path / "deep" / "own"
    with pytest.raises(ZeroDivisionError), new_folder(into) as temporary:
        (temporary / "half").write_text("")
        raise ZeroDivisionError
    assert not list(into.parent.iterdir())
    into.mkdir()  # an empty one may be filled
    with new_folder(into) as temporary:
        (temporary / "whole").write_text("")
        assert not list(into.iterdir())
    assert [path.name for path in into.iterdir()] == ["whole"]
    with (
        pytest.raises(RunError, match="own: exists already; choose another folder, or remove it first"),
        new_folder(into),
    ):
        pass
    assert [path.name for path in into.parent.iterdir()] == ["own"]
