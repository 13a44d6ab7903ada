"""The report of a run: gathers what the run left and what it answered, and writes `report.html`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diptych import __version__
from diptych.data.corpus import Corpus, Integers
from diptych.errors import ScoreError
from diptych.evaluation.protocols import Result
from diptych.index.search import Hit
from diptych.models.encoded import Encoded
from diptych.report.curves import line_chart
from diptych.report.page import (
    Answer,
    Contents,
    Direction,
    DirectionName,
    Example,
    Fact,
    Measure,
    Question,
    write_page,
)
from diptych.report.pictures import thumbnail
from diptych.training.journal import Journal
from diptych.training.recipe import load_recipe

EXAMPLES = 4
ANSWERS = 5


def write_report(
    run: Path, encoded: Encoded, result: Result, split: str, questions: Sequence[tuple[str, Sequence[Hit]]] = ()
) -> Path:
    """Write a run's report.html from its journal, a result on one gallery, and some answered questions."""
    corpus = encoded.corpus
    if corpus is None:
        raise ScoreError("a report needs the corpus, not encodings read from a file")
    recipe = load_recipe(str(run / "recipe.toml"))
    epochs = [line for line in Journal(run).lines() if line["event"] == "epoch"]
    events = [line["message"] for line in Journal(run).lines() if "message" in line]
    seconds = sum(line["seconds"] for line in epochs)
    facts = {
        "data": f"{corpus.name}, split {split}",
        "images": f"{len(corpus.image_ids):,}",
        "texts": f"{len(corpus.texts):,}",
        "epochs": str(len(epochs)),
        "training time": f"{seconds / 60:.1f} min",
        "diptych": __version__,
    }
    examples = Examples(encoded, corpus, result)
    contents = Contents(
        title=run.name,
        subtitle=recipe.title,
        facts=[Fact(name, value) for name, value in facts.items()],
        events=[*events, *(f"skipped {reason}" for reason in encoded.skipped.values())],
        directions=_directions(result),
        rsum=_measure(result.to_json(), "rsum"),
        curves=_curves(epochs),
        questions=[_question(corpus, text, hits) for text, hits in questions],
        best=examples.chosen(best=True),
        worst=examples.chosen(best=False),
        recipe=recipe.to_toml(),
    )
    path = run / "report.html"
    write_page(path, contents)
    return path
