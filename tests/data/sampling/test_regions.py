"""Algorithm 1 of the two-branch paper, against loops over boxes that overlap square by square."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from diptych.data.formats.scenes import make_scenes
from diptych.data.phrases import Mentions, find_mentions
from diptych.data.sampling.negatives import DrawnNegatives
from diptych.data.sampling.neighbours import QueryDirections
from diptych.data.sampling.regions import (
    PhraseSettings,
    RegionRoles,
    RegionSampler,
    annotated_boxes,
    position_within_photo,
)

SIDE = 8
NONE = (0, 0, 0, 0)
edges = st.lists(st.integers(0, SIDE), min_size=2, max_size=2, unique=True).map(sorted)
box = st.tuples(edges, edges).map(lambda ends: (ends[0][0], ends[1][0], ends[0][1], ends[1][1]))
# A thing's box is often a proposal, too, and a proposal is often one of few, so that they are alike.
usual = st.sampled_from([(0, 0, 4, 4), (0, 0, 4, 5), (0, 0, 5, 5), (4, 4, 8, 8), (0, 0, 8, 8)])
flat = st.sampled_from([NONE, (2, 2, 2, 5)])


def share(one, other):
    """What two boxes share of what they cover, exactly."""
    first, second = (
        {(across, down) for across in range(left, right) for down in range(top, bottom)}
        for left, top, right, bottom in (one, other)
    )
    return Fraction(len(first & second), len(first | second))


class World:
    """Photos with proposals, things with boxes, and mentions of things in any order, as whole numbers."""

    def __init__(self, proposals, things, said):
        self.proposals = proposals  # of each photo
        self.things = things  # (photo, box)
        self.said = said  # (thing, words)
        first_said = list(dict.fromkeys(thing for thing, _ in said))  # things are numbered as they are first named
        self.number = {thing: number for number, thing in enumerate(first_said)}
        self.mentions = Mentions(
            [words for _, words in said],
            np.array([things[thing][0] for thing, _ in said]),
            np.zeros(len(said), np.int64),
            np.array([self.number[thing] for thing, _ in said]),
            np.array([things[thing][1] for thing, _ in said], np.float32) / SIDE,
            [()] * len(said),
        )
        self.boxes = np.array(proposals, np.float32).reshape(len(proposals), -1, 4) / SIDE
        self.annotated = annotated_boxes(self.mentions, len(proposals))
        self.places = self.boxes.shape[1] + self.annotated.shape[1]

    def sampler(self, size=4, seed=(1, 2), neighbours=False, **settings):
        settings = PhraseSettings(**settings)
        places = RegionRoles(self.mentions, self.boxes, self.places, settings)
        return RegionSampler(self.mentions, places, size, seed, settings, neighbours)

    def box_of(self, region):
        """The photo and the box of a region by its number: proposals first, then the data's."""
        photo, place = divmod(int(region), self.places)
        every = np.concatenate([self.boxes[photo], self.annotated[photo]])
        return photo, tuple((every[place] * SIDE).round().astype(int).tolist())

    def proposed(self, region):
        return int(region) % self.places < self.boxes.shape[1]

    def thing_of(self, mention):
        return self.things[self.said[mention][0]]

    def shown(self, mention, alike=0.7):
        """How often each box of the photo is a region of what a mention names."""
        photo, own = self.thing_of(mention)
        like = [(*other, True) for other in self.proposals[photo] if share_or_none(own, other) >= Fraction(str(alike))]
        return Counter([(*own, False), *like])

    def rivals(self, mention, apart=0.3):
        photo, own = self.thing_of(mention)
        return Counter(
            other for other in self.proposals[photo] if 0 <= share_or_none(own, other) < Fraction(str(apart))
        )

    def told(self, region, mention):
        """A region as `shown` has it; it is of the mention's photo."""
        photo, found = self.box_of(region)
        assert photo == self.thing_of(mention)[0]
        return (*found, self.proposed(region))


def share_or_none(own, other):
    """What they share; -1 where the other has no area."""
    return share(own, other) if other[0] < other[2] and other[1] < other[3] else Fraction(-1)


@st.composite
def worlds(draw):
    count, photos = draw(st.integers(0, 6)), draw(st.integers(1, 4))
    proposals = [draw(st.lists(usual | box | flat, min_size=count, max_size=count)) for _ in range(photos)]
    things = draw(st.lists(st.tuples(st.integers(0, photos - 1), usual | box), min_size=1, max_size=6))
    said = st.tuples(st.integers(0, len(things) - 1), st.sampled_from(["a", "b", "c"]))
    return World(proposals, things, draw(st.lists(said, min_size=1, max_size=14)))


