"""`diptych index`."""

from __future__ import annotations

import json
from shlex import quote
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from diptych.cli.console import print_note, print_result, progress_bar, stdout
from diptych.cli.index_options import FollowLinks, Ignore, ImageQuality, NoIgnore, Ocr, fresh_options, source_request
from diptych.cli.index_summary import print_status, print_summary
from diptych.cli.options import AllowCode, Device, Devices, Download, Workers
from diptych.cli.places import index_of
from diptych.index.vectors import Storage

_SYNC = "sync"

_HELP = """Index photos for search, keep the index up to date, and check it.

`diptych index RUN SOURCE...` encodes the images of SOURCE with the model RUN into one file. \
Run it again whenever something has changed: only new and changed images are encoded. \
RUN is the folder of a run or of an export, `starter`, which comes with Diptych, or a pretrained pair. \
`diptych index RUN SOURCE --help` shows the options.

Examples:

    diptych index starter ~/Pictures

    diptych index starter ~/Pictures /media/card/DCIM --into all.diptych --ignore '*.gif' --ignore private/

    diptych index runs/first scenes --into scenes.diptych --storage int8

    diptych index status Pictures.diptych

    diptych index doctor Pictures.diptych

    diptych index rebuild Pictures.diptych --run runs/first
"""

IndexFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE|FOLDER", help="An index: its file or address, or a folder that `diptych open` has indexed."
    ),
]


class _Group(TyperGroup):
    """Arguments that do not begin with a command's name are a model and a source."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_SYNC, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == _SYNC else name), command, rest  # the name of this form is not shown


app = typer.Typer(
    cls=_Group,
    help=_HELP,
    no_args_is_help=True,
    subcommand_metavar="RUN SOURCE... [OPTIONS] | status FILE | doctor FILE | rebuild FILE",
)


@app.callback(help=_HELP)
def group() -> None:
    """Index photos, keep the index up to date, and check it."""


@app.command(_SYNC, hidden=True)
def sync_command(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="The folder of a run or an export, starter, or a pretrained pair.")
    ],
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Folders of photos (captions, if any, in dog.txt beside dog.jpg), or a corpus: "
            "a table, a dataset JSON, a folder with captions.csv, 'scenes'. A table's other columns become filters.",
        ),
    ],
    into: Annotated[
        str | None, typer.Option(metavar="FILE", help="The index.", show_default="the first SOURCE's name .diptych")
    ] = None,
    ignore: Ignore = None,
    no_ignore: NoIgnore = False,
    follow_links: FollowLinks = None,
    remove_folder: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="Remove one of several folders from the index; repeatable."),
    ] = None,
    storage: Annotated[
        Storage | None,
        typer.Option(
            help="How vectors are stored: float16 takes half the space of float32, int8 a quarter; "
            "`diptych index status` shows what each costs in recall.",
            show_default="float16",
        ),
    ] = None,
    quality: ImageQuality = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace an existing index.")] = False,
    ocr: Ocr = None,
    workers: Workers = None,
    device: Device = "auto",
    devices: Devices = None,
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Bring an index up to date with its source: encode new and changed images, remove missing ones.

    Renamed and moved images are not encoded again. It can be interrupted at any time: the same command continues.

    Examples:

        diptych index starter ~/Pictures

        diptych index starter ~/Pictures --ocr

        diptych index starter ~/Pictures /media/card/DCIM --into all.diptych

        diptych index starter ~/Pictures --into all.diptych --remove-folder /media/card/DCIM

        diptych index starter ~/Pictures --quality best

        diptych index runs/first captions.csv --into shop.diptych --storage int8

        diptych index starter ~/Pictures --devices 4
    """
    from diptych.index.sources.open import source_name
    from diptych.index.sync import sync
    from diptych.machine import keep_freed_memory
    from diptych.model import Model

    keep_freed_memory()
    request = source_request(sources, ignore, no_ignore, follow_links, remove_folder or ())
    file = into or f"{source_name(sources[0])}.diptych"
    with progress_bar("indexing", "photos") as progress:
        result = sync(
            Model.load(run, device),
            request,
            file,
            storage=storage,
            fresh=fresh,
            quality=quality,
            ocr=ocr,
            workers=workers,
            processes=devices or 1,
            progress=progress,
        )
    again = f"diptych index {quote(run)} {' '.join(map(quote, sources))} --into {quote(file)}"
    if fresh:
        again += f" --fresh{fresh_options(storage, quality, ignore, follow_links)}"
    print_summary(result, file, again)


@app.command("rebuild")
def rebuild_command(
    file: IndexFile,
    run: Annotated[str | None, typer.Option(help="A model other than the one that made it.")] = None,
    workers: Workers = None,
    device: Device = "auto",
    devices: Devices = None,
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Rebuild an index from its images; the old file stays until the new one is complete.

    Examples:

        diptych index rebuild Pictures.diptych

        diptych index rebuild Pictures.diptych --run runs/better
    """
    from diptych.index.sync import rebuild
    from diptych.machine import keep_freed_memory
    from diptych.model import Model

    keep_freed_memory()
    file = index_of(file)
    with progress_bar("indexing", "photos") as progress:
        model = None if run is None else Model.load(run, device)
        result = rebuild(file, model, workers=workers, processes=devices or 1, progress=progress)
    other = "" if run is None else f" --run {quote(run)}"
    print_summary(result, file, f"diptych index rebuild {quote(file)}{other}")


@app.command("doctor")
def doctor_command(file: IndexFile) -> None:
    """Check an index: the file, every vector against its checksum, thumbnails, and references.

    Prints one line per fault, and exits with 1 if there is any.

    Examples:

        diptych index doctor Pictures.diptych
    """
    from diptych.index.backend import locate

    file = index_of(file)
    with progress_bar("checking") as progress:
        faults = list(locate(file).examine(progress))
    for fault in faults:
        print_result(fault)
    if faults:
        count = "1 fault" if len(faults) == 1 else f"{len(faults):,} faults"
        print_note(f"{count}; rebuild it from the images: diptych index rebuild {quote(file)}")
        raise typer.Exit(1)
    print_result(f"{file}: sound")


@app.command("status")
def status_command(
    file: IndexFile, as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False
) -> None:
    """Show what an index holds, its model and source, what its storage costs, and which files were skipped.

    Examples:

        diptych index status Pictures.diptych

        diptych index status Pictures.diptych --json
    """
    from diptych.index.search import open_store
    from diptych.index.status import status

    store = open_store(index_of(file))
    try:
        found = status(store)
    finally:
        store.close()
    if as_json:
        stdout.print_json(json.dumps(found))
    else:
        print_status(found)
