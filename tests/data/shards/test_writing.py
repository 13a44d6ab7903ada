import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.data.shards import writing
from diptych.data.shards.writing import write_shards
from diptych.errors import DataError

SCENES = "scenes:train=25,val=8,test=7,texts=3"


def pairs_of(corpus, split):
    """The texts of each image of a split, by the image's id."""
    part = corpus.split(split)
    texts = {}
    for text, group in zip(part.texts, part.text_groups.tolist(), strict=True):
        texts.setdefault(group, []).append(text)
    return {
        name: (sorted(texts[group]), np.asarray(picture.load()).tobytes())
        for name, group, picture in zip(part.image_ids, part.image_groups.tolist(), part.pictures, strict=True)
    }


def test_splits_texts_and_pixels_are_kept(tmp_path):
    corpus = open_corpus(SCENES)
    written = write_shards(corpus, tmp_path, 10)
    assert [shard.file for shard in written.shards] == [
        *(f"train-00000{n}.tar" for n in range(3)),
        "val-000000.tar",
        "test-000000.tar",
    ]
    assert (written.reused, written.skipped) == (0, ())
    shards = open_corpus(tmp_path)
    assert shards.split_sizes() == corpus.split_sizes()
    for split in ("val", "test"):
        assert pairs_of(shards, split) == pairs_of(corpus, split)
    assert sorted(shards.stream(["train"]).texts()) == sorted(corpus.split("train").texts)
    assert {path.name for path in tmp_path.iterdir()} == {*(s.file for s in written.shards), "index.json", ".lock"}


def test_the_same_corpus_gives_the_same_bytes(tmp_path):
    corpus = open_corpus(SCENES)
    first, second = write_shards(corpus, tmp_path / "a", 10), write_shards(corpus, tmp_path / "b", 10, workers=0)
    assert [shard.sha256 for shard in first.shards] == [shard.sha256 for shard in second.shards]
    assert (tmp_path / "a/index.json").read_bytes() == (tmp_path / "b/index.json").read_bytes()
    assert write_shards(corpus, tmp_path / "a", 10).reused == 5


def test_image_files_are_copied_as_they_are(tmp_path):
    for name in ("a.jpg", "b.PNG"):
        Image.new("RGB", (9, 7), (200, 3, 4)).save(tmp_path / name)
    corpus = Corpus.from_pairs(["a.jpg", "b.PNG"], ["one", "two  words"], "val", folder=tmp_path)
    write_shards(corpus, tmp_path / "s")
    content = (tmp_path / "s/val-000000.tar").read_bytes()
    assert all((tmp_path / name).read_bytes() in content for name in ("a.jpg", "b.PNG"))
    assert sorted(open_corpus(tmp_path / "s").texts) == ["one", "two words"]


@pytest.mark.parametrize(("images", "texts"), [(3, 7), (4, 2), (2, 2)])
def test_the_texts_of_a_group_are_dealt_out_among_its_images(tmp_path, images, texts):
    pictures = [Image.new("RGB", (8, 8), (n, 0, 0)) for n in range(images + 1)]
    own = [f"text {n}" for n in range(texts)]
    captions = [*((own[image::images] or [own[image % texts]]) for image in range(images)), ["alone"]]
    groups = ["person"] * images + ["other"]
    corpus = Corpus.from_pairs(pictures, captions, "train", groups=groups)
    write_shards(corpus, tmp_path)
    items = list(open_corpus(tmp_path).stream(["train"]).items((0,), 0, 8))
    person = [item for item in items if item.text != "alone"]
    assert len(person) == images
    assert len({item.group for item in person}) == 1 != len({item.group for item in items})
    expected = sorted(set(corpus.texts) - {"alone"})
    assert sorted(set(open_corpus(tmp_path).stream(["train"]).texts()) - {"alone"}) == expected


def test_groups_of_different_corpora_stay_apart(tmp_path):
    for number, name in enumerate("ab"):
        pictures = [Image.new("RGB", (8, 8), (n, number, 0)) for n in range(2)]
        corpus = Corpus.from_pairs(pictures, [[f"{name} 1"], [f"{name} 2"]], "val", groups=["person"] * 2)
        write_shards(corpus, tmp_path / name)
    assert np.unique(open_corpus(f"{tmp_path}/{{a,b}}/*.tar").image_groups, return_counts=True)[1].tolist() == [2, 2]


