from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from diptych.data.corpus import Corpus
from diptych.data.formats import precomputed, scenes
from diptych.data.open import open_corpus
from diptych.errors import DataError

KARPATHY = {"images": [{"filename": "a.jpg", "split": "train", "sentences": [{"raw": "karpathy"}]}]}
COCO = {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "caption": "coco"}]}

PEDES = [{"id": 1, "file_path": "a.jpg", "split": "train", "captions": ["pedes"], "processed_tokens": [["pedes"]]}]


def written(file: Path, content: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / "a.jpg").touch()
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


def features(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        np.save(folder / f"{name}_ims.npy", np.ones((1, 2), np.float32))
        (folder / f"{name}_caps.txt").write_text(f"precomputed {name}\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("dataset_x.json", KARPATHY, "karpathy"),
        ("anything.json", KARPATHY, "karpathy"),
        ("captions_val.json", COCO, "coco"),
        ("anything.json", COCO, "coco"),
        ("reid_raw.json", PEDES, "pedes"),
        ("anything.json", PEDES, "pedes"),
        ("captions.csv", "image,text\na.jpg,csv\n", "csv"),
        ("anything.tsv", "image\ttext\na.jpg\ttsv\n", "tsv"),
        ("anything.JSONL", '{"image": "a.jpg", "text": "jsonl"}', "jsonl"),
        ("captions.txt", "a.jpg#0\tlines\n", "lines"),
        ("x.token", "a.jpg#0\tlines\n", "lines"),
    ],
)
def test_a_file_and_its_folder_are_the_same_corpus(tmp_path: Path, name: str, content: object, text: str) -> None:
    file = written(tmp_path / "data" / name, content)
    for address in (file, str(file), file.parent, str(file.parent)):
        assert list(open_corpus(address).texts) == [text]


def test_other_folders(tmp_path: Path) -> None:
    written(tmp_path / "pairs/a.txt", "beside")
    assert list(open_corpus(tmp_path / "pairs").texts) == ["beside"]
    written(tmp_path / "splits/val/a.txt", "in val")
    assert open_corpus(tmp_path / "splits").text_splits.tolist() == ["val"]
    written(tmp_path / "coco/annotations/captions_train.json", COCO)
    assert list(open_corpus(tmp_path / "coco").texts) == ["coco"]
    written(tmp_path / "pairs/settings.json", "{}")  # a stray file does not hide the captions
    assert list(open_corpus(tmp_path / "pairs").texts) == ["beside"]


def test_precomputed_features_and_their_testall(tmp_path: Path) -> None:
    folder = features(tmp_path / "f30k", "train", "test", "testall")
    assert list(open_corpus(folder).split("test").texts) == ["precomputed test"]
    assert list(open_corpus(f"{folder}#testall").split("test").texts) == ["precomputed testall"]
    with pytest.raises(DataError, match=r"no other_ims\.npy in it"):
        open_corpus(f"{folder}#other")


def entities(folder: Path) -> Path:
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "annotations.zip", "w") as archive:
        archive.writestr("Annotations/1.xml", "<a><size><width>9</width><height>9</height></size></a>")
        archive.writestr("Sentences/1.txt", "[/EN#0/notvisual entities]")
    (folder / "train.txt").write_text("1\n", encoding="utf-8")
    return folder


def test_entities_with_their_photos_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, photos = entities(tmp_path / "entities"), tmp_path / "elsewhere/photos"
    photos.mkdir(parents=True)
    assert "entities: no usable image in it; first problem: " in refused(folder)
    (photos / "1_x.jpg").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(photos.parent)
    for address in ("../entities#photos", f"{folder}#{photos}", "~/entities#~/elsewhere/photos"):
        monkeypatch.chdir(photos.parent)
        corpus = open_corpus(address)
        assert (list(corpus.texts), list(corpus.image_ids)) == (["entities"], ["1_x.jpg"])
        assert corpus.address is not None
        assert corpus.address.count("#") == 1
        assert all(Path(part).is_absolute() for part in corpus.address.split("#"))
        monkeypatch.chdir(tmp_path)
        assert open_corpus(corpus.address).digest() == corpus.digest()
    assert "gone: no such folder of images" in refused(f"{folder}#gone")
    assert "entities#: no such file or folder" in refused(f"{folder}#")


def test_a_data_set_beside_the_annotations_is_what_the_folder_is(tmp_path: Path) -> None:
    folder = entities(tmp_path / "entities")
    (folder / "1.jpg").touch()
    assert list(open_corpus(folder).texts) == ["entities"]
    written(folder / "dataset_x.json", KARPATHY)
    assert list(open_corpus(folder).texts) == ["karpathy"]
    corpus = open_corpus(folder / "annotations.zip")
    assert (list(corpus.texts), corpus.address) == (["entities"], str(folder / "annotations.zip"))


