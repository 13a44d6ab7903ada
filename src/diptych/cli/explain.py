"""`diptych explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from diptych.cli.console import print_note, stdout
from diptych.cli.options import AllowCode, Device, Download, Features, Run
from diptych.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from diptych.model import Model
    from diptych.models.explain.word_importance import Explanation

# The smallest importance, relative to the largest, for which a style is used; styles of positive and negative words.
_STYLES = ((0.5, "bold green", "bold red"), (0.15, "green", "red"))


def command(
    run: Run,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="An image file, or an image's id in --data.")],
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="What to explain, such as 'a red ball'.")],
    top: Annotated[
        int | None, typer.Option(min=1, help="The number of words in the table.", show_default="all")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="The corpus of IMAGE, for a run that reads stored features.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the words as JSON.")] = False,
    features: Features = Path("features"),
    device: Device = "auto",
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Show how important each word of a sentence is for its score with an image.

    The importance of a word is the drop of the score when the word is left out. Important words are green, words with a
    negative importance red, and words that the model does not know faint.

    Examples:

        diptych explain runs/first holiday.jpg "two dogs on a beach"

        diptych explain runs/first test-00003-0 "two red circles" --data scenes --top 3

        diptych explain runs/scan test/00017 "a dog on grass" --data data/precomputed --json
    """
    from diptych.machine import keep_freed_memory
    from diptych.model import Model

    keep_freed_memory()
    model = Model.load(run, device, stores=features)
    found = model.explain(_find_image(model, image, data), sentence)
    if found.unknown:
        print_note(f"not known to the model: {', '.join(found.unknown)}")
    if as_json:
        content = {"image": image, **found.to_json()}
        content["by_importance"] = content["by_importance"][:top]
        stdout.print_json(json.dumps(content))
        return
    stdout.print(f"score {found.score:.3f}", highlight=False)
    stdout.print(_coloured(found), soft_wrap=True)
    stdout.print(_table(found, top))


def _find_image(model: Model, image: str, data: str | None) -> Tensor | Path:
    """The encoding of an image of the corpus, (1, ...), by the image's id, or the image file."""
    import numpy as np

    from diptych.data.open import open_corpus

    if data is not None:
        corpus = open_corpus(data)
        if image in corpus.image_ids:
            row = np.array([list(corpus.image_ids).index(image)])
            return model.torch_engine.encode_corpus_images(corpus.take(row, np.arange(0)), 0)[0]
        if not Path(image).exists():
            raise DataError(f"{image}: neither the id of an image of {corpus.name} nor a file")
    if not model.engine.reads_pictures:
        raise DataError(f"{image}: the run reads stored features; name the corpus with --data, and an image by its id")
    return Path(image)


def _coloured(found: Explanation) -> Text:
    """The sentence with its words coloured by importance; unknown words are faint."""
    largest = max(abs(word.importance) for word in found.by_importance if word.importance is not None)
    line = Text()
    for word in found.words:
        line.append(word.word, "dim italic" if word.importance is None else _style(word.importance, largest))
        line.append(" ")
    return line


def _style(importance: float, largest: float) -> str:
    for threshold, positive, negative in _STYLES:
        if abs(importance) >= threshold * largest > 0:
            return positive if importance > 0 else negative
    return ""


def _table(found: Explanation, top: int | None) -> Table:
    table = Table("", "word", box=None, pad_edge=False)
    table.add_column("importance", justify="right")
    for number, word in enumerate(found.by_importance[:top], 1):
        table.add_row(str(number), Text(word.word), f"{word.importance:+.4f}")
    return table
