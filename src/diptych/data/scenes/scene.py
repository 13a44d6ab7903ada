"""A drawn scene: one to three things in different places, each with a count, a size, a colour and a shape."""

from __future__ import annotations

from dataclasses import dataclass

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

_NUMBERS = {1: "a", 2: "two", 3: "three"}


@dataclass(frozen=True)
class Thing:
    """One to three copies of a coloured shape in one place; `size` is "small" or empty."""

    count: int
    size: str
    colour: str
    shape: str
    place: str

    @property
    def phrase(self) -> str:
        """The thing without its place, in its plainest form: "two red circles", "a small blue star"."""
        return " ".join(filter(None, (_NUMBERS[self.count], self.size, self.colour, noun(self.shape, self.count))))

    @property
    def cell(self) -> tuple[int, int]:
        """The row and column of its place in the 3 x 3 grid."""
        return divmod(PLACES.index(self.place), 3)


@dataclass(frozen=True)
class Scene:
    """Things in different places, sorted in reading order: scenes are equal if their descriptions are."""

    things: tuple[Thing, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "things", tuple(sorted(self.things, key=lambda thing: thing.cell)))

    @property
    def description(self) -> str:
        """The scene in its plainest form: "a red ring, top left; two blue stars, bottom"."""
        return "; ".join(f"{thing.phrase}, {thing.place}" for thing in self.things)


def noun(shape: str, count: int) -> str:
    """A shape's name in the singular or the plural."""
    if count == 1:
        return shape
    return shape + ("es" if shape.endswith(("s", "x")) else "s")
