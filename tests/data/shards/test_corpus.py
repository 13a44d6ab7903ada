import pytest

from diptych.data.shards import corpus as module
from diptych.data.shards.corpus import HeldSamples, StreamCorpus
from diptych.data.shards.index import ShardInfo
from diptych.data.shards.samples import RefusedError, Sample
from diptych.errors import DataError

SHARDS = [ShardInfo("a/train-0.tar", {"train": 7, "restval": 2}, 9, 10, "x")]


def held(key, split="val", group=None, image=b"bytes", texts=("one", "two"), name=None):
    return Sample(key, f"{key}.png", image, 512, 5, texts, split, id=name or key, group=group)


def made(*samples):
    collected = HeldSamples("photos")
    for number, sample in enumerate(samples):
        collected.add(f"a/val-{number}.tar", sample)
    return collected.corpus(SHARDS, [], "a")


def test_val_and_test_are_columns_and_train_is_a_stream():
    corpus = made(held("1"), held("2", "test", name="dog.jpg"), held("3"))
    assert isinstance(corpus, StreamCorpus)
    assert corpus.split_sizes() == {"train": 7, "restval": 2, "val": 2, "test": 1}
    assert "train 7" in repr(corpus)
    val = corpus.split("val")
    assert not isinstance(val, StreamCorpus)
    assert val.image_ids == ["val-0.tar:1", "val-2.tar:3"]
    assert val.texts == ["one", "two"] * 2
    assert val.image_groups.tolist() == [0, 2]
    assert val.text_groups.tolist() == [0, 0, 2, 2]
    assert corpus.split("test").image_ids == ["dog.jpg"]
    assert len(corpus.stream(["train"])) == 7
    assert len(corpus.stream(["train", "restval"])) == 9
    with pytest.raises(DataError, match="train is a stream of shards, which only training reads; use val or test"):
        corpus.split("train")
    with pytest.raises(DataError, match="did you mean"):
        corpus.split("trian")


def test_images_of_a_group_share_its_texts_wherever_they_are():
    corpus = made(held("1", group="g"), held("2", group="g", texts=("two", "three")), held("3", texts=("one",)))
    assert corpus.image_groups.tolist() == [0, 0, 1]
    assert list(zip(corpus.texts, corpus.text_groups.tolist(), strict=True)) == [
        *(("one", 0), ("two", 0), ("three", 0)),
        ("one", 1),
    ]


def test_equal_keys_of_two_shards_are_two_images():
    assert made(held("1"), held("1")).image_groups.tolist() == [0, 1]


def test_the_digest_depends_on_the_shards_and_on_val():
    digests = {made(held("1")).digest(), made(held("2")).digest(), made(held("1", texts=("x",))).digest()}
    collected = HeldSamples("photos")
    collected.add("a/val-0.tar", held("1"))
    for key, value in (("sha256", "y"), ("size", 11), ("samples", {"train": 8})):
        info = ShardInfo(**{**vars(SHARDS[0]), key: value})
        digests.add(collected.corpus([info], [], "a").digest())
    assert len(digests) == 6
    assert collected.corpus(SHARDS, [], "elsewhere").digest() == made(held("1")).digest()


def test_more_than_memory_holds_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_HELD", 2)
    with pytest.raises(RefusedError, match=r"photos: val has more than 2 samples, .* give it fewer shards"):
        made(*(held(str(number)) for number in range(3)))
    made(held("1"), held("2"), held("3", "test"))
    monkeypatch.setattr(module, "MAX_HELD_BYTES", 9)
    made(held("1", image=None), held("2", image=None))
    with pytest.raises(RefusedError, match="GB of other storage"):
        made(held("1"), held("2"))
