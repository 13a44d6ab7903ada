import fsspec
import numpy as np
import pytest

from diptych.data.address import Address
from diptych.data.open import open_corpus
from diptych.data.parsing import hashed_split
from diptych.data.shards.index import read_index, write_index
from diptych.data.shards.opening import ShardAddress, open_shards, split_of_name
from diptych.data.shards.samples import RefusedError
from diptych.errors import DataError, ImageError
from support.shards import sample, write_shard, write_tar


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("s/cc3m-train-0001.tar", "train"),
        ("s/Validation_3.tar", "val"),
        ("test/0001.tar", "test"),
        ("test_x/0001.tar", None),
        ("s/0001.tar", None),
        ("s/train-val.tar", None),
        ("s/constrained.tar", None),
    ],
)
def test_the_name_of_a_shard_says_its_split(name, split):
    assert split_of_name(name) == split


def test_addresses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parsed = ShardAddress.parse(Address.parse("x/{0..9}.tar#val=x/9.tar"))
    assert str(parsed) == f"{tmp_path}/x/{{0..9}}.tar#val={tmp_path}/x/9.tar"
    assert parsed.name == "x"
    assert ShardAddress.parse(Address.parse("s3://bucket/x/*.tar")).pattern == "s3://bucket/x/*.tar"
    assert ShardAddress.parse(Address.parse("x/one.tar")).name == "one.tar"
    with pytest.raises(DataError, match="shards have val=PATTERN"):
        ShardAddress.parse(Address.parse("x/*.tar#photos"))


def make(folder):
    write_shard(folder / "train-0.tar", 6)
    write_shard(folder / "train-1.tar", 4, 6)
    write_shard(folder / "val-0.tar", 3, 10)
    return folder


def test_shards_without_an_index_are_counted(tmp_path):
    corpus = open_corpus(f"{make(tmp_path)}/*.tar")
    assert corpus.split_sizes() == {"train": 10, "val": 3}
    assert corpus.address == f"{tmp_path}/*.tar"
    assert corpus.texts == ["photo 10", "photo 11", "photo 12"]
    assert np.asarray(corpus.pictures[1].load())[0, 0].tolist() == [11, 90, 160]
    assert open_corpus(corpus.address).digest() == corpus.digest()
    progress = []
    open_shards(Address.parse(corpus.address), lambda done, total: progress.append((done, total)))
    assert progress == [(1, 3), (2, 3), (3, 3)]


def test_an_index_is_believed_and_train_is_not_read(tmp_path):
    counted = open_corpus(f"{make(tmp_path)}/*.tar")
    write_index(tmp_path, counted.shards, {})
    for name in ("train-0.tar", "train-1.tar"):
        size = (tmp_path / name).stat().st_size
        (tmp_path / name).write_bytes(b"x" * size)
    for address in (tmp_path, tmp_path / "index.json", f"{tmp_path}/*.tar"):
        corpus = open_corpus(str(address))
        assert corpus.split_sizes() == {"train": 10, "val": 3}
        assert not corpus.problems
        assert corpus.digest() == counted.digest()
    assert open_corpus(f"{tmp_path}/train-{{0..1}}.tar").split_sizes() == {"train": 10}


def test_the_val_shards_of_a_folder_can_be_named(tmp_path):
    write_index(tmp_path, open_corpus(f"{make(tmp_path)}/*.tar").shards, {})
    corpus = open_corpus(f"{tmp_path}/#val={tmp_path}/train-1.tar")
    assert corpus.split_sizes() == {"train": 6, "val": 7}


def test_shards_that_are_missing_or_cut_short_are_problems(tmp_path):
    folder = make(tmp_path)
    corpus = open_corpus(f"{folder}/{{train-0,train-1,train-2,val-0}}.tar")
    write_index(folder, [shard for shard in corpus.shards if shard.samples], {})
    assert [str(problem) for problem in corpus.problems] == [f"{folder}/train-2.tar: missing; it is left out"]
    content = (folder / "train-0.tar").read_bytes()
    (folder / "train-0.tar").write_bytes(content[:5000])
    (folder / "train-1.tar").unlink()
    indexed = open_corpus(folder)
    assert [str(problem) for problem in indexed.problems] == [
        f"{folder}/train-0.tar: has 5,000 bytes, and index.json says {len(content):,}; what can be read of it is used",
        f"{folder}/train-1.tar: missing; its 4 samples are left out",
    ]
    assert indexed.split_sizes() == {"train": 10, "val": 3}  # so that a training goes on with the order it has
    (folder / "index.json").unlink()
    counted = open_corpus(f"{folder}/*.tar")
    assert counted.split_sizes() == {"train": 2, "val": 3}
    assert "cut short (the mark at its end is missing); the 2 samples before that are used" in str(counted.problems[0])


