from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.data.address import Address
from diptych.data.check import check
from diptych.data.corpus import Corpus
from diptych.data.formats.pedes import read
from diptych.data.images import PictureFile
from diptych.data.open import open_corpus
from diptych.errors import DataError


def entry(name: Any, identity: Any, split: Any = "train", captions: Any = ("a man",), **more: Any) -> dict[str, Any]:
    tokens = [str(caption).split() for caption in captions] if isinstance(captions, tuple) else []
    captions = list(captions) if isinstance(captions, tuple) else captions
    return {
        "split": split,
        "captions": captions,
        "file_path": name,
        "processed_tokens": tokens,
        "id": identity,
        **more,
    }


def people(folder: Path, *entries: Any, images: tuple[str, ...] = (), name: str = "reid_raw.json") -> Path:
    """A file of entries, and a little drawn picture for each name, no two alike."""
    for number, image in enumerate(images):
        (folder / image).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 8), (20 * number, 0, 9)).save(folder / image)
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(entries), encoding="utf-8")
    return folder / name


def persons(corpus: Corpus) -> list[tuple[list[str], list[str], set[str]]]:
    """Of each group the images, the texts and the splits."""
    found = []
    for group in dict.fromkeys([*corpus.image_groups.tolist(), *corpus.text_groups.tolist()]):
        images, texts = corpus.image_groups == group, corpus.text_groups == group
        names = [name for name, here in zip(corpus.image_ids, images, strict=True) if here]
        captions = [text for text, inside in zip(corpus.texts, texts, strict=True) if inside]
        found.append((names, captions, {*corpus.image_splits[images].tolist(), *corpus.text_splits[texts].tolist()}))
    return found


def test_a_person_is_a_group_of_all_photos_and_all_descriptions(tmp_path: Path) -> None:
    file = people(
        tmp_path / "cuhk",
        entry("CUHK01/1.png", 7, "train", ("A man  in blue. \n", "He walks.")),
        entry("Market/2.png", 8, "val", ("a woman",)),
        entry("Market/3.png", 7, "train", ("a tall man", "He walks.")),
        entry("4.png", "7", "test", ("somebody else",)),
        images=("imgs/CUHK01/1.png", "imgs/Market/2.png", "imgs/Market/3.png", "imgs/4.png"),
    )
    corpus = read(Address(file))
    assert persons(corpus) == [
        (["CUHK01/1.png", "Market/3.png"], ["A man in blue.", "He walks.", "a tall man", "He walks."], {"train"}),
        (["Market/2.png"], ["a woman"], {"val"}),
        (["4.png"], ["somebody else"], {"test"}),
    ]
    assert corpus.pictures is not None
    assert corpus.pictures[2] == PictureFile(tmp_path / "cuhk/imgs/Market/3.png")
    assert corpus.pictures[2].load().size == (4, 8)
    assert (corpus.name, corpus.problems) == ("cuhk", ())


def test_the_folder_and_the_file_under_any_name_are_addresses(tmp_path: Path) -> None:
    # a word of a description may be the key of another format
    entries = (
        entry("a.png", 1, captions=("sentences", "annotations"), processed_tokens=[["sentences"], ["annotations"]]),
    )
    file = people(tmp_path / "cuhk", *entries, images=("imgs/a.png",))
    (file.parent / "more.json").write_text("{}", encoding="utf-8")  # which does not hide it
    other = people(tmp_path / "own", *entries, images=("a.png",), name="people.json")
    other.write_bytes(b"\xef\xbb\xbf \n" + other.read_bytes())
    for address in (file, file.parent, other, other.parent):
        assert list(open_corpus(address).texts) == ["sentences", "annotations"]
    assert (open_corpus(file.parent).name, open_corpus(other).name) == ("cuhk", "people")
    with pytest.raises(DataError, match=r"x\.json: not recognised; .*CUHK-PEDES"):
        open_corpus(people(tmp_path / "x", {"id": 3}, name="x.json"))


def test_photos_elsewhere(tmp_path: Path) -> None:
    file = people(tmp_path / "cuhk", entry("s/a.png", 1), images=("../photos/s/a.png",))
    assert read(Address(file, str(tmp_path / "photos"))).pictures == (PictureFile(tmp_path / "photos/s/a.png"),)
    with pytest.raises(DataError, match="no such folder of images"):
        read(Address(file, str(tmp_path / "gone")))