def test_images_that_cannot_be_read_are_left_out_and_named(tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        Image.new("RGB", (9, 7)).save(tmp_path / name)
    corpus = Corpus.from_pairs(["a.png", "b.png", "c.png"], ["1", "2", "3"], "train", folder=tmp_path)
    (tmp_path / "a.png").unlink()
    (tmp_path / "b.png").write_bytes(b"")
    for _ in range(2):  # the second call reads the index
        written = write_shards(corpus, tmp_path / "s")
        assert len(written.skipped) == 2
        assert any("a.png: cannot be read (No such file" in reason for reason in written.skipped)
        assert any("b.png: an empty file" in reason for reason in written.skipped)
    assert list(open_corpus(tmp_path / "s").stream(["train"]).texts()) == ["3"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_shard_that_was_lost_or_cut_short_is_written_again(tmp_path, number):
    for name in ("a.png", "b.png", "c.png"):
        Image.new("RGB", (9, 7)).save(tmp_path / name)
    (tmp_path / "a.png").write_bytes(b"")
    corpus = Corpus.from_pairs(["a.png", "b.png", "c.png"], ["1", "2", "3"], "train", folder=tmp_path)
    before = write_shards(corpus, tmp_path / "s", 2)
    assert (len(before.skipped), len(before.shards)) == (1, 2)
    damaged = tmp_path / f"s/train-00000{number}.tar"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:600])
    after = write_shards(corpus, tmp_path / "s", 2)
    assert (after.shards, after.skipped, after.reused) == (before.shards, before.skipped, 1)
    assert damaged.read_bytes() == content


def test_what_cannot_be_written_is_refused(tmp_path):
    corpus = open_corpus(SCENES)
    write_shards(corpus, tmp_path / "s", 10)
    with pytest.raises(DataError, match="holds shards of other data, or of another size"):
        write_shards(corpus, tmp_path / "s", 20)
    with pytest.raises(DataError, match="holds shards of other data"):
        write_shards(open_corpus("scenes:train=4,val=2,test=2"), tmp_path / "s", 10)
    with pytest.raises(DataError, match="consists of shards already"):
        write_shards(open_corpus(tmp_path / "s"), tmp_path / "t")
    features = Corpus.from_pairs(None, ["a", "b"], "train", features=np.ones((2, 4), np.float32))
    with pytest.raises(DataError, match="no pictures"):
        write_shards(features, tmp_path / "t")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="is a file"):
        write_shards(corpus, tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/index.json").write_text("{}")
    with pytest.raises(DataError, match="not the index of shards"):
        write_shards(corpus, tmp_path / "other")
    (tmp_path / "tars").mkdir()
    (tmp_path / "tars/x.tar").touch()
    with pytest.raises(DataError, match="other data"):
        write_shards(corpus, tmp_path / "tars")


def test_a_call_that_was_interrupted_goes_on(tmp_path, monkeypatch):
    corpus = open_corpus(SCENES)
    expected = write_shards(corpus, tmp_path / "a", 10)

    def interrupt(done, total):
        assert total == 40
        if done >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(corpus, tmp_path / "b", 10, progress=interrupt)
    with (tmp_path / "b/.finished.jsonl").open("a") as lines:
        lines.write('{"name": "train-000002.tar", "spl')  # as a full disk may leave it
    written = write_shards(corpus, tmp_path / "b", 10)
    assert written.reused == 2
    assert [shard.sha256 for shard in written.shards] == [shard.sha256 for shard in expected.shards]
    assert (tmp_path / "b/index.json").read_bytes() == (tmp_path / "a/index.json").read_bytes()
    (tmp_path / "b/val-000000.tar").unlink()
    assert write_shards(corpus, tmp_path / "b", 10).reused == 4
    assert (tmp_path / "b/val-000000.tar").read_bytes() == (tmp_path / "a/val-000000.tar").read_bytes()


def test_a_killed_process_leaves_complete_shards(tmp_path):
    code = (
        "import sys; from pathlib import Path; from diptych.data.open import open_corpus\n"
        "from diptych.data.shards.writing import write_shards\n"
        "write_shards(open_corpus('scenes:train=4000,val=8,test=7'), Path(sys.argv[1]), 20, workers=0)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=os.environ)
    try:
        while not list(tmp_path.glob("train-*.tar")):
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    finished = [json.loads(line) for line in (tmp_path / writing._FINISHED).read_text().splitlines()[1:] if line]
    assert not (tmp_path / "index.json").exists()
    complete = list(tmp_path.glob("train-*.tar"))
    assert 1 <= len(complete) <= len(finished) + 1
    corpus = open_corpus(f"{tmp_path}/train-*.tar")
    assert not corpus.problems
    assert corpus.split_sizes() == {"train": 20 * len(complete)}
