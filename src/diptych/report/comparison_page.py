"""The page of two runs: recall against the epoch, recalls with their difference, and what each finds first.

The first and the last are Fig. 2 and Fig. A.1 of Faghri et al. 2018.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from diptych import __version__
from diptych.evaluation.paired import Difference
from diptych.evaluation.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE
from diptych.report.choice import one_a_group
from diptych.report.comparison import Comparison
from diptych.report.curves import line_chart
from diptych.report.epochs import recall_line, stage_marks
from diptych.report.page import Card, Cards, CardSection, Direction, DirectionName, Fact, Labelled, Measure
from diptych.report.pictures import image_thumbnail
from diptych.report.recalls import directions, measured
from diptych.report.templates import render_template, write_template

SHOWN = 4

_DIRECTIONS: tuple[tuple[DirectionName, str], ...] = (
    ("image to text", IMAGE_TO_TEXT),
    ("text to image", TEXT_TO_IMAGE),
)


@dataclass(frozen=True)
class Block:
    """One direction of the recall table: a row a run, by its name, and the differences by their K."""

    name: DirectionName
    rows: Sequence[tuple[str, Direction]]
    differences: Mapping[int, Difference]


@dataclass(frozen=True)
class ComparisonContents:
    """Everything the page of two runs shows."""

    title: str
    subtitle: str
    facts: Sequence[Fact]
    events: Sequence[str]
    curves: Sequence[Markup]
    cutoffs: Sequence[int]
    blocks: Sequence[Block]
    rsums: Sequence[tuple[str, Measure]]
    rsum_difference: Difference
    difference_name: str
    captions: CardSection


def write_comparison(path: Path, comparison: Comparison, seed: int = 0) -> None:
    """Write the whole page or nothing."""
    write_template(path, "comparison.html.j2", contents=comparison_contents(comparison, seed))


def render_comparison(contents: ComparisonContents) -> str:
    """The page as HTML; no text of a run or a corpus can become markup."""
    return render_template("comparison.html.j2", contents=contents)


def comparison_contents(comparison: Comparison, seed: int = 0) -> ComparisonContents:
    """Gather what the page shows; the seed draws the images that are shown at random."""
    first, second = comparison.sides
    facts = {
        "data": f"{comparison.corpus.name}, split {comparison.split}",
        "images": f"{len(comparison.corpus.image_ids):,}",
        "texts": f"{len(comparison.corpus.texts):,}",
        **{f"epochs of {side.name}": str(len(side.epochs)) for side in comparison.sides},
        "diptych": __version__,
    }
    return ComparisonContents(
        title=f"{first.name} and {second.name}",
        subtitle="; ".join(f"{side.name}: {side.title}" for side in comparison.sides if side.title),
        facts=[Fact(name, value) for name, value in facts.items()],
        events=[f"skipped {reason}" for reason in comparison.skipped.values()],
        curves=recall_charts(comparison),
        cutoffs=CUTOFFS,
        blocks=_blocks(comparison),
        rsums=[(side.name, measured(side.result, "rsum")) for side in comparison.sides],
        rsum_difference=comparison.difference.differences["rsum"],
        difference_name=f"{second.name} − {first.name}",
        captions=first_captions(comparison, seed),
    )


def recall_charts(comparison: Comparison) -> list[Markup]:
    """R@1 on val against the epoch, a chart a direction, a line a run (Fig. 2)."""
    marks = [mark for line, side in enumerate(comparison.sides) for mark in stage_marks(side.epochs, line)]
    return [
        line_chart(
            {side.name: recall_line(side.epochs, f"{prefix}_r1") for side in comparison.sides},
            title=f"{name.capitalize()} on val",
            x_label="epoch",
            y_label="R@1, percent",
            marks=marks,
        )
        for name, prefix in _DIRECTIONS
    ]


def first_captions(comparison: Comparison, seed: int, shown: int = SHOWN) -> CardSection:
    """Images with a text of their own and the text that each run finds first (Fig. A.1).

    Shown are the images whose ranks are furthest apart, as a ratio, to the advantage of each run, and some at random.
    """
    ranks = [side.result.folds[0].images for side in comparison.sides]
    gain = np.log(ranks[0]) - np.log(ranks[1])  # above 0 where the second run ranks the truth higher
    groups, taken = [], np.zeros(len(gain), bool)
    for side, advantage in ((comparison.second, gain), (comparison.first, -gain)):
        order = np.argsort(-advantage, kind="stable")
        rows = one_a_group(order[advantage[order] > 0], comparison.corpus.image_groups, shown)
        groups.append(Cards(f"{side.name} does better", [_card(comparison, row) for row in rows]))
        taken[rows] = True
    rest = np.random.default_rng(seed).permutation(np.flatnonzero(~taken))
    drawn = one_a_group(rest, comparison.corpus.image_groups, shown)
    groups.append(Cards(f"Drawn at random with seed {seed}", [_card(comparison, row) for row in drawn]))
    note = (
        "GT is the first of the image's own texts; beneath it the text that each run finds first. In brackets the rank "
        "of the first own text, 1 being the best. Shown are the images on which the ranks of the two runs are furthest "
        "apart, as a ratio, and some of the others drawn at random."
    )
    return CardSection(note, groups)


def _blocks(comparison: Comparison) -> list[Block]:
    rows = [(side.name, directions(side.result)) for side in comparison.sides]
    found = comparison.difference.differences
    return [
        Block(
            name,
            [(side, both[place]) for side, both in rows],
            {k: found[f"{prefix}_r{k}"] for k in CUTOFFS},
        )
        for place, (name, prefix) in enumerate(_DIRECTIONS)
    ]


def _card(comparison: Comparison, image: int) -> Card:
    corpus = comparison.corpus
    group = corpus.image_groups[image]
    beside = [Labelled("GT", corpus.texts[int(np.argmax(corpus.text_groups == group))])]
    for side in comparison.sides:
        text = side.first_text(image)
        rank = f"{side.result.folds[0].images[image]:,}"
        beside.append(Labelled(side.name, corpus.texts[text], rank, bool(corpus.text_groups[text] == group)))
    return Card("image to text", corpus.image_ids[image], beside, image_thumbnail(corpus, image))
