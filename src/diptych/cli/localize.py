"""`diptych localize`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from diptych.cli.console import print_note, stdout
from diptych.cli.options import AllowCode, Device, Run
from diptych.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

    from diptych.models.explain.localise import LocatedRegion


def command(
    run: Run,
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="An image file.")],
    phrases: Annotated[list[str], typer.Argument(metavar="PHRASE", help="What to find, such as 'a red ball'.")],
    top: Annotated[int, typer.Option(min=1, help="The number of boxes per phrase.")] = 1,
    into: Annotated[
        Path | None,
        typer.Option("--out", help="The picture to write (PNG).", show_default="IMAGE's name with -localized.png"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the boxes as JSON.")] = False,
    device: Device = "auto",
    _allowed_code: AllowCode = None,
) -> None:
    """Find phrases in an image: print their boxes, and write a copy of the image with the boxes drawn.

    A box is left, top, right, bottom in pixels of the image. RUN must have been trained on phrases.

    Examples:

        diptych localize runs/phrases holiday.jpg "a red ball"

        diptych localize runs/phrases holiday.jpg "a man" "his hat" --top 3 --out found.png

        diptych localize runs/phrases holiday.jpg "a red ball" --json
    """
    from diptych.data.images import decode
    from diptych.machine import keep_freed_memory
    from diptych.model import Model

    keep_freed_memory()
    into = _output_file(image, into)
    found = Model.load(run, device).localize(image, phrases, top)
    regions_by_phrase = list(zip(phrases, found, strict=True))
    photo = decode(image)
    if as_json:
        stdout.print_json(json.dumps(_json(image, photo.size, regions_by_phrase, into)))
    else:
        for phrase, regions in regions_by_phrase:
            stdout.print(_table(phrase, regions))
    _draw(photo, regions_by_phrase, into)
    print_note(f"wrote {into}")


def _output_file(image: Path, into: Path | None) -> Path:
    """The file to write, checked before anything is computed."""
    target = Path(f"{image.stem}-localized.png") if into is None else into
    if target.suffix.lower() != ".png" or target.is_dir() or not target.parent.is_dir():
        raise DataError(f"--out {target}: name a .png file in an existing folder")
    if target.exists() and image.exists() and target.samefile(image):
        raise DataError(f"--out {target}: is the input image; name another file")
    return target


def _table(phrase: str, regions: list[LocatedRegion]) -> Table:
    table = Table(title=Text(phrase, style="bold"), title_justify="left", box=None, pad_edge=False)
    for name in ("", "left", "top", "right", "bottom", "score"):
        table.add_column(name, justify="right")
    for number, region in enumerate(regions, 1):
        table.add_row(str(number), *(f"{edge:.0f}" for edge in region.box), f"{region.score:.3f}")
    return table


def _json(
    image: Path, size: tuple[int, int], regions_by_phrase: list[tuple[str, list[LocatedRegion]]], into: Path
) -> dict[str, Any]:
    phrases = [
        {"phrase": phrase, "places": [{"box": list(region.box), "score": region.score} for region in regions]}
        for phrase, regions in regions_by_phrase
    ]
    return {"image": str(image), "width": size[0], "height": size[1], "phrases": phrases, "picture": str(into)}


def _draw(photo: Image, regions_by_phrase: list[tuple[str, list[LocatedRegion]]], into: Path) -> None:
    from diptych.files import atomic_write
    from diptych.report.box_overlay import BOX_COLOURS, LabelledBox, draw_boxes

    boxes = [
        LabelledBox(region.box, phrase if number == 1 else f"{phrase} ({number})", BOX_COLOURS[row % len(BOX_COLOURS)])
        for row, (phrase, regions) in enumerate(regions_by_phrase)
        for number, region in enumerate(regions, 1)
    ]
    with atomic_write(into) as temporary:
        draw_boxes(photo, boxes).save(temporary, format="PNG")
