"""Second positives, against a search through all pairs that the groups allow."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Corpus
from diptych.data.sampling.neighbours import GroupMembers, QueryDirections, SecondPositives, add_second_positives
from diptych.data.sampling.pairs import Pairs, PairSampler


@st.composite
def batches(draw):
    """Groups of images and texts, in any order, and some pairs of one group each, an image or a text often in two."""
    numbers = st.lists(st.integers(0, 4), min_size=1, max_size=12)
    image_groups, text_groups = np.array(draw(numbers)), np.array(draw(numbers))
    possible = [(i, j) for i, own in enumerate(image_groups) for j, other in enumerate(text_groups) if own == other]
    chosen = draw(st.lists(st.sampled_from(possible), max_size=12, unique=True)) if possible else []
    return image_groups, text_groups, np.array(chosen, np.int64).reshape(-1, 2), draw(st.integers(0, 99))


def added(image_groups, text_groups, pairs, seed):
    drawn = Pairs(pairs[:, 0], pairs[:, 1], ())
    found = SecondPositives(image_groups, text_groups).extend(drawn, np.random.default_rng(seed))
    return [found.images.tolist(), found.texts.tolist(), found.extras[QueryDirections].is_query.tolist()]


@given(batches())
def test_who_lacks_a_second_positive_gets_one_where_there_is_one_and_nobody_else_does(given_batch):
    image_groups, text_groups, pairs, _seed = given_batch
    images, texts, asking = added(*given_batch)
    count = len(pairs)
    assert list(zip(images, texts, strict=True))[:count] == [tuple(pair) for pair in pairs.tolist()]
    assert asking[:count] == [[True, True]] * count
    more = list(zip(images, texts, asking, strict=True))[count:]
    # An added pair is there for one side, which lacked it: that side asks.
    for_images = [(image, text) for image, text, who in more if who == [True, False]]
    for_texts = [(image, text) for image, text, who in more if who == [False, True]]
    assert len(for_images) + len(for_texts) == len(more)
    assert all(image_groups[image] == text_groups[text] for image, text, _ in more)
    assert not {(image, text) for image, text, _ in more} & {tuple(pair) for pair in pairs.tolist()}
    for side, own, groups, others in (
        (0, for_images, image_groups, text_groups),
        (1, for_texts, text_groups, image_groups),
    ):
        often = Counter(pairs[:, side].tolist())
        lack = [item for item, times in often.items() if times == 1 and (others == groups[item]).sum() > 1]
        assert sorted(pair[side] for pair in own) == sorted(lack)
    assert added(*given_batch) == [images, texts, asking]


def test_every_other_of_the_group_is_drawn_about_as_often():
    text_groups = np.array([7, 3, 7, 7, 3, 7, 5])
    others, drawn = GroupMembers(text_groups, np.array([3, 7, 5])), Counter()
    random = np.random.default_rng(0)
    for _ in range(200):
        found = others.draw_other(np.array([1, 1, 0, 2, 1]), np.array([2, 2, 4, 6, 5]), random).tolist()
        assert found[2:4] == [1, -1]  # the only other of group 3, and nobody else in group 5
        drawn.update(("of 2", number) for number in found[:2])
        drawn["of 5", found[4]] += 1
    assert {number for who, number in drawn if who == "of 2"} == {0, 3, 5}
    assert {number for who, number in drawn if who == "of 5"} == {0, 2, 3}
    assert all(100 < times < 170 for (who, _), times in drawn.items() if who == "of 2")  # 133 each
    assert all(40 < times < 95 for (who, _), times in drawn.items() if who == "of 5")  # 67 each


def test_what_could_be_added_is_added_for_those_in_one_pair():
    pairs = Pairs(np.array([4, 4, 5, 6]), np.array([0, 1, 2, 3]), ())
    found = add_second_positives(pairs, np.array([1, -1, 2, 3]), np.array([7, 8, 9, -1]))
    is_query = found.extras[QueryDirections].is_query.tolist()
    expected = [
        (4, 0, 1, 1),
        (4, 1, 1, 1),
        (5, 2, 1, 1),
        (6, 3, 1, 1),
        (5, 9, 1, 0),
        (1, 0, 0, 1),
        (2, 2, 0, 1),
        (3, 3, 0, 1),
    ]
    assert [(i, t, *who) for i, t, who in zip(found.images, found.texts, is_query, strict=True)] == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_a_sampler_with_neighbours_has_every_text_as_before(image_groups, text_groups):
    names = np.full(len(image_groups), "train"), np.full(len(text_groups), "train")
    corpus = Corpus(
        *("test", [str(i) for i in range(len(image_groups))], np.array(image_groups), names[0]),
        *([str(j) for j in range(len(text_groups))], np.array(text_groups), names[1]),
    )
    neighbours = SecondPositives(corpus.image_groups, corpus.text_groups)
    samplers = (PairSampler(corpus, 4, (1,), (), extensions) for extensions in ([], [neighbours]))
    for plain, more in zip(*(sampler.epoch(2) for sampler in samplers), strict=True):
        count = len(plain.texts)
        assert plain.extras.get(QueryDirections) is None
        is_query = more.extras[QueryDirections].is_query
        assert more.texts[:count].tolist() == plain.texts.tolist()
        assert is_query[:count].all()
        assert not is_query[count:].all(1).any()
        assert (corpus.image_groups[more.images] == corpus.text_groups[more.texts]).all()
