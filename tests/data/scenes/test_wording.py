import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.formats.scenes import make_scenes
from diptych.data.scenes.wording import COLOURS, PLACES, SHAPES, WORDINGS, Scene, Thing, captions, pick, shuffled

KINDS = [(1, ""), (1, "small"), (2, ""), (3, "")]
SAME = {
    "disc": "circle",
    "box": "square",
    "boxe": "square",
    "hoop": "ring",
    "crosse": "cross",
    "violet": "purple",
    "tiny": "small",
    "upper": "top",
    "lower": "bottom",
    "centre": "middle",
}
RELATIONS = "above|below|to the left of|to the right of"


@st.composite
def scenes(draw):
    things = []
    for place in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3, unique=True)):
        count, size = draw(st.sampled_from(KINDS))
        things.append(Thing(count, size, draw(st.sampled_from(COLOURS)), draw(st.sampled_from(SHAPES)), place))
    return Scene(tuple(things))


def understood(caption):
    """What a reader takes from a caption: the count, size, colour, shape and place of each clause."""
    assert re.fullmatch(r"[A-Z][a-z :;,]+[a-z]\.", caption), caption
    clauses = re.split(rf",(?: with)? |; | and | (?:{RELATIONS}) ", caption.lower().rstrip("."))
    return frozenset(understood_clause(clause) for clause in clauses)


def understood_clause(clause):
    plain, plurals = [], []
    for word in re.findall("[a-z]+", clause):
        stem = word.removesuffix("s") if word != "cross" else word
        plain.append(SAME.get(stem, stem))
        if plain[-1] in SHAPES:
            plurals.append(word != "cross" and word.endswith("s"))

    def said(*known):
        return [word for word in plain if word in known]

    assert len(said(*COLOURS)) == len(said(*SHAPES)) == 1, clause
    count = {"two": 2, "pair": 2, "three": 3}.get(*said("two", "pair", "three") or [""], 1)
    assert plurals == [count > 1], clause
    verbs = re.findall(r"(?<!this )\b(is|are)\b(?!$)", clause)
    assert verbs in ([], ["are" if count > 1 else "is"]), clause
    place = " ".join(said("top", "bottom", "middle", "left", "right"))
    assert place in PLACES, clause
    return count, "".join(said("small")), *said(*COLOURS), *said(*SHAPES), place


def way(caption):
    """Which way of wording a caption is in, told from its words alone."""
    marks = {
        "there is": r"^(There|Here) ",
        "shows": r"^(The picture|You|This) ",
        "passive": r"\b(drawn|painted|placed)\b(?! of)",
        "place first": r"^(At|In|On) ",
        "labelled": r"^[A-Za-z ]+: ",
        "coloured": r"^The .* (is|are) [a-z]+[,. ]",
        "related": rf"{RELATIONS}|all there is",
    }
    found = [name for name, mark in marks.items() if re.search(mark, caption)]
    assert len(found) <= 1, caption
    return found[0] if found else "telegraphic"


def content(scene):
    return frozenset((thing.count, thing.size, thing.colour, thing.shape, thing.place) for thing in scene.things)


@given(scenes(), st.integers(0, 2**32))
def test_every_caption_says_every_word_of_every_thing(scene, seed):
    for caption in captions(scene, len(WORDINGS), Random(seed)):
        assert understood(caption) == content(scene)


def test_the_texts_of_a_corpus_say_the_scenes_of_their_groups():
    corpus = make_scenes(train=400, val=50, test=100, images=2)
    scenes = dict(zip(corpus.image_groups.tolist(), corpus.pictures, strict=True))
    for text, group in zip(corpus.texts, corpus.text_groups.tolist(), strict=True):
        assert understood(text) == content(scenes[group].scene)


@given(scenes(), st.integers(0, 2**32))
def test_each_caption_is_in_another_way(scene, seed):
    said = captions(scene, len(WORDINGS), Random(seed))
    assert len({way(caption) for caption in said}) == len(said) == 8


@given(scenes(), st.integers(0, 2**32), st.integers(1, 7))
def test_fewer_captions_are_the_first_of_more(scene, seed, texts):
    assert captions(scene, texts, Random(seed)) == captions(scene, 8, Random(seed))[:texts]


@given(scenes().filter(lambda scene: len(scene.things) > 1), st.integers(0, 2**32))
def test_a_relation_that_is_said_is_true(scene, seed):
    (caption,) = (caption for caption in captions(scene, 8, Random(seed)) if way(caption) == "related")
    first, relation, second = re.split(rf"({RELATIONS})", caption.lower().split(",")[0].rstrip("."))
    places = [understood_clause(clause)[-1] for clause in (first, second)]
    (row, column), (other_row, other_column) = (divmod(PLACES.index(place), 3) for place in places)
    assert {
        "above": row < other_row,
        "below": row > other_row,
        "to the left of": column < other_column,
        "to the right of": column > other_column,
    }[relation]


@given(scenes())
def test_a_scene_is_its_content_in_whatever_order(scene):
    turned = Scene(scene.things[::-1])
    assert turned == scene
    assert turned.description == scene.description
    assert [PLACES.index(thing.place) for thing in scene.things] == sorted(
        PLACES.index(thing.place) for thing in scene.things
    )


@given(scenes(), scenes())
def test_descriptions_are_equal_only_for_equal_scenes(one, other):
    assert (one.description == other.description) == (content(one) == content(other))


@pytest.mark.parametrize(
    ("thing", "phrase"),
    [
        (Thing(1, "small", "blue", "star", "top"), "a small blue star"),
        (Thing(2, "", "red", "circle", "top"), "two red circles"),
        (Thing(3, "", "pink", "cross", "top"), "three pink crosses"),
    ],
)
def test_the_phrase_of_a_thing_is_plain(thing, phrase):
    assert thing.phrase == phrase


def test_chance_is_fair_and_the_same_in_every_python():
    dice = Random("seed")
    counts = Counter(pick(dice, "abcd") for _ in range(4000))
    assert set(counts) == set("abcd")
    assert min(counts.values()) > 850
    assert "".join(shuffled(Random("seed"), "abcdefgh")) == "eabdhgcf"
    assert Counter(shuffled(dice, "aabc")) == Counter("aabc")