def rows(pairs):
    directions = pairs.extras.get(QueryDirections)
    asking = np.ones((len(pairs.images), 2), bool) if directions is None else directions.is_query
    return list(
        zip(
            pairs.images.tolist(),
            pairs.texts.tolist(),
            asking.tolist(),
            pairs.extras[DrawnNegatives].images,
            strict=True,
        )
    )


@given(worlds())
def test_the_data_s_boxes_stand_behind_the_proposals(world):
    assert world.annotated.shape[1] == max(
        len({thing for thing, _ in world.said if world.things[thing][0] == photo}) for photo in range(len(world.boxes))
    )
    places = RegionRoles(world.mentions, world.boxes, world.places, PhraseSettings())
    seen = set()
    for thing, number in world.number.items():
        assert world.box_of(places.annotated[number]) == world.things[thing]
        assert places.first_region[number] == world.things[thing][0] * world.places
        seen.add(int(places.annotated[number]))
    assert len(seen) == len(world.number)  # no two things at one place
    filled = (world.annotated[..., 2:] > world.annotated[..., :2]).all(-1)
    assert filled.sum() == len(seen)
    assert (np.sort(~filled, axis=1) == ~filled).all()  # zeros behind them


def test_things_are_counted_in_their_photo():
    assert position_within_photo(np.array([3, 0, 3, 3, 0, 9])).tolist() == [0, 0, 1, 2, 1, 0]


@given(worlds(), st.sampled_from(["annotated", "one", "all"]), st.integers(2, 5))
def test_an_epoch_has_every_mention_with_the_positives_that_were_asked_for(world, positives, size):
    sampler = world.sampler(size, positives=positives)
    batches = sampler.epoch(1)
    assert len(batches) == len(sampler)
    drawn = Counter(mention for pairs in batches for mention in set(pairs.texts.tolist()))
    assert drawn == Counter(range(len(world.said)))
    for pairs in batches:
        assert pairs.extras.get(QueryDirections) is None
        assert len(set(pairs.texts.tolist())) <= size + 1
        found = {mention: Counter() for mention in pairs.texts.tolist()}
        for region, mention, _, _ in rows(pairs):
            found[mention][world.told(region, mention)] += 1
        for mention, regions in found.items():
            shown = world.shown(mention)
            if positives == "all":
                assert regions == shown
            else:
                (one,) = regions.elements()
                assert one in (shown if positives == "one" else {(*world.thing_of(mention)[1], False)})


@given(worlds(), st.none() | st.integers(1, 7), st.sampled_from(["annotated", "one", "all"]), st.booleans())
def test_rivals_are_other_regions_of_the_photo(world, count, positives, neighbours):
    neighbours = neighbours and positives != "all"
    for pairs in world.sampler(positives=positives, rivals=count, neighbours=neighbours).epoch(2):
        wide = world.boxes.shape[1] if count is None else min(count, world.boxes.shape[1])
        assert pairs.extras[DrawnNegatives].texts is None
        assert pairs.extras[DrawnNegatives].images.shape == (len(pairs.texts), wide)
        for _, mention, (_, text_asks), drawn in rows(pairs):
            there = drawn[drawn >= 0].tolist()
            if not text_asks:
                assert not there
                continue
            possible = world.rivals(mention)
            assert len(set(there)) == len(there) == min(wide, possible.total())
            assert all(world.proposed(region) for region in there)
            told = Counter(world.told(region, mention)[:4] for region in there)
            assert told <= possible


@given(worlds(), st.sampled_from(["annotated", "one"]))
def test_a_region_has_a_second_wording_and_a_phrase_a_second_region_where_there_are_such(world, positives):
    sizes = {"size": 3, "positives": positives}
    for plain, pairs in zip(*(world.sampler(neighbours=on, **sizes).epoch(1) for on in (False, True)), strict=True):
        count, every = len(plain.texts), rows(pairs)
        assert [mention for _, mention, _, _ in every[:count]] == plain.texts.tolist()
        drawn = [(region, mention) for region, mention, asking, _ in every[:count] if asking == [True, True]]
        assert len(drawn) == count
        wordings = [row[:2] for row in every[count:] if row[2] == [True, False]]
        regions = [row[:2] for row in every[count:] if row[2] == [False, True]]
        assert len(wordings) + len(regions) == len(every) - count
        often = Counter(region for region, _ in drawn)
        lack = []
        for region, mention in drawn:
            thing, words = world.said[mention]
            others = {said for other, said in world.said if other == thing} - {words}
            if often[region] == 1 and others:
                lack.append((region, thing, others))
        assert len(wordings) == len(lack)
        for (region, mention), (wanted, thing, others) in zip(wordings, lack, strict=True):
            assert region == wanted
            assert world.said[mention][0] == thing
            assert world.said[mention][1] in others
        lack = [
            (region, mention) for region, mention in drawn if positives == "one" and world.shown(mention).total() > 1
        ]
        assert [mention for _, mention in regions] == [mention for _, mention in lack]
        for (region, mention), (has, _) in zip(regions, lack, strict=True):
            assert region != has
            assert world.told(region, mention) in world.shown(mention)


