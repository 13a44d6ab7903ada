"""`diptych make`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.console import print_note, print_result
from diptych.cli.options import AllowCode, Download, Overrides, RecipeName


def command(
    recipe: RecipeName,
    into: Annotated[Path | None, typer.Option(help="The run's folder.", show_default="runs/RECIPE")] = None,
    set_: Overrides = None,
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Write the run of a model that needs no training, without data.

    Its recipe has a model with pretrained weights and no stages, such as `classes`: the class names that a backbone
    recognises, as sentence vectors; or `pair`: CLIP, SigLIP and their relatives. The run can be evaluated, indexed,
    searched, exported and fused like any other.

    Examples:

        diptych make classes --into runs/classes

        diptych make classes --set model.image.backbone=lite2 --set model.names=names.txt

        diptych make pair --set model.model=siglip-base/ --into runs/siglip
    """
    from diptych.training.make import make
    from diptych.training.recipe_loader import load_recipe

    folder = into or Path("runs") / Path(recipe).stem
    make(load_recipe(recipe, set_ or []), folder)
    print_result(f"made {folder}", "bold green")
    print_note(f"search photos with it: diptych index {folder} PHOTOS --into photos.diptych")
