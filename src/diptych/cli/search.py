"""`diptych search`."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from diptych.cli.console import print_note, printable, stdout
from diptych.cli.options import Device
from diptych.errors import DataError

if TYPE_CHECKING:
    from diptych.index.entries import Answer, SearchRequest
    from diptych.index.search import Searcher
    from diptych.index.sqlite.store import Store

_WIDE = 10_000  # columns for a program that reads the table: nothing of a name or a caption is cut off


def command(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="The file of an index, made by `diptych index`.")],
    question: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="What to look for, in words.")] = None,
    image: Annotated[Path | None, typer.Option(help="Ask with an image file instead of words.")] = None,
    like: Annotated[int | None, typer.Option(metavar="ID", help="Ask with an entry of the index.")] = None,
    to: Annotated[Literal["images", "texts"], typer.Option(help="What to find.")] = "images",
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="How many hits.")] = 10,
    folder: Annotated[str | None, typer.Option(help="Only what lies in this folder of the source.")] = None,
    since: Annotated[str | None, typer.Option(metavar="DAY", help="Only images since a day, as 2026-11-16.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="Only images until a day.")] = None,
    split: Annotated[str | None, typer.Option(help="Only this split.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Only images of which the source's table says so; repeatable."),
    ] = None,
    sheet: Annotated[Path | None, typer.Option(help="Write the found images as one picture (PNG).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    run: Annotated[str | None, typer.Option(help="The model's run or export, if it has moved since.")] = None,
    rerank: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many a model that compares sets puts in order itself.")
    ] = 1000,
    ivf: Annotated[
        Literal["auto", "always", "never"],
        typer.Option(help="Use a FAISS cache: if a large index has one, always (made if need be), or never."),
    ] = "auto",
    device: Device = "auto",
) -> None:
    """Ask an index: images or texts for words, for an image file, or for an entry of its own.

    Examples:

        diptych search photos.diptych "two dogs on a beach" --sheet hits.png

        diptych search photos.diptych --image holiday.jpg --to texts -k 3

        diptych search photos.diptych --like 17 --folder 2025/summer
    """
    if sum(way is not None for way in (question, image, like)) != 1:
        raise DataError("ask with a text, with --image or with --like, one of the three")
    if sheet is not None and (to == "texts" or sheet.suffix != ".png" or not sheet.parent.is_dir()):
        raise DataError(f"--sheet {sheet}: needs found images, and the name of a .png file in a folder that is there")
    from diptych.index.entries import Filters, SearchRequest
    from diptych.index.search import open_index
    from diptych.machine import keep_freed_memory

    keep_freed_memory()
    filters = Filters(folder, since, until, split, _columns(where or []))
    ask = SearchRequest("image" if to == "images" else "text", k, filters)
    searcher = open_index(index, run, device, ivf=ivf, builds=False, reranked=rerank)
    store = searcher.store
    try:
        answer = _answer(searcher, ask, question, image, like)
        for line in searcher.notes():
            print_note(line)
        _tell(searcher, answer, question, to)
        if as_json:
            unknown = {} if question is None else {"unknown": searcher.unknown_words(question)}
            stdout.print_json(json.dumps({**answer.to_json(), **unknown}))
        else:
            (stdout if stdout.is_terminal else Console(width=_WIDE)).print(_table(store, answer, to))
        if sheet is not None:
            _write_sheet(sheet, store, answer)
    finally:
        store.close()


def _columns(where: Sequence[str]) -> tuple[tuple[str, str], ...]:
    for words in where:
        if not words.partition("=")[0] or "=" not in words:
            raise DataError(f"--where {words}: write it as column=value")
    parts = [words.partition("=") for words in where]
    return tuple((column, value) for column, _, value in parts)


def _answer(
    searcher: Searcher, ask: SearchRequest, question: str | None, image: Path | None, like: int | None
) -> Answer:
    from diptych.data.images import decode
    from diptych.index.opened import decoded_for

    if question is not None:
        return searcher.search_texts([question], ask)[0]
    if image is not None:
        return searcher.search_image(decode(image, decoded_for(searcher.encoder)), ask)
    assert like is not None
    return searcher.search_similar(like, ask)


def _tell(searcher: Searcher, answer: Answer, question: str | None, to: str) -> None:
    """What a person should know beside the hits."""
    if question is not None and (unknown := searcher.unknown_words(question)):
        print_note(f"not in the model's vocabulary: {', '.join(unknown)}")
    if question is not None and _knows_none(searcher, question):
        print_note("the model knows no word of the question: these are as good as the answers to an empty text")
    how = " by way of an IVF" if answer.method == "ivf" else ""
    print_note(f"searched {answer.searched:,} {to}{how}")
    if not answer.searched:
        print_note(f"there are no {to} to find, in the index or within the filters")
    elif not answer.hits:
        print_note("nothing else is in the index: all of it shows the same")
    elif not answer.found:
        asked = repr(question) if question is not None else "it"
        print_note(f"nothing stands out for {asked}: the hits are no better than chance would have it")


def _knows_none(searcher: Searcher, question: str) -> bool:
    from diptych.text.tokenisers.treebank import tokenise

    return not searcher.encoder.known(tokenise(question)).any()


def _table(store: Store, answer: Answer, to: str) -> Table:
    captions = store.captions([hit.entry.id for hit in answer.hits]) if to == "images" else {}
    table = Table("", "id", "score", "image" if to == "images" else "of", "near", "text", box=None, pad_edge=False)
    for number, hit in enumerate(answer.hits, 1):
        text = hit.entry.text or next(iter(captions.get(hit.entry.id, [])), "")
        near = f"+{len(hit.near)}" if hit.near else ""
        cells = [str(number), str(hit.entry.id), f"{hit.score:.3f}", hit.entry.key, near, text]
        style = "" if hit.stands_out else "dim"
        table.add_row(*(Text(printable(cell)) for cell in cells), style=style)
    return table


def _write_sheet(path: Path, store: Store, answer: Answer) -> None:
    from PIL import Image

    from diptych.data.images import DecodedPicture
    from diptych.report.pictures import contact_sheet

    thumbnails = [(hit, store.thumbnail(hit.entry.id)) for hit in answer.hits]
    shown = [(hit, jpeg) for hit, jpeg in thumbnails if jpeg is not None]
    pictures = [DecodedPicture(Image.open(io.BytesIO(jpeg)).convert("RGB")) for _, jpeg in shown]
    contact_sheet(path, pictures, [f"{hit.score:.3f}" for hit, _ in shown])
    print_note(f"wrote {path}")
