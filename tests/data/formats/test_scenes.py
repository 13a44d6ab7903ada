import hashlib
import re
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.data.address import Address
from diptych.data.formats.scenes import make_scenes, read
from diptych.errors import DataError

SPLITS = ("train", "val", "test")


@pytest.fixture(scope="module")
def corpus():
    return make_scenes()


def facts(scene):
    return frozenset((thing.count, thing.size, thing.colour, thing.shape, thing.place) for thing in scene.things)


def without(scene, attribute):
    """The scene with an attribute of a thing blanked, for each thing; siblings share one of these."""
    blank = ["count", "size", "colour", "shape", "place"].index(attribute)
    whole = facts(scene)
    for thing in whole:
        yield whole - {thing}, (*thing[:blank], None, *thing[blank + 1 :])


def with_sibling(scenes, attributes=("colour", "count", "place")):
    families = defaultdict(set)
    for i, scene in enumerate(scenes):
        for attribute in attributes:
            for key in without(scene, attribute):
                families[attribute, key].add(i)
    return set().union(*(family for family in families.values() if len(family) > 1))


def rows(corpus):
    """Everything that an outsider can see of each image and each text."""
    images = zip(corpus.image_ids, corpus.image_groups, corpus.pictures, corpus.boxes, strict=True)
    return list(images), list(zip(corpus.texts, corpus.text_groups, corpus.phrases, strict=True))


def test_the_default_corpus_has_the_sizes_that_were_promised(corpus):
    assert corpus.split_sizes() == {"train": 4000, "val": 300, "test": 500}
    assert len(corpus.texts) == 5 * 4800
    assert corpus.image_ids[12] == "train-00012-0"
    assert len(set(corpus.image_ids)) == 4800
    assert set(Counter(corpus.text_groups.tolist()).values()) == {5}
    assert corpus.matched() is corpus


def test_splits_follow_groups(corpus):
    split_of = dict(zip(corpus.image_groups.tolist(), corpus.image_splits.tolist(), strict=True))
    assert [split_of[group] for group in corpus.text_groups.tolist()] == corpus.text_splits.tolist()
    assert all(key.startswith(f"{split}-") for key, split in zip(corpus.image_ids, corpus.image_splits, strict=True))


def test_no_two_scenes_of_the_corpus_are_alike(corpus):
    assert len({facts(picture.scene) for picture in corpus.pictures}) == len(corpus.pictures)
    assert len(set(corpus.texts)) == len(corpus.texts)


def test_scenes_have_one_to_three_things_that_differ_in_colour_or_shape(corpus):
    sizes = Counter()
    for picture in corpus.pictures:
        things = picture.scene.things
        sizes[len(things)] += 1
        assert len({thing.place for thing in things}) == len(things)
        assert len({(thing.colour, thing.shape) for thing in things}) == len(things)
        assert all(thing.count == 1 or not thing.size for thing in things)
    assert set(sizes) == {1, 2, 3}
    assert min(sizes.values()) > 400


@pytest.mark.parametrize("split", SPLITS)
def test_half_of_the_scenes_of_each_split_have_a_sibling_in_it(corpus, split):
    scenes = [picture.scene for picture in corpus.split(split).pictures]
    assert 0.5 < len(with_sibling(scenes)) / len(scenes) < 0.85
    for attribute in ("colour", "count", "place"):
        assert len(with_sibling(scenes, [attribute])) > 0.1 * len(scenes)


def test_a_small_vocabulary(corpus):
    counts = Counter(word for text in corpus.texts for word in re.findall("[a-z]+", text.lower()))
    assert len(counts) < 150
    trained = Counter(word for text in corpus.split("train").texts for word in re.findall("[a-z]+", text.lower()))
    assert min(trained[word] for word in counts) > 100


def test_texts_are_the_same_on_every_machine(corpus):
    def digest(texts):
        return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]

    assert digest(corpus.texts) == "6410d6bc6cfbef27"
    assert digest(phrase.text for phrases in corpus.phrases for phrase in phrases) == "b624e7500037da6c"
    assert make_scenes(0, 0, 20, seed=1).texts != corpus.split("test").texts[:100]


@settings(max_examples=15, deadline=None)
@given(
    st.fixed_dictionaries({"train": st.integers(0, 60), "val": st.integers(0, 20), "test": st.integers(0, 20)}),
    st.integers(1, 3),
    st.integers(1, 8),
)
def test_a_scene_does_not_depend_on_how_much_else_is_asked_for(sizes, images, texts):
    whole = make_scenes(60, 20, 20, images=3, texts=8, seed=3)
    part = make_scenes(**sizes, images=images, texts=texts, seed=3)
    whole_images, whole_texts = rows(whole)
    part_images, part_texts = rows(part)
    assert len(part_images) == sum(sizes.values()) * images
    assert len(part_texts) == sum(sizes.values()) * texts
    starts = {"train": 0, "val": 60, "test": 80}
    chosen = [starts[split] + i for split in SPLITS for i in range(sizes[split])]
    assert part_images == [whole_images[3 * i + k] for i in chosen for k in range(images)]
    assert part_texts == [whole_texts[8 * i + k] for i in chosen for k in range(texts)]


