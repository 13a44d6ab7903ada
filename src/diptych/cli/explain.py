"""`diptych explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from diptych.cli.console import print_note, stdout
from diptych.cli.options import Device, Features, Run
from diptych.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from diptych.evaluation.analyses.word_importance import Explanation
    from diptych.models.trained import Trained

# The smallest share of the largest importance that a style tells, for words that help and for words that harm.
_STYLES = ((0.5, "bold green", "bold red"), (0.15, "green", "red"))


def command(
    run: Run,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="An image file, or an image's id in --data.")],
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="What to explain, such as 'a red ball'.")],
    top: Annotated[int | None, typer.Option(min=1, help="How many words in the table.", show_default="all")] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="The corpus of IMAGE, for a run that reads stored features.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the words as JSON.")] = False,
    features: Features = Path("features"),
    device: Device = "auto",
) -> None:
    """Tell which words of a sentence an image is found by: each is left out once, and its importance is what is lost.

    Words that help are green, words without which the score would be higher are red, and unknown words are faint.

    Examples:

        diptych explain runs/first holiday.jpg "two dogs on a beach"

        diptych explain runs/first test-00003-0 "two red circles" --data scenes --top 3

        diptych explain runs/scan test/00017 "a dog on grass" --data data/precomputed --json
    """
    from diptych.evaluation.analyses.word_importance import explain
    from diptych.machine import keep_freed_memory
    from diptych.models.trained import Trained

    keep_freed_memory()
    trained = Trained.open(run, device, stores=features)
    found = explain(trained, _encoded(trained, image, data), sentence)
    if found.unknown:
        print_note(f"not known to the model: {', '.join(found.unknown)}")
    if as_json:
        told = {"image": image, **found.to_json()}
        told["by_importance"] = told["by_importance"][:top]
        stdout.print_json(json.dumps(told))
        return
    stdout.print(f"score {found.score:.3f}", highlight=False)
    stdout.print(_coloured(found), soft_wrap=True)
    stdout.print(_table(found, top))


def _encoded(trained: Trained, image: str, data: str | None) -> Tensor:
    """An image of the corpus by its id, or a picture file: (1, ...)."""
    import numpy as np

    from diptych.data.images import PictureFile
    from diptych.data.open import open_corpus

    if data is not None:
        corpus = open_corpus(data)
        if image in corpus.image_ids:
            row = np.array([list(corpus.image_ids).index(image)])
            return trained.encode_images(corpus.take(row, np.arange(0)), 0)[0]
        if not Path(image).exists():
            raise DataError(f"{image}: no image of {corpus.name} has this id, and there is no such file")
    if trained.matcher.image_input.kind == "features":
        raise DataError(
            f"{image}: the run reads features that came with its data; name that data with --data, and an image's id"
        )
    return trained.encode_picture(PictureFile(Path(image)))


def _coloured(found: Explanation) -> Text:
    """The sentence, each word in the colour of its importance; those that are unknown are faint."""
    largest = max(abs(word.importance) for word in found.by_importance if word.importance is not None)
    line = Text()
    for word in found.words:
        line.append(word.word, "dim italic" if word.importance is None else _style(word.importance, largest))
        line.append(" ")
    return line


def _style(importance: float, largest: float) -> str:
    for share, helps, harms in _STYLES:
        if abs(importance) >= share * largest > 0:
            return helps if importance > 0 else harms
    return ""


def _table(found: Explanation, top: int | None) -> Table:
    table = Table("", "word", box=None, pad_edge=False)
    table.add_column("importance", justify="right")
    for number, word in enumerate(found.by_importance[:top], 1):
        table.add_row(str(number), Text(word.word), f"{word.importance:+.4f}")
    return table
