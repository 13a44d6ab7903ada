"""Algorithm 1 of the two-branch paper, against loops over boxes that overlap square by square."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from diptych.data.phrases import Mentions, mentions
from diptych.data.region_pairs import PhraseSettings, Places, RegionSampler, annotated_boxes, place_of_things
from diptych.data.scenes import make_scenes

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
        places = Places(self.mentions, self.boxes, self.places, settings)
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
        return Counter(other for other in self.proposals[photo] if 0 <= share_or_none(own, other) < Fraction(str(apart)))

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
    asking = np.ones((len(pairs.images), 2), bool) if pairs.asking is None else pairs.asking
    return list(zip(pairs.images.tolist(), pairs.texts.tolist(), asking.tolist(), pairs.rivals.images, strict=True))


@given(worlds())
def test_the_data_s_boxes_stand_behind_the_proposals(world):
    assert world.annotated.shape[1] == max(
        len({thing for thing, _ in world.said if world.things[thing][0] == photo}) for photo in range(len(world.boxes))
    )
    places = Places(world.mentions, world.boxes, world.places, PhraseSettings())
    seen = set()
    for thing, number in world.number.items():
        assert world.box_of(places.own[number]) == world.things[thing]
        assert places.first[number] == world.things[thing][0] * world.places
        seen.add(int(places.own[number]))
    assert len(seen) == len(world.number)  # no two things at one place
    filled = (world.annotated[..., 2:] > world.annotated[..., :2]).all(-1)
    assert filled.sum() == len(seen)
    assert (np.sort(~filled, axis=1) == ~filled).all()  # zeros behind them


def test_things_are_counted_in_their_photo():
    assert place_of_things(np.array([3, 0, 3, 3, 0, 9])).tolist() == [0, 0, 1, 2, 1, 0]


@given(worlds(), st.sampled_from(["annotated", "one", "all"]), st.integers(2, 5))
def test_an_epoch_has_every_mention_with_the_positives_that_were_asked_for(world, positives, size):
    sampler = world.sampler(size, positives=positives)
    batches = sampler.epoch(1)
    assert len(batches) == len(sampler)
    drawn = Counter(mention for pairs in batches for mention in set(pairs.texts.tolist()))
    assert drawn == Counter(range(len(world.said)))
    for pairs in batches:
        assert pairs.asking is None
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
        assert pairs.rivals.texts is None
        assert pairs.rivals.images.shape == (len(pairs.texts), wide)
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
        more = {kind: [row[:2] for row in every[count:] if row[2] == kind] for kind in ([1, 0], [0, 1])} if 0 else None
        wordings = [row[:2] for row in every[count:] if row[2] == [True, False]]
        regions = [row[:2] for row in every[count:] if row[2] == [False, True]]
        assert more is None
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
            (region, mention)
            for region, mention in drawn
            if positives == "one" and world.shown(mention).total() > 1
        ]
        assert [mention for _, mention in regions] == [mention for _, mention in lack]
        for (region, mention), (has, _) in zip(regions, lack, strict=True):
            assert region != has
            assert world.told(region, mention) in world.shown(mention)
