import re
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from diptych.data.formats.scenes import make_scenes
from diptych.data.scenes.captions import PATTERNS, captions
from diptych.data.scenes.scene import COLOURS, PLACES, SHAPES, Scene, Thing

PLAIN_WORDS = {
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


things = st.lists(
    st.builds(
        lambda count_and_size, *rest: Thing(*count_and_size, *rest),
        st.sampled_from([(1, ""), (1, "small"), (2, ""), (3, "")]),
        st.sampled_from(COLOURS),
        st.sampled_from(SHAPES),
        st.sampled_from(PLACES),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda thing: thing.place,
)
scenes = things.map(lambda some: Scene(tuple(some)))


def attributes(scene):
    return frozenset((thing.count, thing.size, thing.colour, thing.shape, thing.place) for thing in scene.things)


def parse(caption):
    """Parse a caption: the count, size, colour, shape and place that each clause states."""
    assert re.fullmatch(r"[A-Z][a-z :;,]+[a-z]\.", caption), caption
    clauses = re.split(rf",(?: with)? |; | and | (?:{RELATIONS}) ", caption.lower().rstrip("."))
    return frozenset(parse_clause(clause) for clause in clauses)


def parse_clause(clause):
    plain, plurals = [], []
    for word in re.findall("[a-z]+", clause):
        stem = word.removesuffix("s") if word != "cross" else word
        plain.append(PLAIN_WORDS.get(stem, stem))
        if plain[-1] in SHAPES:
            plurals.append(word != "cross" and word.endswith("s"))

    def words_among(*known):
        return [word for word in plain if word in known]

    assert len(words_among(*COLOURS)) == len(words_among(*SHAPES)) == 1, clause
    count = {"two": 2, "pair": 2, "three": 3}.get(*words_among("two", "pair", "three") or [""], 1)
    assert plurals == [count > 1], clause
    verbs = re.findall(r"(?<!this )\b(is|are)\b(?!$)", clause)
    assert verbs in ([], ["are" if count > 1 else "is"]), clause
    place = " ".join(words_among("top", "bottom", "middle", "left", "right"))
    assert place in PLACES, clause
    return count, "".join(words_among("small")), *words_among(*COLOURS), *words_among(*SHAPES), place


def pattern(caption):
    """The sentence pattern of a caption, recognised by its words."""
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


@given(scenes, st.integers(0, 2**32))
def test_every_caption_states_every_attribute_of_every_thing(scene, seed):
    for caption in captions(scene, len(PATTERNS), Random(seed)):
        assert parse(caption) == attributes(scene)


def test_the_texts_of_a_corpus_describe_the_scenes_of_their_groups():
    corpus = make_scenes(train=400, val=50, test=100, images=2)
    pictures = dict(zip(corpus.image_groups.tolist(), corpus.pictures, strict=True))
    for text, group in zip(corpus.texts, corpus.text_groups.tolist(), strict=True):
        assert parse(text) == attributes(pictures[group].scene)


@given(scenes, st.integers(0, 2**32))
def test_each_caption_has_another_pattern(scene, seed):
    sentences = captions(scene, len(PATTERNS), Random(seed))
    assert len({pattern(caption) for caption in sentences}) == len(sentences) == 8


@given(scenes, st.integers(0, 2**32), st.integers(1, 7))
def test_asking_for_more_captions_keeps_the_first_ones(scene, seed, texts):
    assert captions(scene, texts, Random(seed)) == captions(scene, 8, Random(seed))[:texts]


@given(scenes.filter(lambda scene: len(scene.things) > 1), st.integers(0, 2**32))
def test_a_relation_in_a_caption_is_true(scene, seed):
    (caption,) = (caption for caption in captions(scene, 8, Random(seed)) if pattern(caption) == "related")
    first, relation, second = re.split(rf"({RELATIONS})", caption.lower().split(",")[0].rstrip("."))
    places = [parse_clause(clause)[-1] for clause in (first, second)]
    (row, column), (other_row, other_column) = (divmod(PLACES.index(place), 3) for place in places)
    assert {
        "above": row < other_row,
        "below": row > other_row,
        "to the left of": column < other_column,
        "to the right of": column > other_column,
    }[relation]
