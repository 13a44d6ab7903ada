"""`diptych doctor`."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from importlib import metadata

import typer
from rich.table import Table

from diptych import __version__
from diptych.cli.console import out
from diptych.errors import DiptychError

EXTRAS = {"parquet": "pyarrow"}


def command() -> None:
    """Say what this machine has, and check that the installation works; exits with 1 if it does not."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    for name, value in _facts().items():
        table.add_row(name, value)
    faults = _faults()
    table.add_row("works", "[green]yes" if not faults else "[red]" + "; ".join(faults))
    out.print(table)
    if faults:
        raise typer.Exit(1)


def _facts() -> dict[str, str]:
    import torch

    from diptych.machine import choose_device, cores, keep_freed_memory

    free = shutil.disk_usage(".").free / 2**30
    facts = {
        "diptych": __version__,
        "python": platform.python_version(),
        "torch": f"{torch.__version__}, {torch.get_num_threads()} threads",
        "device": str(choose_device()),
        "cores": str(cores()),
        "free disk": f"{free:.1f} GB here",
        "allocator": "keeps freed memory" if keep_freed_memory() else "default",
    }
    for package in ("numpy", "pillow", "safetensors", "pydantic", "typer", "rich"):
        facts[package] = metadata.version(package)
    for extra, module in EXTRAS.items():
        here = importlib.util.find_spec(module) is not None
        facts[f"extra {extra}"] = "installed" if here else f"not installed: pip install 'diptych[{extra}]'"
    return facts


def _faults() -> list[str]:
    """Use each room once on something tiny."""
    import torch

    from diptych.data.scenes import make_scenes
    from diptych.machine import choose_device
    from diptych.training.recipe import load_recipe, recipe_names

    faults = []
    try:
        corpus = make_scenes(train=4, val=2, test=2)
        if corpus.pictures is None or corpus.pictures[0].load().mode != "RGB":
            faults.append("the scenes cannot be drawn")
        for name in recipe_names():
            load_recipe(name)
        weights = torch.ones(2, 2, device=choose_device())
        if float((weights @ weights).sum()) != 8:
            faults.append("torch multiplies wrongly on this device")
    except DiptychError as error:
        faults.append(str(error))
    return faults