def test_broken_rows_are_named_and_left_out_and_no_neighbour_moves(tmp_path: Path) -> None:
    without = {key: [{k: v for k, v in entry("c.png", 3).items() if k != key}] for key in entry("c.png", 3)}
    rows: list[tuple[Any, str | None]] = [
        (entry("a.png", 1, captions=("first",)), None),
        (entry("gone.png", 1, captions=("missing",)), f"no image 'gone.png' in {tmp_path / 'imgs'} or {tmp_path}"),
        ("nonsense", "a str, not a JSON object"),
        (*without["id"], "no id"),
        (*without["file_path"], "no file_path"),
        (*without["split"], "no split"),
        (*without["captions"], "no list 'captions'"),
        (entry("c.png", 3, captions="one string"), "no list 'captions'"),
        (entry("c.png", True), "the id is of type bool, not a string"),
        (entry("c.png", 2.5), "the id is of type float, not a string"),
        (entry(["c.png"], 3), "the file_path is of type list, not a string"),
        (entry("c.png", 3, "trian"), "unknown split 'trian'; did you mean 'train'?"),
        (entry("c.png", 3, 4), "the split is of type int, not a string"),
        (entry("b.png", 2, "test", ("kept", " ", None, 7, "kept too")), "caption 2: the text is empty"),
        (entry("a.png", 9, "test"), f"image 'a.png' is already at {tmp_path / 'reid_raw.json'}:1"),
        (entry("./a.png", 1), f"image 'a.png' is already at {tmp_path / 'reid_raw.json'}:1"),
        (entry("c.png", 1, "test"), "id 1 is in test, and in train at row 1; a person belongs to one split"),
        (entry("d.png", 1, captions=("last",)), None),
    ]
    images = ("imgs/a.png", "imgs/b.png", "imgs/c.png", "imgs/d.png")
    corpus = read(Address(people(tmp_path, *(row for row, _ in rows), images=images)))
    assert persons(corpus) == [
        (["a.png", "d.png"], ["first", "last"], {"train"}),
        (["b.png"], ["kept", "kept too"], {"test"}),
    ]
    assert {problem.file for problem in corpus.problems} == {str(tmp_path / "reid_raw.json")}
    expected = [(row, message) for row, (_, message) in enumerate(rows, 1) if message]
    more = [(14, "caption 3: no text"), (14, "caption 4: the text is of type int, not a string")]
    assert sorted((problem.row, problem.message) for problem in corpus.problems) == sorted(expected + more)


@pytest.mark.parametrize(
    "name", ["../secret.png", "s/../../secret.png", "..\\secret.png", "C:\\secret.png", "/etc/x.png"]
)
def test_a_path_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    rows = entry("a.png", 1), entry(name, 1, captions=("out",)), entry("s/../b.png", 1, captions=("in",))
    file = people(tmp_path / "cuhk", *rows, images=("imgs/a.png", "imgs/b.png", "imgs/s/c.png", "secret.png"))
    corpus = read(Address(file))
    assert (list(corpus.texts), list(corpus.image_ids)) == (["a man", "in"], ["a.png", "b.png"])
    assert [(problem.row, problem.message) for problem in corpus.problems] == [
        (2, f"the file_path {name!r} leads out of the folder of photos; make it relative to it")
    ]


def test_a_refused_row_does_not_decide_the_split_of_its_person(tmp_path: Path) -> None:
    rows = entry("gone.png", 1, "train"), entry("a.png", 1, "test")
    corpus = read(Address(people(tmp_path, *rows, images=("imgs/a.png",))))
    assert corpus.image_splits.tolist() == ["test"]


def test_a_photo_without_a_description_has_those_of_its_person(tmp_path: Path) -> None:
    rows = entry("a.png", 1, captions=("a man",)), entry("b.png", 1, captions=()), entry("c.png", 2, captions=())
    file = people(tmp_path, *rows, images=("imgs/a.png", "imgs/b.png", "imgs/c.png"))
    corpus = read(Address(file))
    assert persons(corpus) == [(["a.png", "b.png"], ["a man"], {"train"}), (["c.png"], [], {"train"})]
    assert list(corpus.matched().image_ids) == ["a.png", "b.png"]
    report = check(corpus)
    assert (report.images_without_texts, report.texts_without_images) == (("c.png",), ())
    assert (report.total.groups, report.texts_per_image.maximum) == (2, 1)


def test_data_check_names_what_is_wrong_and_exits_with_1(tmp_path: Path) -> None:
    rows = entry("a.png", 1), entry("b.png", 2, "test", ()), entry("gone.png", 3, "val")
    file = people(tmp_path / "cuhk", *rows, images=("imgs/a.png", "imgs/b.png"))
    result = CliRunner().invoke(app, ["data", "check", str(file.parent)])
    assert result.exit_code == 1
    assert "image without a text: 1\n  b.png\n" in result.stdout
    assert f"problem: 1\n  {file}:3: no image 'gone.png' in " in result.stdout
    good = people(tmp_path / "good", entry("a.png", 1), images=("imgs/a.png",))
    assert CliRunner().invoke(app, ["data", "check", str(good)]).exit_code == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not valid JSON"),
        ('[{"file_path": ', "not valid JSON"),
        ("{}", "not a list"),
        ("[]", "no usable image in it"),
        ('[{"file_path": "a.jpg", "captions": []}]', r"no usable image in it; first problem: .*\.json:1: no id"),
    ],
)
def test_files_that_are_broken_as_a_whole(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "people.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=reason) as caught:
        read(Address(file))
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)
