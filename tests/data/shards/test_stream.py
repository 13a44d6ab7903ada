import random

import fsspec
import pytest

from diptych.data.shards import stream as module
from diptych.data.shards.index import ShardInfo
from diptych.data.shards.samples import RefusedError
from diptych.data.shards.stream import Stream
from support.shards import png, sample, write_shard, write_tar

SEED = (0, 1)


def make(folder, shards=6, size=10, prefix=None):
    infos = []
    for number in range(shards):
        file = write_shard(folder / f"{number}.tar", size, number * size)
        name = str(file) if prefix is None else f"{prefix}/{number}.tar"
        infos.append(ShardInfo(name, {"train": size}, size, split="train"))
    return Stream(infos, ["train"])


def test_an_epoch_has_every_sample_once_with_its_own_text_and_group(tmp_path):
    stream = make(tmp_path)
    items = list(stream.items(SEED, 1, 16))
    assert len(stream) == len(items) == 60
    assert sorted(item.number for item in items) == list(range(60))
    for item in items:
        assert (item.text, item.image, item.problem) == (f"photo {item.number}", png(item.number), "")
        assert item.name == f"{tmp_path}/{item.number // 10}.tar:{item.number:06d}.png"
    assert len({item.group for item in items}) == 60
    assert [item.number for item in stream.items(SEED, 2, 16)] != [item.number for item in items]


@pytest.mark.parametrize("start", [0, 1, 15, 16, 17, 43, 59, 60])
def test_it_resumes_at_any_sample(tmp_path, start):
    stream = make(tmp_path)
    assert list(stream.items(SEED, 3, 16, start)) == list(stream.items(SEED, 3, 16))[start:]


def test_resuming_reads_no_images_but_those_that_it_needs(tmp_path, monkeypatch):
    stream, loaded = make(tmp_path), []
    original = module.read_samples

    def watched(*arguments, load_image, **options):
        def counted(number):
            loaded.append(load_image(number))
            return loaded[-1]

        return original(*arguments, load_image=counted, **options)

    monkeypatch.setattr(module, "read_samples", watched)
    assert len(list(stream.items(SEED, 1, 8, 50))) == 10
    assert sum(loaded) <= 2 * 10  # two members of each sample


def test_the_texts_of_a_sample_take_turns(tmp_path):
    file = write_tar(tmp_path / "x.tar", [part for key in "ab" for part in sample(key, "1\n2\n3")])
    stream = Stream([ShardInfo(str(file), {"train": 2}, 6, split="train")], ["train"])
    seen = {number: set() for number in range(2)}
    for epoch in range(1, 4):
        for item in stream.items(SEED, epoch, 4):
            seen[item.number].add(item.text)
    assert seen == {0: {"1", "2", "3"}, 1: {"1", "2", "3"}}
    assert list(stream.texts()) == ["1", "2", "3"] * 2


def test_only_the_samples_of_its_splits(tmp_path):
    about = [b'{"split": "train"}', b'{"split": "val"}']
    members = [part for n in range(20) for part in sample(f"{n:02d}", f"t{n}", json=about[n % 2])]
    file = write_tar(tmp_path / "x.tar", members)
    stream = Stream([ShardInfo(str(file), {"train": 10, "val": 10}, 20)], ["train"])
    assert {item.text for item in stream.items(SEED, 1, 4)} == {f"t{n}" for n in range(0, 20, 2)}
    assert list(stream.texts()) == [f"t{n}" for n in range(0, 20, 2)]


def test_ranks_read_different_samples(tmp_path):
    stream = make(tmp_path)
    parts = [{item.number for item in stream.items(SEED, 1, 8, rank=rank, ranks=4)} for rank in range(4)]
    assert sorted(number for part in parts for number in part) == list(range(60))


