"""Captions of drawn scenes: eight sentence patterns, each of which states every attribute of every thing.

So a caption describes its own scene and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from diptych.data.corpus import Phrase
from diptych.data.scenes.random_choice import pick, shuffled
from diptych.data.scenes.scene import Scene, Thing, noun

_SYNONYMS = {"circle": "disc", "square": "box", "ring": "hoop", "purple": "violet", "small": "tiny"}
_NUMBERS = {1: ("a", "one", "a single"), 2: ("two", "a pair of"), 3: ("three",)}
_WHERE = {
    "top left": ("in the top left corner", "at the upper left"),
    "top": ("at the top", "at the upper edge"),
    "top right": ("in the top right corner", "at the upper right"),
    "left": ("on the left", "at the left edge"),
    "middle": ("in the middle", "in the centre"),
    "right": ("on the right", "at the right edge"),
    "bottom left": ("in the bottom left corner", "at the lower left"),
    "bottom": ("at the bottom", "at the lower edge"),
    "bottom right": ("in the bottom right corner", "at the lower right"),
}
_LABELS = {
    "top left": ("top left", "upper left"),
    "top right": ("top right", "upper right"),
    "middle": ("middle", "centre"),
    "bottom left": ("bottom left", "lower left"),
    "bottom right": ("bottom right", "lower right"),
}


def captions(scene: Scene, texts: int, random: Random) -> list[str]:
    """Describe a scene in `texts` different patterns; asking for more texts keeps the first ones."""
    patterns = shuffled(random, PATTERNS)[:texts]
    sentences = [pattern(shuffled(random, scene.things), random) for pattern in patterns]
    return [f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences]


def phrases(scene: Scene, texts: int, random: Random) -> list[list[Phrase]]:
    """Name each thing of a scene `texts` times, without its place; asking for more texts keeps the first ones.

    The chain of a phrase is the thing's number in the scene, as for its box.
    """
    return [
        [Phrase(_thing(thing, random), str(number), (thing.shape,)) for number, thing in enumerate(scene.things)]
        for _ in range(texts)
    ]


def _there_is(things: Sequence[Thing], random: Random) -> str:
    opening = pick(random, ("there", "here"))
    return f"{opening} {_be(things[0])} {_listed([_in_place(thing, random) for thing in things])}"


def _shows(things: Sequence[Thing], random: Random) -> str:
    opening = pick(random, ("the picture shows", "you can see", "this is a drawing of"))
    return f"{opening} {_listed([_in_place(thing, random) for thing in things])}"


def _passive(things: Sequence[Thing], random: Random) -> str:
    verb = pick(random, ("drawn", "painted", "placed"))
    return _listed([f"{_thing(thing, random)} {_be(thing)} {verb} {_where(thing, random)}" for thing in things])


def _place_first(things: Sequence[Thing], random: Random) -> str:
    return _listed([f"{_where(thing, random)} {_be(thing)} {_thing(thing, random)}" for thing in things])


def _labelled(things: Sequence[Thing], random: Random) -> str:
    return "; ".join(f"{_label(thing, random)}: {_thing(thing, random)}" for thing in things)


def _telegraphic(things: Sequence[Thing], random: Random) -> str:
    numbers = {1: "", 2: "two ", 3: "three "}
    return ", ".join(f"{numbers[thing.count]}{_kind(thing, random)} {_label(thing, random)}" for thing in things)


def _coloured(things: Sequence[Thing], random: Random) -> str:
    numbers = {1: "the", 2: "the two", 3: "the three"}
    clauses = []
    for thing in things:
        attributes = (numbers[thing.count], _vary(thing.size, random), noun(_vary(thing.shape, random), thing.count))
        colour = _vary(thing.colour, random)
        clauses.append(f"{' '.join(filter(None, attributes))} {_where(thing, random)} {_be(thing)} {colour}")
    return _listed(clauses)


def _related(things: Sequence[Thing], random: Random) -> str:
    first, *others = things
    sentence = _in_place(first, random)
    if not others:
        return f"{sentence} {_be(first)} all there is"
    sentence += f" {_be(first)} {_relation(first, others[0], random)} {_in_place(others[0], random)}"
    return ", with ".join([sentence, *(_in_place(thing, random) for thing in others[1:])])


PATTERNS: tuple[Callable[[Sequence[Thing], Random], str], ...] = (
    _there_is,
    _shows,
    _passive,
    _place_first,
    _labelled,
    _telegraphic,
    _coloured,
    _related,
)


def _relation(one: Thing, other: Thing, random: Random) -> str:
    """Where `one` is, seen from `other`; of the two relations on a diagonal, one is drawn."""
    rows, columns = one.cell[0] - other.cell[0], one.cell[1] - other.cell[1]
    true = []
    if rows:
        true.append("above" if rows < 0 else "below")
    if columns:
        true.append("to the left of" if columns < 0 else "to the right of")
    return pick(random, true)


def _in_place(thing: Thing, random: Random) -> str:
    return f"{_thing(thing, random)} {_where(thing, random)}"


def _thing(thing: Thing, random: Random) -> str:
    return f"{pick(random, _NUMBERS[thing.count])} {_kind(thing, random)}"


def _kind(thing: Thing, random: Random) -> str:
    attributes = (_vary(thing.size, random), _vary(thing.colour, random), noun(_vary(thing.shape, random), thing.count))
    return " ".join(filter(None, attributes))


def _where(thing: Thing, random: Random) -> str:
    return pick(random, _WHERE[thing.place])


def _label(thing: Thing, random: Random) -> str:
    return pick(random, _LABELS.get(thing.place, (thing.place,)))


def _vary(word: str, random: Random) -> str:
    """The word, or in three of ten cases its synonym, if it has one."""
    return _SYNONYMS.get(word, word) if random.random() < 0.3 else word


def _be(thing: Thing) -> str:
    return "is" if thing.count == 1 else "are"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
