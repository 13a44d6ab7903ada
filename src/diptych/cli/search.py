"""`diptych search`."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from diptych.cli.console import print_note, printable, stdout
from diptych.cli.options import AllowCode, Device, Download, Index, SearchCodes
from diptych.cli.places import index_of
from diptych.cli.search_paths import print_paths, with_paths
from diptych.cli.search_words import SearchCommand, query_text
from diptych.data.video_header import clock
from diptych.errors import DataError
from diptych.index.entries import DEFAULT_K, Method, Mode
from diptych.index.frames import file_key

if TYPE_CHECKING:
    from diptych.index.backend import IndexStore
    from diptych.index.entries import Answer, Entry, SearchRequest
    from diptych.index.search import Searcher

COMMAND_CLASS = SearchCommand
_MODE_HELP = (
    "Find images by meaning, by exact words in captions, names, folders and pictures, or by both; auto is both if the "
    "index has captions or words in pictures (`diptych index --ocr`), and else meaning."
)
METHODS: dict[Method, str] = {
    "exact": "",
    "ivf": " with an IVF",
    "int8": " by int8 codes",
    "pq": " with an IVF and product quantisation",
    "approximate": " approximately",
}
BY_WORDS = "Some images have these words in their name, folder or captions; --mode words finds them."
_WIDE = 10_000  # columns if a program reads the table: no name or caption is truncated


def command(
    index: Index,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="What to search for, in words; quotes are not needed."),
    ] = None,
    image: Annotated[Path | None, typer.Option(help="Search with an image file; words are added to it.")] = None,
    like: Annotated[
        int | None, typer.Option(metavar="ID", help="Search with an entry of the index; words are added to it.")
    ] = None,
    more: Annotated[
        list[int] | None, typer.Option(metavar="ID", help="More like this image of the index; repeatable.")
    ] = None,
    less: Annotated[
        list[int] | None, typer.Option(metavar="ID", help="Less like this image of the index; repeatable.")
    ] = None,
    mode: Annotated[
        Mode,
        typer.Option(help=_MODE_HELP),
    ] = "auto",
    to: Annotated[Literal["images", "texts"], typer.Option(help="What to find.")] = "images",
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="How many hits.")] = DEFAULT_K,
    cursor: Annotated[
        str | None, typer.Option(metavar="NEXT", help="Continue an answer: `next` of its --json, for the same search.")
    ] = None,
    folder: Annotated[str | None, typer.Option(help="Only entries in this folder of the source.")] = None,
    since: Annotated[str | None, typer.Option(metavar="DAY", help="Only images since a day, as 2026-11-16.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="Only images until a day.")] = None,
    split: Annotated[str | None, typer.Option(help="Only this split.")] = None,
    album: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only images of this album; Favourites is one.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Only images with this value in the source's table; repeatable."),
    ] = None,
    sheet: Annotated[Path | None, typer.Option(help="Write the found images as one picture (PNG).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON, with absolute paths.")] = False,
    paths: Annotated[bool, typer.Option("--paths", help="Print only absolute paths of files, one per line.")] = False,
    null: Annotated[
        bool, typer.Option("--null", "-0", help="Like --paths, but separated by NUL, for `xargs -0`.")
    ] = False,
    run: Annotated[str | None, typer.Option(help="The model's run or export, if it has moved.")] = None,
    rerank: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many hits are re-ranked by models that compare sets.")
    ] = 1000,
    ivf: Annotated[
        Literal["auto", "always", "never"],
        typer.Option(help="Use a FAISS cache: if a large index has one, always (built if missing), or never."),
    ] = "auto",
    codes: SearchCodes = "auto",
    device: Device = "auto",
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Search an index for images or texts: by words, by an image file or an entry, or by a picture plus words.

    Examples:

        diptych search photos.diptych two dogs on a beach --sheet hits.png

        diptych search ~/Pictures two dogs on a beach

        diptych search photos.diptych --image holiday.jpg --to texts -k 3

        diptych search photos.diptych at night --image holiday.jpg

        diptych search photos.diptych --like 17 --folder 2025/summer

        diptych search photos.diptych a dog --more 17 --more 4 --less 9

        diptych search photos.diptych sunset --album Holiday --paths

        diptych search photos.diptych red car -0 | xargs -0 cp -t red-cars
    """
    text = query_text(words)
    if image is not None and like is not None:
        raise DataError("search with --image or with --like, not both; words may be added to either")
    if text is None and image is None and like is None and not more:
        raise DataError("search with words, with --image, with --like or with --more")
    if sheet is not None and (to == "texts" or sheet.suffix != ".png" or not sheet.parent.is_dir()):
        raise DataError(f"--sheet {sheet}: name a .png file in an existing folder, and search for images")
    if (paths or null) and (as_json or to == "texts"):
        raise DataError("--paths prints files only: search for images, and leave out --json, which has the paths too")
    from diptych.index.albums import find_album
    from diptych.index.entries import Filters, Kind, SearchRequest, column_filters
    from diptych.index.search import open_index
    from diptych.machine import keep_freed_memory

    keep_freed_memory()
    filters = Filters(folder, since, until, split, column_filters(where or []))
    kind: Kind = "image" if to == "images" else "text"
    marked = tuple(more or ()), tuple(less or ())
    request = SearchRequest(kind, k, filters, mode=mode, cursor=cursor, more=marked[0], less=marked[1])
    if text is not None and (image is not None or like is not None):
        request = replace(request, added=text)
    searcher = open_index(index_of(index), run, device, ivf=ivf, build_ivf=False, rerank=rerank, codes=codes)
    store = searcher.store
    try:
        if album is not None:
            request = replace(request, filters=replace(filters, album=find_album(store, album)))
        answer = _answer(searcher, request, text, image, like)
        _print_notes(searcher, answer, to)
        if paths or null:
            print_paths(answer, "\0" if null else "\n")
        elif as_json:
            unknown = {} if text is None else {"unknown": list(answer.unknown_words)}
            stdout.print_json(json.dumps({**with_paths(answer), **unknown}))
        else:
            _print_table(store, answer, to)
        if sheet is not None:
            _write_sheet(sheet, store, answer)
    finally:
        store.close()