def test_problems_of_samples_are_named_and_bounded(tmp_path, monkeypatch):
    write_tar(tmp_path / "train-0.tar", [*sample("a", "t"), *((f"{n:02d}.txt", b"no image") for n in range(9))])
    assert [str(one) for one in open_corpus(f"{tmp_path}/*.tar").problems][:1] == [
        f"{tmp_path}/train-0.tar:00: no image"
    ]
    monkeypatch.setattr("diptych.data.shards.opening.MAX_PROBLEMS", 2)
    assert [str(one) for one in open_corpus(f"{tmp_path}/*.tar").problems][2:] == [
        "the shards: 7 more problems of samples"
    ]


def test_pickles_are_refused_and_so_is_nothing(tmp_path):
    write_tar(tmp_path / "a.tar", [*sample("1", "t"), ("1.pyd", b"x")])
    with pytest.raises(RefusedError, match=r"a.tar: '1.pyd' is a pickle"):
        open_corpus(f"{tmp_path}/a.tar")
    write_tar(tmp_path / "b.tar", [])
    with pytest.raises(DataError, match="no usable sample in it; first problem: the shards are empty"):
        open_corpus(f"{tmp_path}/b.tar")
    with pytest.raises(DataError, match=r"first problem: .*c.tar: missing"):
        open_corpus(f"{tmp_path}/c.tar")
    (tmp_path / "d.tar").write_bytes(b"\x1f\x8b" + bytes(range(200)) * 10)
    with pytest.raises(DataError, match="gunzip"):
        open_corpus(f"{tmp_path}/d.tar")


def test_splits_of_shards_that_name_none(tmp_path):
    write_shard(tmp_path / "0.tar", 120)
    write_shard(tmp_path / "1.tar", 5, 120)
    by_hash = open_corpus(f"{tmp_path}/*.tar")
    keys = [f"{n:06d}" for n in range(125)]
    assert by_hash.split_sizes()["val"] == sum(hashed_split(key) == "val" for key in keys) > 0
    named = open_corpus(f"{tmp_path}/0.tar#val={tmp_path}/1.tar")
    assert named.split_sizes() == {"val": 5} | {"train": 120}
    assert open_corpus(named.address).digest() == named.digest()
    write_index(tmp_path, by_hash.shards, {})
    again = open_corpus(f"{tmp_path}/*.tar")
    assert (again.digest(), again.split("val").texts) == (by_hash.digest(), by_hash.split("val").texts)
    assert open_corpus(f"{tmp_path}/*.tar#val={tmp_path}/1.tar").split_sizes()["val"] >= 5


def test_a_picture_whose_shard_is_gone_is_an_unreadable_image(tmp_path):
    corpus = open_corpus(f"{make(tmp_path)}/*.tar")
    (tmp_path / "val-0.tar").unlink()
    with pytest.raises(ImageError, match=r"val-0.tar:000010.png: no such file"):
        corpus.pictures[0].load()


def test_other_storage(tmp_path):
    make(tmp_path)
    files = fsspec.filesystem("memory")
    for file in tmp_path.glob("*.tar"):
        files.pipe(f"/opening/{file.name}", file.read_bytes())
    corpus = open_corpus("memory://opening/*.tar")
    assert corpus.split_sizes() == {"train": 10, "val": 3}
    assert np.asarray(corpus.pictures[1].load())[0, 0].tolist() == [11, 90, 160]
    assert corpus.address == "memory://opening/*.tar"
    write_index(tmp_path, open_corpus(f"{tmp_path}/*.tar").shards, {})
    files.pipe("/opening/index.json", (tmp_path / "index.json").read_bytes())
    assert open_corpus("memory://opening").split_sizes() == {"train": 10, "val": 3}
    with pytest.raises(DataError, match=r"memory://opening/a.csv: neither shards"):
        open_corpus("memory://opening/a.csv")
    files.rm("/opening", recursive=True)
    assert read_index("memory://opening/") is None