@given(worlds(), st.booleans(), st.data())
def test_some_mentions_of_a_corpus_have_the_regions_that_they_had(world, neighbours, data):
    """Places know all mentions; texts without a known word, or of photos that cannot be read, are left out later."""
    kept = sorted(data.draw(st.sets(st.integers(0, len(world.said) - 1), min_size=1)))
    settings = PhraseSettings(rivals=2)
    places = RegionRoles(world.mentions, world.boxes, world.places, settings)
    some = world.mentions.take(np.array(kept))
    drawn = Counter()
    for pairs in RegionSampler(some, places, 3, (5,), settings, neighbours).epoch(1):
        drawn.update(mention for _, mention, asking, _ in rows(pairs) if asking == [True, True])
        for region, row, _, rivals in rows(pairs):
            assert world.told(region, kept[row]) in world.shown(kept[row])
            assert {world.told(rival, kept[row])[:4] for rival in rivals[rivals >= 0]} <= set(world.rivals(kept[row]))
    assert drawn == Counter(range(len(kept)))


LIKE = [(0, 0, 8, 8), (0, 0, 8, 7), (0, 0, 7, 8)]  # shares of 8 x 8: all, 7/8, 7/8
FAR = [(0, 0, 2, 2), (6, 6, 8, 8), (0, 6, 2, 8), (3, 3, 5, 5)]


def test_everything_that_can_be_drawn_is_drawn_about_as_often():
    world = World([[*LIKE, *FAR, (0, 0, 4, 8)]], [(0, (0, 0, 8, 8))], [(0, "a"), (0, "b"), (0, "c"), (0, "a")])
    sampler = world.sampler(rivals=2, neighbours=True)
    positives, seconds, rivals, wordings = (Counter() for _ in range(4))
    for epoch in range(400):
        (pairs,) = sampler.epoch(epoch)
        regions = {mention: region for region, mention, asking, _ in rows(pairs) if asking == [True, True]}
        for region, mention, asking, drawn in rows(pairs):
            if asking == [True, True]:
                positives[region] += 1
            elif asking == [False, True]:
                seconds[regions[mention], region] += 1
            elif regions[1] == region:
                wordings[mention] += 1
            rivals.update(drawn[drawn >= 0].tolist())
    assert set(positives) == {0, 1, 2, 8}  # three proposals, and the box itself behind all eight
    assert all(340 < times < 460 for times in positives.values())  # 400 each
    assert set(seconds) == {(has, other) for has in positives for other in positives if has != other}
    assert all(95 < times < 175 for times in seconds.values())  # 133 each
    assert set(rivals) == {3, 4, 5, 6}  # a half is neither alike nor apart
    assert all(1450 < times < 1750 for times in rivals.values())  # 1600 each
    assert set(wordings) == {0, 2}  # of "b": the first "a" stands for both, and "c"
    assert wordings.total() > 100
    assert 0.35 < wordings[0] / wordings.total() < 0.65


def test_the_overlaps_that_count_can_be_set():
    world = World([[*LIKE, *FAR, (0, 0, 4, 8)]], [(0, (0, 0, 8, 8))], [(0, "a")])

    def regions(**settings):
        (pairs,) = world.sampler(positives="all", **settings).epoch(1)
        return sorted(pairs.images.tolist()), sorted(
            set(pairs.extras[DrawnNegatives].images[pairs.extras[DrawnNegatives].images >= 0].tolist())
        )

    assert regions() == ([0, 1, 2, 8], [3, 4, 5, 6])
    assert regions(alike=1.0) == ([0, 8], [3, 4, 5, 6])
    assert regions(alike=0.875) == ([0, 1, 2, 8], [3, 4, 5, 6])
    assert regions(alike=0.5, apart=0.5) == ([0, 1, 2, 7, 8], [3, 4, 5, 6])
    assert regions(alike=0.51, apart=0.51) == ([0, 1, 2, 8], [3, 4, 5, 6, 7])
    assert regions(apart=0.0625)[1] == []  # less than 4 of 64, and no proposal is that far
    with pytest.raises(ValidationError, match=r"must not exceed alike = 0\.5: a region would be both"):
        PhraseSettings(alike=0.5, apart=0.6)


