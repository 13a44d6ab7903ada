"""`diptych search`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from diptych.cli.console import bar, note, out, say_skipped
from diptych.cli.options import Data, Device, Features, Run
from diptych.errors import DataError

if TYPE_CHECKING:
    from diptych.index.search import Gallery, Hit


def command(
    run: Run,
    data: Data,
    question: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="A sentence to find images for.")] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", help="Find texts instead: an image file, or an image's id in DATA."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many answers.")] = 5,
    split: Annotated[str | None, typer.Option(help="Search only this split.", show_default="all of DATA")] = None,
    sheet: Annotated[Path | None, typer.Option(help="Write the found images as one picture (PNG).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
    features: Features = Path("features"),
    device: Device = "auto",
) -> None:
    """Ask a run: images for a sentence, or sentences for an image.

    Examples:

        diptych search runs/first scenes "two red circles" --sheet hits.png

        diptych search runs/first scenes --image test-00003-0

        diptych search runs/first scenes --image holiday.jpg -k 3
    """
    from diptych.data.open import open_corpus
    from diptych.index.search import Gallery
    from diptych.machine import keep_freed_memory
    from diptych.models.trained import Trained

    keep_freed_memory()
    if (question is None) == (image is None):
        raise DataError("ask with a sentence or with --image, one of the two")
    if sheet is not None and (image is not None or sheet.suffix != ".png" or not sheet.parent.is_dir()):
        raise DataError(f"--sheet {sheet}: needs a sentence, and the name of a .png file in a folder that is there")
    trained = Trained.open(run, device, stores=features)
    corpus = open_corpus(data) if split is None else open_corpus(data).split(split)
    with bar("encoding") as watch:
        gallery = Gallery(trained, corpus, watch=watch)
        hits = gallery.find_texts(image, k) if image is not None else gallery.find_images(str(question), k)
    say_skipped(gallery.skipped)
    if question is not None and (unknown := gallery.unknown_words(question)):
        note(f"not in the model's vocabulary: {', '.join(unknown)}")
    if question is not None and not trained.known([question]).all():
        note("the model knows no word of the question: these are as good as the answers to an empty text")
    found, of = ("images", len(corpus.image_ids)) if question is not None else ("texts", len(corpus.texts))
    note(f"searched {of - len(gallery.skipped):,} {found}")
    if as_json:
        out.print_json(json.dumps([{"id": hit.name, "score": hit.score} for hit in hits]))
    else:
        out.print(_table(hits, "image" if question is not None else "text"))
    if sheet is not None:
        _write_sheet(sheet, gallery, hits)


def _table(hits: list[Hit], what: str) -> Table:
    table = Table("", what, "score", box=None, pad_edge=False)
    for number, hit in enumerate(hits, 1):
        table.add_row(str(number), Text(hit.name), f"{hit.score:.3f}")  # as it is: a caption may hold anything
    return table


def _write_sheet(path: Path, gallery: Gallery, hits: list[Hit]) -> None:
    from diptych.report.pictures import contact_sheet

    if gallery.corpus.pictures is None:
        raise DataError(f"--sheet: {gallery.corpus.name} has no pictures")
    pictures = [gallery.corpus.pictures[hit.row] for hit in hits]
    contact_sheet(path, pictures, [f"{hit.score:.3f}" for hit in hits])
    note(f"wrote {path}")
