from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.formats import captions
from diptych.data.formats.folder import read, recognises
from diptych.data.images import PictureFile
from diptych.data.parsing import hashed_split
from diptych.errors import DataError


def folder_with(folder: Path, *images: str, **texts: str | bytes) -> Path:
    """Empty image files, and text files named by keyword (`__` for a slash)."""
    for name in images:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    for key, content in texts.items():
        write(folder / (key.replace("__", "/") + ".txt"), content)
    return folder


def write(file: Path, content: str | bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def texts_of(corpus: Corpus) -> dict[str, list[str]]:
    return {
        name: [text for text, other in zip(corpus.texts, corpus.text_groups, strict=True) if other == group]
        for name, group in zip(corpus.image_ids, corpus.image_groups, strict=True)
    }


def problems(corpus: Corpus, folder: Path) -> list[tuple[str, int | None, str]]:
    return [(str(Path(p.file).relative_to(folder)), p.row, p.message) for p in corpus.problems]


def test_text_files_beside_images(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", "b.PNG", "sub/c.webp", a="one\n\n  two \n", b="\ufeffthree", sub__c="four\r\nfive")
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {"a.jpg": ["one", "two"], "b.PNG": ["three"], "sub/c.webp": ["four", "five"]}
    assert corpus.pictures == tuple(PictureFile(tmp_path / name) for name in corpus.image_ids)
    assert corpus.image_splits.tolist() == [hashed_split(name) for name in ("a", "b", "sub/c")]
    assert (corpus.name, corpus.problems) == (tmp_path.name, ())


def test_images_that_differ_in_the_ending_share_their_texts(tmp_path: Path) -> None:
    corpus = read(Address(folder_with(tmp_path, "a.jpg", "a.png", "b.jpg", a="one\ntwo", b="three")))
    assert texts_of(corpus) == {"a.jpg": ["one", "two"], "a.png": ["one", "two"], "b.jpg": ["three"]}
    assert len(corpus.texts) == 3


def test_folders_named_like_splits_are_splits(tmp_path: Path) -> None:
    folder_with(tmp_path, "train/a.jpg", "Valid/a.jpg", "test/x/b.jpg", "train/c.jpg")
    folder_with(tmp_path, train__a="in train", Valid__a="in val", test__x__b="in test", train__c="c")
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {
        "train/a.jpg": ["in train"],
        "train/c.jpg": ["c"],
        "Valid/a.jpg": ["in val"],
        "test/x/b.jpg": ["in test"],
    }
    assert corpus.image_splits.tolist() == ["train", "train", "val", "test"]
    assert corpus.text_splits.tolist() == ["train", "train", "val", "test"]


def test_images_beside_split_folders_are_noted(tmp_path: Path) -> None:
    corpus = read(Address(folder_with(tmp_path, "stray.jpg", "train/a.jpg", stray="lost", train__a="a")))
    assert texts_of(corpus) == {"train/a.jpg": ["a"]}
    assert problems(corpus, tmp_path) == [(".", None, "1 images beside the folders train are left out")]


@pytest.mark.parametrize("name", ["captions.csv", "metadata.csv", "Captions.CSV", "captions.txt", "products.csv"])
def test_one_table_for_the_folder(tmp_path: Path, name: str) -> None:
    folder_with(tmp_path, "a.jpg", "images/b.jpg", "thumbs/a.jpg")
    write(tmp_path / name, 'file_name,text,split\na.jpg,"one, two",train\nb.jpg,three,val\na.jpg,four,train\n')
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {"a.jpg": ["one, two", "four"], "b.jpg": ["three"]}
    assert corpus.image_splits.tolist() == ["train", "val"]


def test_a_table_in_each_split_folder(tmp_path: Path) -> None:
    folder_with(tmp_path, "train/a.jpg", "test/a.jpg")
    for split in ("train", "test"):
        write(tmp_path / split / "metadata.jsonl", json.dumps({"file_name": "a.jpg", "text": f"in {split}"}))
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {"train/a.jpg": ["in train"], "test/a.jpg": ["in test"]}
    assert corpus.image_splits.tolist() == ["train", "test"]


def test_numbered_captions_in_each_split_folder(tmp_path: Path) -> None:
    folder_with(tmp_path, "train/a.jpg", "test/a.jpg")
    for split in ("train", "test"):
        write(tmp_path / split / "captions.txt", f"a.jpg#0\tin {split}\n")
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {"train/a.jpg": ["in train"], "test/a.jpg": ["in test"]}
    assert corpus.text_splits.tolist() == ["train", "test"]
    assert corpus.problems == ()


def test_one_table_above_split_folders(tmp_path: Path) -> None:
    folder_with(tmp_path, "train/a.jpg", "val/a.jpg", "more/b.jpg")
    write(tmp_path / "captions.csv", "image,text\ntrain/a.jpg,one\nval/a.jpg,two\nmore/b.jpg,three\n")
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {"train/a.jpg": ["one"], "val/a.jpg": ["two"], "more/b.jpg": ["three"]}
    assert corpus.image_splits.tolist() == ["train", "val", hashed_split("more/b.jpg")]


@pytest.mark.parametrize("name", ["captions.txt", "Flickr8k.token.txt", "results.token"])
def test_numbered_captions(tmp_path: Path, name: str) -> None:
    folder_with(tmp_path, "photos/a.jpg", "photos/b.jpg", "photos/c#1.jpg")
    lines = ["a.jpg#0\tone", "a.jpg#1\tone", "b.jpg#0\tthree\tfour", "", "c#1.jpg\tfive"]
    write(tmp_path / name, "\r\n".join(lines))
    for corpus in (
        read(Address(tmp_path)),
        captions.read(Address(tmp_path / name)),
        captions.read(Address(tmp_path / name, str(tmp_path))),
    ):
        assert texts_of(corpus) == {"a.jpg": ["one", "one"], "b.jpg": ["three four"], "c#1.jpg": ["five"]}
        assert corpus.image_splits.tolist() == [hashed_split(name) for name in corpus.image_ids]
        assert corpus.problems == ()


def test_images_are_not_guessed_where_two_folders_could_hold_them(tmp_path: Path) -> None:
    folder_with(tmp_path, "one/a.jpg", "two/a.jpg", captions="a.jpg\ta dog")
    with pytest.raises(DataError, match=r"captions\.txt:1: no image 'a\.jpg'"):
        read(Address(tmp_path))


def test_broken_numbered_captions_leave_their_neighbours_alone(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", "b.jpg")
    lines = [
        "a.jpg#0\tone",
        "a.jpg#1\t ",
        "gone.jpg#0\ttwo",
        "b.jpg#0 no tab",
        "\tno name",
        "a.jpg#0\tagain",
        "b.jpg#1\tlast",
    ]
    write(tmp_path / "captions.txt", "\n".join(lines).encode() + b"\nb.jpg#2\t\xff\n")
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {"a.jpg": ["one"], "b.jpg": ["last"]}
    assert problems(corpus, tmp_path) == [
        ("captions.txt", 2, "the text is empty"),
        ("captions.txt", 3, f"no image 'gone.jpg' in {tmp_path}"),
        ("captions.txt", 4, "no tab between the image's name and the caption"),
        ("captions.txt", 5, "the image is empty"),
        ("captions.txt", 6, f"caption 'a.jpg#0' is already at {tmp_path / 'captions.txt'}:1"),
        ("captions.txt", 8, "the text is not valid UTF-8; write it in UTF-8"),
    ]


def test_broken_text_files_leave_their_neighbours_alone(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg", ".hidden.jpg", ".cache/e.jpg")
    folder_with(tmp_path, a="one\n", b=" \n\n", c=b"fine\n\xff\xfe\nfine, too\n", readme="nothing to see")
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {"a.jpg": ["one"], "b.jpg": [], "c.jpg": ["fine", "fine, too"], "d.jpg": []}
    assert problems(corpus, tmp_path) == [
        ("b.txt", None, "no text in it"),
        ("c.txt", 2, "the text is not valid UTF-8; write it in UTF-8"),
        ("readme.txt", None, "no image of this name beside it"),
    ]


def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", a="one")
    strange = tmp_path / os.fsdecode(b"\xff.jpg")
    try:
        strange.touch()
    except OSError:
        pytest.skip("this file system has Unicode names only")
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {"a.jpg": ["one"]}
    assert problems(corpus, tmp_path) == [("\\udcff.jpg", None, "the name is not valid UTF-8; write it in UTF-8")]


def test_several_caption_files(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg")
    write(tmp_path / "captions.csv", "image,text\na.jpg,one\n")
    write(tmp_path / "metadata.jsonl", "{}")
    with pytest.raises(DataError, match=r"could hold the captions \(captions\.csv, metadata\.jsonl\); name the one"):
        read(Address(tmp_path))


def test_images_without_any_text_name_the_remedy(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg")
    assert recognises(Address(tmp_path))
    with pytest.raises(DataError, match=r"no usable text in it; put the texts of dog\.jpg in dog\.txt"):
        read(Address(tmp_path))


def test_a_folder_with_captions_or_images_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    folder_with(tmp_path / "texts", notes="no images here")
    folder_with(tmp_path / "deep", "sub/sub/a.gif")
    write(tmp_path / "table/x.csv", "image,text\n")
    assert [recognises(Address(tmp_path / name)) for name in ("empty", "texts", "deep", "table")] == [
        False,
        False,
        True,
        True,
    ]


def test_a_folder_of_images_takes_no_other_folder_of_images(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", a="a dog")
    with pytest.raises(DataError, match="name it without #elsewhere"):
        read(Address(tmp_path, "elsewhere"))
