"""Pictures of scenes, with the exact box of each thing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from random import Random

from PIL import Image, ImageDraw

from diptych.data.corpus import Box
from diptych.data.scenes.random_choice import pick
from diptych.data.scenes.scene import Scene, Thing

INKS = {
    "red": (222, 28, 36),
    "yellow": (250, 204, 0),
    "green": (22, 160, 60),
    "blue": (30, 84, 226),
    "purple": (122, 34, 160),
    "pink": (255, 120, 196),
    "black": (20, 20, 24),
}

_SUPERSAMPLING = 3  # drawn this many times larger, then averaged: Pillow's polygons have hard edges

Point = tuple[float, float]


def _regular(corners: int, *radii: float) -> list[Point]:
    """Corners around the origin, the first one at the top; several radii alternate, which makes stars."""
    angles = [2 * math.pi * (i / corners - 0.25) for i in range(corners)]
    return [(r * math.cos(angle), r * math.sin(angle)) for r, angle in zip(cycle(radii), angles, strict=False)]


_ARM = 0.34
_HOLE = 0.56  # of the ring, as a share of its radius
_OUTLINES = {
    "circle": _regular(40, 1.0),
    "ring": _regular(40, 1.0),
    "square": [(-0.86, -0.86), (0.86, -0.86), (0.86, 0.86), (-0.86, 0.86)],
    "triangle": [(0.0, -0.95), (1.0, 0.8), (-1.0, 0.8)],
    "star": _regular(10, 1.08, 0.46),
    "cross": [
        *((-_ARM, -1.0), (_ARM, -1.0), (_ARM, -_ARM), (1.0, -_ARM), (1.0, _ARM), (_ARM, _ARM)),
        *((_ARM, 1.0), (-_ARM, 1.0), (-_ARM, _ARM), (-1.0, _ARM), (-1.0, -_ARM), (-_ARM, -_ARM)),
    ],
}
# The positions of the copies in a cell of width 1, for each count, and their radii.
_ARRANGEMENTS: dict[int, tuple[tuple[Point, ...], ...]] = {
    1: (((0.0, 0.0),),),
    2: (((-0.24, 0.0), (0.24, 0.0)), ((-0.21, -0.17), (0.21, 0.17)), ((-0.21, 0.17), (0.21, -0.17))),
    3: (((-0.24, 0.2), (0.0, -0.22), (0.24, 0.2)), ((-0.24, -0.2), (0.0, 0.22), (0.24, -0.2))),
}
_RADII = {1: 0.42, 2: 0.21, 3: 0.2}
_SMALL_RADIUS = 0.21


@dataclass(frozen=True)
class ScenePicture:
    """A picture of a scene, drawn when it is loaded; the seed decides all that no caption states.

    That is the tint of the background, and small variations of each thing's position, size and angle.
    """

    scene: Scene
    seed: str
    canvas: int = 128

    def load(self) -> Image.Image:
        """Draw the picture; the pixels are the same each time."""
        scale = self.canvas * _SUPERSAMPLING
        tint, layout = self._layout()
        image = Image.new("RGB", (scale, scale), tint)
        pen = ImageDraw.Draw(image)
        for thing, copies in zip(self.scene.things, layout, strict=True):
            for outline in copies:
                pen.polygon(_pixels(outline, scale), fill=INKS[thing.colour])
                if thing.shape == "ring":
                    pen.polygon(_pixels(_scaled(outline, _HOLE), scale), fill=tint)
        return image.reduce(_SUPERSAMPLING)

    def boxes(self) -> list[Box]:
        """The box of each thing, to whole pixels of the loaded picture, in the order of the scene's things.

        The chain of a box is the thing's number in the scene, so all pictures of a scene have the same chains.
        """
        _, layout = self._layout()
        boxes = []
        for number, copies in enumerate(layout):
            across = [x * self.canvas for outline in copies for x, _ in outline]
            down = [y * self.canvas for outline in copies for _, y in outline]
            sides = (math.floor(min(across)), math.floor(min(down)), math.ceil(max(across)), math.ceil(max(down)))
            boxes.append(Box(str(number), *(side / self.canvas for side in sides)))
        return boxes

    def _layout(self) -> tuple[tuple[int, int, int], list[list[list[Point]]]]:
        """The background's colour, and the outlines of each thing's copies on a canvas of width 1."""
        random = Random(self.seed)
        red, green, blue = (int(_uniform(random, 226, 252)) for _ in range(3))
        return (red, green, blue), [_outlines(thing, random) for thing in self.scene.things]


def _outlines(thing: Thing, random: Random) -> list[list[Point]]:
    row, column = thing.cell
    centre_x = column + 0.5 + _uniform(random, -0.035, 0.035)
    centre_y = row + 0.5 + _uniform(random, -0.035, 0.035)
    radius = (_SMALL_RADIUS if thing.size == "small" else _RADII[thing.count]) * _uniform(random, 0.9, 1.0)
    copies = []
    for x, y in pick(random, _ARRANGEMENTS[thing.count]):
        angle = math.radians(_uniform(random, -9, 9))
        cosine, sine = radius * math.cos(angle), radius * math.sin(angle)
        copies.append(
            [
                ((centre_x + x + cosine * u - sine * v) / 3, (centre_y + y + sine * u + cosine * v) / 3)
                for u, v in _OUTLINES[thing.shape]
            ]
        )
    return copies


def _uniform(random: Random, low: float, high: float) -> float:
    return low + (high - low) * random.random()


def _scaled(outline: Sequence[Point], factor: float) -> list[Point]:
    x = sum(point[0] for point in outline) / len(outline)
    y = sum(point[1] for point in outline) / len(outline)
    return [(x + factor * (u - x), y + factor * (v - y)) for u, v in outline]


def _pixels(outline: Sequence[Point], scale: int) -> list[tuple[int, int]]:
    """The pixels that the corners fall into; Pillow draws up to and including them."""
    return [(int(x * scale), int(y * scale)) for x, y in outline]
