"""Two runs on the same images and texts: their recalls, the differences, and what each finds first."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from diptych.data.corpus import Corpus
from diptych.errors import DataError, RunError
from diptych.evaluation.paired import Difference, Paired, paired
from diptych.evaluation.protocols import Result
from diptych.evaluation.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE
from diptych.evaluation.runs import evaluate_encoded
from diptych.models.encoded import Encoded
from diptych.models.trained import Trained
from diptych.report.epochs import Epoch, read_epochs
from diptych.training.recipe import load_recipe

# Encodes a corpus with a run, whose name is given to tell people what is being done.
Encode = Callable[[str, Trained, Corpus], Encoded]


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two runs: what it is called here, how its training went, and what it reached."""

    name: str
    title: str
    epochs: list[Epoch]
    encoded: Encoded
    result: Result

    def first_text(self, image: int) -> int:
        """The text that is found first for an image; where a negative ties with the best positive, the negative."""
        scores = self._scores(image)
        right = torch.from_numpy(self.encoded.text_groups == self.encoded.image_groups[image])
        wanted = right if self.result.folds[0].images[image] == 1 else ~right
        return int(scores.masked_fill(~wanted, -torch.inf).argmax())

    @torch.inference_mode()
    def _scores(self, image: int) -> torch.Tensor:
        return self.encoded.matcher().score(self.encoded.images[image : image + 1], self.encoded.texts)[0].cpu()


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two runs measured on the same images and texts; differences are the second minus the first.

    `skipped` says of the images that one of the runs could not read why, by their names.
    """

    corpus: Corpus
    split: str
    first: Side
    second: Side
    difference: Paired
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both runs, in the order in which they were named."""
        return self.first, self.second

    def render(self) -> Table:
        """A table for people: a column a run and one for the difference, a row a metric."""
        images, texts = len(self.corpus.image_ids), len(self.corpus.texts)
        title = f"{escape(self.corpus.name)}, split {self.split}: {images:,} images, {texts:,} texts"
        table = Table(title=title, box=SIMPLE_HEAD)
        table.add_column("", no_wrap=True)
        for name in (*(escape(side.name) for side in self.sides), "difference"):
            table.add_column(name, justify="right", overflow="fold")
        for label, prefix in (("image to text", IMAGE_TO_TEXT), ("text to image", TEXT_TO_IMAGE)):
            table.add_row(f"[bold]{label}[/]")
            for cutoff in CUTOFFS:
                self._row(table, f"R@{cutoff}", f"{prefix}_r{cutoff}")
            self._row(table, "median rank", f"{prefix}_median")
            self._row(table, "mean rank", f"{prefix}_mean")
            table.add_section()
        self._row(table, "[bold]rsum[/]", "rsum")
        table.caption = (
            f"{100 * self.difference.level:g}% intervals from {self.difference.draws:,} draws of groups, "
            "the same for both runs; a difference whose interval holds 0 is no finding"
        )
        return table

    def _row(self, table: Table, label: str, name: str) -> None:
        """One metric of both runs, with its intervals and the difference where there are such."""
        cells = []
        for side in self.sides:
            low, high = side.result.intervals.bounds.get(name, (None, None))
            span = "" if low is None else f" [dim]{low:.1f}–{high:.1f}[/]"
            cells.append(f"{side.result.metrics.to_json()[name]:.1f}{span}")
        difference = self.difference.differences.get(name)
        table.add_row(label, *cells, "" if difference is None else _cell(difference))


def compare(
    run: Path, other: Path, corpus: Corpus, split: str = "test", *, device: str = "auto", encode: Encode | None = None
) -> Comparison:
    """Measure two runs on the images of a split that both can read."""
    if run.resolve() == other.resolve():
        raise RunError(f"{run}: the same run twice; name two different runs")
    encode = encode or (lambda _, trained, part: trained.encode(part))
    names = (run.name, other.name) if run.name != other.name else (str(run), str(other))
    epochs = [_epochs(folder) for folder in (run, other)]
    trained = [Trained.open(folder, device) for folder in (run, other)]
    part = corpus.split(split).matched()
    encoded = [encode(name, model, part) for name, model in zip(names, trained, strict=True)]
    skipped = {image: reason for each in encoded for image, reason in each.skipped.items()}
    shared = _without(part, skipped)
    if any(set(each.skipped) != set(skipped) for each in encoded):
        encoded = [encode(name, model, shared) for name, model in zip(names, trained, strict=True)]
    results = [evaluate_encoded([each]) for each in encoded]
    titles = [load_recipe(str(folder / "recipe.toml")).title for folder in (run, other)]
    first, second = map(Side, names, titles, epochs, encoded, results)
    difference = paired(first.result.folds, second.result.folds)
    return Comparison(shared, split, first, second, difference, skipped)


def _epochs(run: Path) -> list[Epoch]:
    epochs = read_epochs(run)
    if run.is_dir() and not epochs:
        raise RunError(f"{run / 'metrics.jsonl'}: no finished epoch to compare; train the run first, or go on with it")
    return epochs


def _without(part: Corpus, skipped: Collection[str]) -> Corpus:
    """What is left of a corpus where some images cannot be read by one of the runs."""
    images = np.array([row for row, name in enumerate(part.image_ids) if name not in skipped], np.int64)
    kept = part.take(images, np.arange(len(part.texts))).matched()
    if not len(kept.texts):
        raise DataError(f"{part.name}: no image can be read by both runs; `diptych data check` says why")
    return kept


def _cell(difference: Difference) -> str:
    value = f"[bold]{difference.value:+.1f}[/]" if difference.found else "no finding"
    return f"{value} [dim]{difference.low:+.1f} to {difference.high:+.1f}[/]"