def test_identities_have_several_different_pictures_of_one_scene():
    corpus = make_scenes(20, 5, 5, images=3, texts=6)
    assert corpus.image_ids[:4] == ["train-00000-0", "train-00000-1", "train-00000-2", "train-00001-0"]
    assert set(Counter(corpus.image_groups.tolist()).values()) == {3}
    assert set(Counter(corpus.text_groups.tolist()).values()) == {6}
    for i in range(0, len(corpus.pictures), 3):
        same = corpus.pictures[i : i + 3]
        assert len({picture.scene for picture in same}) == 1
        assert len({picture.load().tobytes() for picture in same}) == 3


def test_boxes_belong_to_their_pictures():
    corpus = make_scenes(20, 5, 5, images=2)
    for picture, boxes in zip(corpus.pictures, corpus.boxes, strict=True):
        assert boxes == picture.boxes()
        assert [box.chain for box in boxes] == [str(i) for i in range(len(picture.scene.things))]
    for one, other in zip(corpus.boxes[::2], corpus.boxes[1::2], strict=True):
        assert one != other


def test_every_text_names_every_thing_of_its_scene_by_the_chain_of_its_box():
    corpus = make_scenes(60, 5, 5, texts=3)
    plain = {"disc": "circle", "box": "square", "hoop": "ring", "violet": "purple", "tiny": "small"}
    numbers = {"a": 1, "one": 1, "a single": 1, "two": 2, "a pair of": 2, "three": 3}
    worded = re.compile(f"({'|'.join(numbers)}) (?:(small|tiny) )?(\\w+) (\\w+)")
    for text, phrases in enumerate(corpus.phrases):
        things = corpus.pictures[text // 3].scene.things
        assert [phrase.chain for phrase in phrases] == [str(i) for i in range(len(things))]
        for phrase, thing in zip(phrases, things, strict=True):
            number, size, colour, noun = worded.fullmatch(phrase.text).groups()
            assert (numbers[number], bool(size)) == (thing.count, bool(thing.size))
            assert plain.get(colour, colour) == thing.colour
            singular = {"boxes": "box", "crosses": "cross"}.get(noun, noun[:-1]) if thing.count > 1 else noun
            assert phrase.kinds == (thing.shape,) == (plain.get(singular, singular),)
    assert len({phrase.text for phrases in corpus.phrases for phrase in phrases if "circle" in phrase.kinds}) > 20


def test_an_empty_address_is_the_default_corpus(corpus):
    assert read(Address.parse("scenes")).texts == corpus.texts


def test_an_address_sets_what_it_names():
    corpus = read(Address.parse("scenes: train=30, val=4 ,test=5,images=2,texts=3,seed=7,"))
    assert rows(corpus) == rows(make_scenes(30, 4, 5, 2, 3, 7))
    assert corpus.split_sizes() == {"train": 60, "val": 8, "test": 10}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("trian=3", "scenes: no option 'trian'; did you mean 'train'?"),
        ("3000", "scenes: no option '3000'; known: images, seed, test, texts, train, val"),
        ("val=1,val=2", "scenes: option val is given twice; keep one"),
        ("texts=many", "scenes: texts needs a whole number from 1 to 8, not 'many'"),
        ("images", "scenes: images needs a whole number from 1 to 100, not ''"),
        ("test=-1", "scenes: test needs a whole number from 0 to 1000000, not '-1'"),
        ("test=²", "scenes: test needs a whole number from 0 to 1000000, not '²'"),
        ("seed=" + "9" * 5000, "needs a whole number from 0 to 9223372036854775807"),
        ("texts=9", "scenes: texts=9 is out of range; it goes from 1 to 8"),
        ("texts=0", "scenes: texts=0 is out of range; it goes from 1 to 8"),
        ("images=0", "scenes: images=0 is out of range; it goes from 1 to 100"),
        ("train=1000001", "scenes: train=1000001 is out of range; it goes from 0 to 1000000"),
    ],
)
def test_an_address_that_cannot_be_drawn_is_refused_in_one_line(address, message):
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        read(Address.parse(f"scenes:{address}"))
    assert "\n" not in str(caught.value)


def test_sizes_below_zero_are_refused():
    with pytest.raises(DataError, match="val=-1 is out of range"):
        make_scenes(val=-1)