def _answer(
    searcher: Searcher, request: SearchRequest, text: str | None, image: Path | None, like: int | None
) -> Answer:
    if image is not None:
        return searcher.search_file(image, request)
    if like is not None:
        return searcher.search_similar(like, request)
    return searcher.search_more(request) if text is None else searcher.search_texts([text], request)[0]


def _print_notes(searcher: Searcher, answer: Answer, to: str) -> None:
    for note in searcher.notes():
        print_note(note)
    print_note(f"searched {answer.searched:,} {to}{METHODS[answer.method]}")
    if answer.message is not None:
        print_note(answer.message)
    if answer.words_exist:
        print_note(BY_WORDS)
    if answer.suggestion is not None:
        print_note(f"did you mean: {printable(answer.suggestion)}?")


def _print_table(store: IndexStore, answer: Answer, to: str) -> None:
    if answer.hits:  # otherwise a note has said that there are none
        (stdout if stdout.is_terminal else Console(width=_WIDE)).print(_table(store, answer, to))


def _table(store: IndexStore, answer: Answer, to: str) -> Table:
    captions = store.captions([hit.entry.id for hit in answer.hits]) if to == "images" else {}
    table = Table("", "id", "fit", "image" if to == "images" else "of", "near", "text", box=None, pad_edge=False)
    for number, hit in enumerate(answer.hits, 1):
        text = hit.entry.text or next(iter(captions.get(hit.entry.id, [])), "")
        near = f"+{len(hit.near)}" if hit.near else ""
        cells = [str(number), str(hit.entry.id), hit.fit or f"{hit.score:.3f}", _name(hit.entry), near, text]
        style = "" if hit.stands_out else "dim"
        table.add_row(*(Text(printable(cell)) for cell in cells), style=style)
    return table


def _name(entry: Entry) -> str:
    """The key of an entry; that of a frame with its time as players show it."""
    if entry.moment is None:
        return entry.key
    return f"{file_key(entry.key, entry.moment)} {clock(entry.moment)}"


def _write_sheet(path: Path, store: IndexStore, answer: Answer) -> None:
    from PIL import Image

    from diptych.data.images import DecodedPicture
    from diptych.report.contact_sheet import contact_sheet

    thumbnails = [(hit, store.thumbnail(hit.entry.id)) for hit in answer.hits]
    shown = [(hit, jpeg) for hit, jpeg in thumbnails if jpeg is not None]
    pictures = [DecodedPicture(Image.open(io.BytesIO(jpeg)).convert("RGB")) for _, jpeg in shown]
    contact_sheet(path, pictures, [f"{hit.score:.3f}" for hit, _ in shown])
    print_note(f"wrote {path}")