def test_scenes_are_drawn_with_the_settings_in_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = []
    corpus = open_corpus(written(tmp_path / "scenes/t.csv", "image,text\na.jpg,on disk\n"))

    def draw(**values: int) -> Corpus:
        settings.append(values)
        return corpus

    monkeypatch.setattr(scenes, "make_scenes", draw)
    monkeypatch.chdir(tmp_path)
    for address in ("scenes", "scenes:train=300,images=2"):
        drawn = open_corpus(address)
        assert (drawn.texts, drawn.address) == (corpus.texts, address)
    assert settings == [{}, {"train": 300, "images": 2}]
    for folder in ("./scenes", Path("scenes")):
        assert list(open_corpus(folder).texts) == ["on disk"]
    assert len(settings) == 2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("dataset_x.json", KARPATHY),
        ("captions_val.json", COCO),
        ("reid_raw.json", PEDES),
        ("t.csv", "image,text\na.jpg,csv\n"),
        ("lines.token", "a.jpg#0\tlines\n"),
    ],
)
def test_images_elsewhere_are_named_after_a_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: object
) -> None:
    file = written(tmp_path / "data" / name, content)
    (tmp_path / "photos").mkdir()
    (file.parent / "a.jpg").rename(tmp_path / "photos/a.jpg")
    assert "no usable image" in refused(file)
    monkeypatch.chdir(tmp_path)
    corpus = open_corpus(f"data/{name}#photos")
    assert corpus.address == f"{file}#{tmp_path}/photos"
    monkeypatch.chdir("/")
    assert open_corpus(corpus.address).digest() == corpus.digest()


def test_a_path_that_exists_is_not_cut_at_its_hash(tmp_path: Path) -> None:
    written(tmp_path / "data/t.csv", "image,text\na.jpg,short\n")
    written(tmp_path / "data#2/t.csv", "image,text\na.jpg,long\n")
    assert list(open_corpus(tmp_path / "data#2").texts) == ["long"]


def test_a_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    written(tmp_path / "t.csv", "image,text\na.jpg,at home\n")
    assert list(open_corpus("~/t.csv").texts) == ["at home"]


def test_a_corpus_remembers_its_address_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(tmp_path / "here/t.csv", "image,text\na.jpg,x\n")
    folder = features(tmp_path / "f30k", "train", "test", "testall")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "here")
    given = {"t.csv": table, Path("./t.csv"): table, "~/here/t.csv": table, "../f30k#testall": f"{folder}#testall"}
    found = {address: str(open_corpus(address).address) for address in given}
    monkeypatch.chdir(tmp_path)
    for address, wanted in given.items():
        assert Path(found[address]).is_absolute()
        assert open_corpus(found[address]).digest() == open_corpus(wanted).digest()
    assert open_corpus(table).split("test").address == str(table)


def refused(address: str | Path) -> str:
    with pytest.raises(DataError) as caught:
        open_corpus(address)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_path_suggests_a_similar_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "flickr8k/t.csv", "image,text\na.jpg,x\n")
    message = refused(tmp_path / "flicker8k")
    assert message == f"{tmp_path / 'flicker8k'}: no such file or folder; did you mean {tmp_path / 'flickr8k'}?"
    assert f"did you mean {tmp_path / 'flickr8k'}?" in refused(tmp_path / "flikr8k/sub/t.csv")
    assert "did you mean" not in refused(tmp_path / "zzz")
    monkeypatch.chdir(tmp_path)
    assert "did you mean flickr8k?" in refused("flickr-8k")
    assert "did you mean scenes?" in refused("scene")
    assert refused("").startswith("an empty address; known formats: scenes")
    for nothing in ("\0", "a" * 5000, "~nobody-of-this-name/data"):
        refused(nothing)


def test_an_unrecognised_path_lists_the_known_formats(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty: nothing in it is recognised; known formats: scenes" in refused(tmp_path / "empty")
    assert "x.docx: not recognised; known formats: scenes" in refused(written(tmp_path / "x.docx", "x"))
    assert "x.json: not recognised; known formats: scenes" in refused(written(tmp_path / "x.json", {"a": 1}))
    assert "cut.json:1: not valid JSON" in refused(written(tmp_path / "cut.json", '{"a": '))


def test_several_data_sets_in_a_folder(tmp_path: Path) -> None:
    written(tmp_path / "dataset_a.json", KARPATHY)
    written(tmp_path / "dataset_b.json", KARPATHY)
    assert "several data sets (dataset_a.json, dataset_b.json); name the one to read" in refused(tmp_path)


def test_a_folder_that_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(precomputed, "recognises", denied)
    assert refused(tmp_path) == f"{tmp_path}: cannot be read (Permission denied)"


@pytest.mark.parametrize(
    ("files", "address", "origin"),
    [
        ({"t.csv": "image,text\na.jpg,x\n"}, "t.csv", "default"),
        ({"t.csv": "image,text,split\na.jpg,x,train\n"}, "t.csv", "source"),
        ({"a.txt": "x\n"}, ".", "default"),
        ({"train/a.txt": "x\n", "train/a.jpg": ""}, ".", "source"),
        ({"captions.txt": "a.jpg#0\tx\n"}, "captions.txt", "default"),
        ({"captions.txt": "train/a.jpg#0\tx\n", "train/a.jpg": ""}, "captions.txt", "source"),
        ({"mine.json": COCO}, "mine.json", "default"),
        ({"captions_train2014.json": COCO}, "captions_train2014.json", "source"),
    ],
)
def test_it_is_known_whether_the_data_has_splits(tmp_path, files, address, origin):
    for name, content in {"a.jpg": "", **files}.items():
        written(tmp_path / name, content)
    corpus = open_corpus(tmp_path / address)
    assert (corpus.split_origin, len(corpus.image_ids)) == (origin, 1)
