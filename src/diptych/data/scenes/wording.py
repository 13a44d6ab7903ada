"""What a drawn scene is, and eight ways of saying it.

A scene is one to three things in different places; a thing is five words: count, size, colour, shape, place.
Every way of wording says all words of all things, so a caption names its scene and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from diptych.data.corpus import Phrase

SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
COLOURS = ("red", "yellow", "green", "blue", "purple", "pink", "black")
COUNTS = (1, 2, 3)
PLACES = (  # in reading order: row by row of a 3 x 3 grid
    "top left",
    "top",
    "top right",
    "left",
    "middle",
    "right",
    "bottom left",
    "bottom",
    "bottom right",
)

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

Option = TypeVar("Option")


@dataclass(frozen=True)
class Thing:
    """One to three copies of a coloured shape in one place; `size` is "small", or empty and then not said."""

    count: int
    size: str
    colour: str
    shape: str
    place: str

    @property
    def phrase(self) -> str:
        """The thing without its place, in the plainest words: "two red circles", "a small blue star"."""
        words = (_NUMBERS[self.count][0], self.size, self.colour, _noun(self.shape, self.count))
        return " ".join(filter(None, words))

    @property
    def cell(self) -> tuple[int, int]:
        """The row and the column of its place in the 3 x 3 grid."""
        return divmod(PLACES.index(self.place), 3)


@dataclass(frozen=True)
class Scene:
    """Things in different places, held in reading order: scenes are equal when their descriptions are."""

    things: tuple[Thing, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "things", tuple(sorted(self.things, key=lambda thing: thing.cell)))

    @property
    def description(self) -> str:
        """The scene in its plainest words: "a red ring, top left; two blue stars, bottom"."""
        return "; ".join(f"{thing.phrase}, {thing.place}" for thing in self.things)


def pick(dice: Random, options: Sequence[Option]) -> Option:
    """One option by chance. Of Python's generator only `random()` gives the same stream in every version."""
    return options[int(dice.random() * len(options))]


def shuffled(dice: Random, options: Sequence[Option]) -> list[Option]:
    """The options in an order by chance, the same in every version of Python."""
    keys = [dice.random() for _ in options]
    return [options[i] for i in sorted(range(len(options)), key=keys.__getitem__)]


def captions(scene: Scene, texts: int, dice: Random) -> list[str]:
    """Say the scene `texts` times, each time in another way; fewer texts are the first of more."""
    ways = shuffled(dice, WORDINGS)[:texts]
    sentences = [way(shuffled(dice, scene.things), dice) for way in ways]
    return [f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences]


def phrases(scene: Scene, texts: int, dice: Random) -> list[list[Phrase]]:
    """Name each thing of the scene `texts` times, without its place; fewer texts are the first of more.

    The chains are those of the boxes: a thing's number in the scene.
    """
    return [
        [Phrase(_thing(thing, dice), str(number), (thing.shape,)) for number, thing in enumerate(scene.things)]
        for _ in range(texts)
    ]


def _there_is(things: Sequence[Thing], dice: Random) -> str:
    opening = pick(dice, ("there", "here"))
    return f"{opening} {_be(things[0])} {_listed([_in_place(thing, dice) for thing in things])}"


def _shows(things: Sequence[Thing], dice: Random) -> str:
    opening = pick(dice, ("the picture shows", "you can see", "this is a drawing of"))
    return f"{opening} {_listed([_in_place(thing, dice) for thing in things])}"


def _passive(things: Sequence[Thing], dice: Random) -> str:
    verb = pick(dice, ("drawn", "painted", "placed"))
    return _listed([f"{_thing(thing, dice)} {_be(thing)} {verb} {_where(thing, dice)}" for thing in things])


def _place_first(things: Sequence[Thing], dice: Random) -> str:
    return _listed([f"{_where(thing, dice)} {_be(thing)} {_thing(thing, dice)}" for thing in things])


def _labelled(things: Sequence[Thing], dice: Random) -> str:
    return "; ".join(f"{_label(thing, dice)}: {_thing(thing, dice)}" for thing in things)


def _telegraphic(things: Sequence[Thing], dice: Random) -> str:
    numbers = {1: "", 2: "two ", 3: "three "}
    return ", ".join(f"{numbers[thing.count]}{_kind(thing, dice)} {_label(thing, dice)}" for thing in things)


def _coloured(things: Sequence[Thing], dice: Random) -> str:
    numbers = {1: "the", 2: "the two", 3: "the three"}
    clauses = []
    for thing in things:
        words = (numbers[thing.count], _vary(thing.size, dice), _noun(_vary(thing.shape, dice), thing.count))
        colour = _vary(thing.colour, dice)
        clauses.append(f"{' '.join(filter(None, words))} {_where(thing, dice)} {_be(thing)} {colour}")
    return _listed(clauses)


def _related(things: Sequence[Thing], dice: Random) -> str:
    first, *others = things
    sentence = _in_place(first, dice)
    if not others:
        return f"{sentence} {_be(first)} all there is"
    sentence += f" {_be(first)} {_relation(first, others[0], dice)} {_in_place(others[0], dice)}"
    return ", with ".join([sentence, *(_in_place(thing, dice) for thing in others[1:])])


WORDINGS: tuple[Callable[[Sequence[Thing], Random], str], ...] = (
    _there_is,
    _shows,
    _passive,
    _place_first,
    _labelled,
    _telegraphic,
    _coloured,
    _related,
)


def _relation(one: Thing, other: Thing, dice: Random) -> str:
    """What is true of `one` seen from `other`; on a diagonal two relations are, and one of them is said."""
    rows, columns = one.cell[0] - other.cell[0], one.cell[1] - other.cell[1]
    true = []
    if rows:
        true.append("above" if rows < 0 else "below")
    if columns:
        true.append("to the left of" if columns < 0 else "to the right of")
    return pick(dice, true)


def _in_place(thing: Thing, dice: Random) -> str:
    return f"{_thing(thing, dice)} {_where(thing, dice)}"


def _thing(thing: Thing, dice: Random) -> str:
    return f"{pick(dice, _NUMBERS[thing.count])} {_kind(thing, dice)}"


def _kind(thing: Thing, dice: Random) -> str:
    words = (_vary(thing.size, dice), _vary(thing.colour, dice), _noun(_vary(thing.shape, dice), thing.count))
    return " ".join(filter(None, words))


def _where(thing: Thing, dice: Random) -> str:
    return pick(dice, _WHERE[thing.place])


def _label(thing: Thing, dice: Random) -> str:
    return pick(dice, _LABELS.get(thing.place, (thing.place,)))


def _vary(word: str, dice: Random) -> str:
    """The word, or now and then its synonym: rarely enough that the plain word stays the usual one."""
    return _SYNONYMS.get(word, word) if dice.random() < 0.3 else word


def _noun(shape: str, count: int) -> str:
    if count == 1:
        return shape
    return shape + ("es" if shape.endswith(("s", "x")) else "s")


def _be(thing: Thing) -> str:
    return "is" if thing.count == 1 else "are"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
