"""Data without splits is split by one rule that depends on nothing but names and the seed."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Corpus
from diptych.data.formats.scenes import make_scenes
from diptych.data.splitting import SplitRule, apply_rule, describe_splits, noise_warning
from diptych.errors import DataError


def corpus_of(image_groups, text_groups=None):
    """A corpus without splits, with these groups of images (by name) and of texts."""
    names, groups = list(image_groups), np.array(list(image_groups.values()), np.int64)
    text_groups = groups if text_groups is None else np.array(text_groups, np.int64)
    texts = [f"text {number}" for number in range(len(text_groups))]
    sides = [np.full(len(some), "train") for some in (groups, text_groups)]
    return Corpus("mine", names, groups, sides[0], texts, text_groups, sides[1], split_origin="default")


def numbered(count):
    return corpus_of({f"{number}.jpg": number for number in range(count)})


def plain_splits(corpus, rule):
    """The split of each group, written from the rule's description."""
    ids = {}
    for name, group in zip(corpus.image_ids, corpus.image_groups.tolist(), strict=True):
        ids.setdefault(group, []).append(name)
    digest = {
        group: hashlib.blake2b(f"{rule.seed}\0{sorted(names)[0]}".encode(), digest_size=16).hexdigest()
        for group, names in ids.items()
    }
    ranked = sorted(ids, key=digest.get)
    val, test = int(len(ranked) * rule.val + 0.5), int(len(ranked) * rule.test + 0.5)
    return {group: "val" if n < val else "test" if n < val + test else "train" for n, group in enumerate(ranked)}


@given(st.lists(st.integers(0, 30), min_size=20, max_size=80), st.integers(0, 5), st.randoms())
def test_groups_stay_together_and_the_order_does_not_matter(groups, seed, random):
    rule = SplitRule(0.2, 0.3, seed)
    pairs = list(enumerate(groups))
    corpus = corpus_of({f"{number}.jpg": group for number, group in pairs})
    if len(set(groups)) < 5:
        return
    split = apply_rule(corpus, rule)
    expected = plain_splits(corpus, rule)
    assert split.image_splits.tolist() == [expected[group] for group in groups]
    assert split.text_splits.tolist() == split.image_splits.tolist()
    random.shuffle(pairs)
    # Other numbers for the same groups, as in a file whose rows come in another order.
    shuffled = apply_rule(corpus_of({f"{number}.jpg": 100 - group for number, group in pairs}), rule)
    by_name = dict(zip(split.image_ids, split.image_splits.tolist(), strict=True))
    assert shuffled.image_splits.tolist() == [by_name[name] for name in shuffled.image_ids]


def test_the_shares_are_exact_and_the_seed_selects():
    first = numbered(300).with_splits(val=0.15, test=0.15)
    assert first.split_sizes() == {"train": 210, "val": 45, "test": 45}
    assert first.split_origin == SplitRule(0.15, 0.15, 0)
    assert first.digest() == numbered(300).with_splits(val=0.15, test=0.15, seed=0).digest()
    other = numbered(300).with_splits(val=0.15, test=0.15, seed=1)
    assert other.split_sizes() == first.split_sizes()
    assert (other.image_splits != first.image_splits).any()
    # A rule replaces another.
    assert other.with_splits(val=0.15, test=0.15).digest() == first.digest()
    assert numbered(20).with_splits(val=0.1).split_sizes() == {"train": 18, "val": 2}
    assert numbered(20).with_splits(test=0.5).split_sizes() == {"train": 10, "test": 10}


def test_texts_without_an_image_are_train_and_do_not_count():
    corpus = corpus_of({f"{number}.jpg": number for number in range(10)}, [*range(10), 77, 78, 79])
    split = corpus.with_splits(val=0.2, test=0.2)
    assert split.split_sizes() == {"train": 6, "val": 2, "test": 2}
    assert split.text_splits[10:].tolist() == ["train"] * 3


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"val": 0.5, "test": 0.5}, "val = 0.5 and test = 0.5 leave nothing to train on"),
        ({"val": 1.0}, "val = 1.0: the share of a split is a number from 0 to below 1"),
        ({"val": -0.1}, "val = -0.1: the share"),
        ({"test": float("nan")}, "test = nan: the share"),
        ({"val": "0.1"}, "val = '0.1': the share"),
        ({"val": True}, "val = True: the share"),
        ({}, "val and test are both 0, so there is nothing to split"),
        ({"val": 0.1, "seed": -1}, "seed = -1: the seed of a split is a whole number from 0"),
        ({"val": 0.1, "seed": 0.5}, "seed = 0.5: the seed"),
        ({"val": 0.01, "test": 0.2}, "mine: val = 0.01 of 20 groups leaves val empty; use a larger share"),
        ({"val": 0.2, "test": 0.01}, "mine: test = 0.01 of 20 groups leaves test empty"),
        ({"val": 0.49, "test": 0.5}, "mine: val 0.49, test 0.5, seed 0 of 20 groups leave train empty"),
    ],
)
def test_shares_that_cannot_be_used(shares, message):
    with pytest.raises(DataError) as caught:
        numbered(20).with_splits(**shares)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_data_with_splits_of_its_own_is_refused():
    with pytest.raises(DataError, match=r"scenes: has splits of its own \(images: train 4, val 3, test 2\)"):
        make_scenes(train=4, val=3, test=2).with_splits(val=0.2)


def test_the_user_is_told_who_split_the_data():
    corpus = numbered(300)
    assert describe_splits(replace(corpus, split_origin="source")) is None
    assert describe_splits(corpus) == (
        "mine has no splits of its own: Diptych split it into train 300 images "
        "(the default; choose others with --val 0.15 --test 0.15)"
    )
    assert describe_splits(corpus.with_splits(val=0.15, test=0.15, seed=3)) == (
        "mine has no splits of its own: Diptych split it into train 210, val 45, test 45 images "
        "(val 0.15, test 0.15, seed 3)"
    )


def test_a_small_val_split_is_noisy():
    corpus = numbered(300)
    assert "val has only 45 images" in noise_warning(corpus.with_splits(val=0.15))
    assert "one image more or less at the top is 2.2 points" in noise_warning(corpus.with_splits(val=0.15))
    assert "only 1 image," in noise_warning(numbered(4).with_splits(val=0.25))
    assert noise_warning(corpus.with_splits(val=1 / 3)) is None
    assert noise_warning(corpus) is None
    assert noise_warning(make_scenes(train=4, val=3, test=2)) is None