@pytest.mark.parametrize("tenths", [3, 5, 7])
def test_a_region_of_exactly_the_overlap_is_positive_and_no_negative_however_it_is_rounded(tenths):
    """Things of 10 pixels at every place of a photo of 500 pixels, each with a proposal of some tenths of it."""
    places = np.arange(480)
    things, proposals = (
        (np.stack([places, 0 * places, places + size, 0 * places + 4], 1) / 500).astype(np.float32)
        for size in (10, tenths)
    )
    none = np.zeros(len(places), np.int64)
    mentions = Mentions(["a"] * len(places), places, none, places, things, [()] * len(places))

    def roles(**settings):
        return RegionRoles(mentions, proposals[:, None], 2, PhraseSettings(**settings))

    assert roles(alike=tenths / 10, apart=0.01).is_positive.all()
    assert not roles(alike=tenths / 10 + 0.01, apart=0.01).is_positive.any()
    assert not roles(alike=1.0, apart=tenths / 10).is_negative.any()
    assert roles(alike=1.0, apart=tenths / 10 + 0.01).is_negative.all()


def test_batches_depend_on_seed_and_epoch_alone():
    scenes = make_scenes(6, 0, 0, texts=3)
    known = find_mentions(scenes)
    boxes = np.random.default_rng(0).random((6, 12, 2, 2)).astype(np.float32)
    boxes = np.sort(boxes, axis=2).reshape(6, 12, 4)
    settings = PhraseSettings(alike=0.3, apart=0.1, rivals=3)
    places = RegionRoles(known, boxes, 12 + annotated_boxes(known, 6).shape[1], settings)

    def drawn(seed, epoch):
        batches = RegionSampler(known, places, 5, seed, settings, neighbours=True).epoch(epoch)
        assert [pairs.draw for pairs in batches] == [(*seed, epoch, step) for step in range(len(batches))]
        return str(
            [
                (pairs.images.tolist(), pairs.texts.tolist(), pairs.extras[DrawnNegatives].images.tolist())
                for pairs in batches
            ]
        )

    assert drawn((1, 1), 3) == drawn((1, 1), 3)
    assert len({drawn(*key) for key in [((1, 1), 3), ((2, 1), 3), ((1, 2), 3), ((1, 1), 4)]}) == 4


def test_a_scene_of_several_pictures_has_a_thing_in_each():
    scenes = make_scenes(3, 0, 0, images=2, texts=2)
    known = find_mentions(scenes)
    annotated = annotated_boxes(known, 6)
    boxes = np.tile(np.array([[0, 0, 1, 1]], np.float32), (6, 1, 1))
    places = RegionRoles(known, boxes, 1 + annotated.shape[1], PhraseSettings(positives="annotated"))
    for pairs in RegionSampler(known, places, 4, (0,), PhraseSettings(positives="annotated")).epoch(1):
        photos, place = np.divmod(pairs.images, 1 + annotated.shape[1])
        assert photos.tolist() == known.images[pairs.texts].tolist()
        np.testing.assert_array_equal(annotated[photos, place - 1], known.boxes[pairs.texts])
    for photo, own in enumerate(scenes.boxes):
        there = annotated[photo][(annotated[photo, :, 2:] > 0).all(1)]
        assert sorted(map(tuple, there)) == sorted(
            tuple(np.array([each.left, each.top, each.right, each.bottom], np.float32)) for each in own
        )


def test_things_are_found_in_blocks(monkeypatch):
    world = World([[*LIKE, *FAR]] * 3, [(photo, (0, 0, 8, 8)) for photo in (2, 0, 1)], [(0, "a"), (1, "a"), (2, "a")])
    whole = RegionRoles(world.mentions, world.boxes, world.places, PhraseSettings())
    monkeypatch.setattr("diptych.data.sampling.regions.ENTITIES_AT_ONCE", 2)
    cut = RegionRoles(world.mentions, world.boxes, world.places, PhraseSettings())
    for name in ("first_region", "annotated", "is_positive", "is_negative"):
        np.testing.assert_array_equal(getattr(cut, name), getattr(whole, name))
    assert whole.first_region.tolist() == [2 * world.places, 0, world.places]
