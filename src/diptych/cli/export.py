"""`diptych export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.console import print_result
from diptych.cli.options import AllowCode, Download, Run
from diptych.errors import DiptychError


def command(
    run: Run,
    onnx: Annotated[bool, typer.Option("--onnx", help="Both towers as ONNX graphs, for use without torch.")] = False,
    float16: Annotated[
        bool, typer.Option("--float16", help="A run of half the size, for use with any command.")
    ] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="With --onnx: add the graphs to RUN, which is then used without torch.")
    ] = False,
    into: Annotated[
        Path | None, typer.Option(help="The folder to write.", show_default="exports/RUN-onnx or -float16")
    ] = None,
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Export the best model of a run as ONNX graphs or as a run of half the size.

    Either can be used to create, search and serve an index; with ONNX graphs, none of these loads torch. Graphs that
    are added with --in-place share the weights of the run, which can still be evaluated and trained further. RUN may be
    `starter`, the model that comes with the package.

    Examples:

        diptych export runs/first --onnx

        diptych export runs/first --onnx --in-place

        diptych export runs/first --float16 --into small
    """
    from diptych.models.address import ModelFiles

    if onnx == float16:
        raise DiptychError("choose one format: diptych export RUN --onnx, or diptych export RUN --float16")
    if in_place:
        if float16 or into is not None:
            raise DiptychError("--in-place adds ONNX graphs to the run itself: give --onnx, and leave out --into")
        from diptych.models.export.onnx import export_in_place

        print_result(f"agrees with torch within {export_in_place(run):.1e}")
        print_result(f"added ONNX graphs to {run}")
        return
    suffix = "onnx" if onnx else "float16"
    into = into or Path("exports") / f"{ModelFiles.find(run).name}-{suffix}"
    if onnx:
        from diptych.models.export.onnx import export_onnx

        print_result(f"agrees with torch within {export_onnx(run, into):.1e}")
    else:
        from diptych.models.export.float16 import export_float16

        export_float16(run, into)
    size = sum(file.stat().st_size for file in into.rglob("*") if file.is_file())
    print_result(f"wrote {into}: {size / 1e6:.1f} MB")