def test_lost_samples_are_counted_and_named_and_the_order_stays(tmp_path):
    stream = make(tmp_path)
    before = list(stream.items(SEED, 1, 16))
    (tmp_path / "2.tar").unlink()
    content = (tmp_path / "4.tar").read_bytes()
    (tmp_path / "4.tar").write_bytes(content[: 3 * 2048 + 600])
    (tmp_path / "5.tar").write_bytes(b"no tar file" * 100)
    after = list(stream.items(SEED, 1, 16))
    assert [item.number for item in after] == [item.number for item in before]
    lost = {item.number for item in after if item.problem}
    assert lost == {*range(20, 30), *range(43, 60)}
    assert all(item in after for item in before if item.number not in lost)
    problems = {item.name: item.problem for item in after if item.problem}
    assert problems == {
        f"{tmp_path}/2.tar": f"{tmp_path}/2.tar: missing; all of its 10 samples are left out",
        f"{tmp_path}/4.tar": f"{tmp_path}/4.tar: {problem_of(after, 4)}; the last 7 of its 10 samples are left out",
        f"{tmp_path}/5.tar": f"{tmp_path}/5.tar: {problem_of(after, 5)}; all of its 10 samples are left out",
    }
    assert "cut short" in problem_of(after, 4)
    assert "not a tar file" in problem_of(after, 5)
    assert list(stream.items(SEED, 1, 16, 33)) == after[33:]
    assert list(stream.texts()) == [f"photo {n}" for n in range(60) if n not in lost]


def problem_of(items, shard):
    (text,) = {item.problem for item in items if item.problem and item.name.endswith(f"{shard}.tar")}
    return text.partition(": ")[2].rpartition("; ")[0]


def test_fewer_samples_than_were_counted(tmp_path):
    info = ShardInfo(str(write_shard(tmp_path / "x.tar", 3)), {"train": 5}, 5, split="train")
    problems = [item.problem for item in Stream([info], ["train"]).items(SEED, 1, 2) if item.problem]
    assert len(problems) == 2
    assert "has only 3 usable samples; the last 2 of its 5 samples are left out" in problems[0]


def test_a_shard_that_has_a_pickle_by_now_ends_the_stream(tmp_path):
    stream = make(tmp_path)
    write_tar(tmp_path / "3.tar", [*sample("1", "t"), ("2.pth", b"x")])
    with pytest.raises(RefusedError, match="pickle"):
        list(stream.items(SEED, 1, 16))


def test_files_are_closed_when_reading_ends_early(tmp_path, monkeypatch):
    stream, opened = make(tmp_path), []
    original = module.open_shard

    def watched(name):
        opened.append(context := original(name))
        return context

    monkeypatch.setattr(module, "open_shard", watched)
    items = stream.items(SEED, 1, 8)
    next(items)
    items.close()
    assert opened
    assert all(context.gen.gi_frame is None for context in opened)


@pytest.fixture
def remote(tmp_path):
    local = make(tmp_path)
    files = fsspec.filesystem("memory")
    for number in range(6):
        files.pipe(f"/stream/{number}.tar", (tmp_path / f"{number}.tar").read_bytes())
    yield (
        local,
        Stream([ShardInfo(f"memory://stream/{n}.tar", {"train": 10}, 10, split="train") for n in range(6)], ["train"]),
    )
    files.rm("/stream", recursive=True)


def test_other_storage_gives_the_same_samples(remote):
    local, stream = remote
    ours = [(item.number, item.text, item.image) for item in stream.items(SEED, 1, 16, 7)]
    assert ours == [(item.number, item.text, item.image) for item in local.items(SEED, 1, 16, 7)]


def test_other_storage_that_fails_now_and_then_is_asked_again(remote, monkeypatch):
    _, stream = remote
    before = list(stream.items(SEED, 1, 16))
    source = random.Random(0)
    original = module.open_shard
    monkeypatch.setattr(module, "_PAUSE", 0)
    failures = []

    def unreliable(name):
        if source.random() < 0.3:
            failures.append(name)
            raise TimeoutError("the network is slow")
        return original(name)

    monkeypatch.setattr(module, "open_shard", unreliable)
    assert list(stream.items(SEED, 1, 16)) == before
    assert failures

    monkeypatch.setattr(module, "open_shard", lambda name: (_ for _ in ()).throw(RuntimeError("denied")))
    (problem,) = {item.problem for item in stream.items(SEED, 1, 16) if item.name.endswith("3.tar")}
    assert problem == "memory://stream/3.tar: cannot be read (RuntimeError: denied); all of its 10 samples are left out"


def test_storage_that_goes_away_in_the_middle_costs_only_the_samples_behind(remote, monkeypatch):
    _, stream = remote
    monkeypatch.setattr(module, "_PAUSE", 0)
    items = stream.items(SEED, 1, 1)
    read = [next(items) for _ in range(8)]  # two samples of each of four shards
    monkeypatch.setattr(module._OpenShard, "read", lambda *_: (_ for _ in ()).throw(TimeoutError("gone")))
    lost = {item.name: item.problem for item in items if item.image is None}
    started = {item.name.rpartition(":")[0] for item in read}
    assert {name for name, problem in lost.items() if "the last " in problem} == started
