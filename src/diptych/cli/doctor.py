"""`diptych doctor`."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from diptych import __version__, plugins, registry
from diptych.cli.console import stdout
from diptych.errors import PluginError

EXTRAS = {
    "train": "torch",
    "parquet": "pyarrow",
    "heic": "pillow_heif",
    "video": "av",
    "tokenizers": "tokenizers",
    "regions": "cv2",
    "ocr": "rapidocr",
    "faiss": "faiss",
    "milvus": "pymilvus",
    "watch": "watchfiles",
    "streams": "fsspec",
    "onnx": "onnxscript",
    "transformers": "transformers",
    "eccv": "eccv_caption",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
}

_CORPUS = "scenes:train=8,val=4,test=4"


def command() -> None:
    """Print versions, plug-ins and the hardware, and check that the installation works.

    The exit status is 1 if it does not.

    Example:

        diptych doctor
    """
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    for name, value in _facts().items():
        table.add_row(name, escape(value))
    found, broken = _plugins()
    for name, package in found.items():
        table.add_row(f"plug-in {name}", escape(package))
    errors = [*broken, *_self_test()]
    table.add_row("works", "[green]yes" if not errors else "[red]" + escape("; ".join(errors)))
    stdout.print(table)
    if errors:
        raise typer.Exit(1)


def _facts() -> dict[str, str]:
    from diptych.machine import available_cores, keep_freed_memory

    free = shutil.disk_usage(".").free / 2**30
    facts = {
        "diptych": __version__,
        "python": platform.python_version(),
        **_torch_facts(),
        "cores": str(available_cores()),
        "free disk": f"{free:.1f} GB",
        "allocator": "keeps freed memory" if keep_freed_memory() else "default",
    }
    for package in ("numpy", "pillow", "onnxruntime", "safetensors", "pydantic", "typer", "rich"):
        facts[package] = metadata.version(package)
    for extra, module in EXTRAS.items():
        installed = importlib.util.find_spec(module) is not None
        facts[f"extra {extra}"] = "installed" if installed else f"not installed: pip install 'diptych[{extra}]'"
    return facts


def _torch_facts() -> dict[str, str]:
    if importlib.util.find_spec("torch") is None:
        return {"torch": "not installed; indexing and searching with the starter or an export do not need it"}
    import torch

    from diptych.machine import choose_device

    return {"torch": f"{torch.__version__}, {torch.get_num_threads()} threads", "device": str(choose_device())}


def _plugins() -> tuple[dict[str, str], list[str]]:
    """The plug-ins of installed packages by group and name, and the errors of those that cannot be loaded."""
    found, errors = {}, []
    for group in plugins.GROUPS:
        for name, points in plugins.installed(group).items():
            offered = ", ".join(f"{plugins.package_of(point)}, {point.value}" for point in points)
            unused = "" if registry.is_reachable(group, name) else "; never used: its name is built in, or has no side"
            found[f"{group}: {name}"] = offered + unused
            try:
                plugins.load_installed(group, name)
            except PluginError as error:
                errors.append(str(error))
    return found, errors


def _self_test() -> list[str]:
    """Index and search with the starter and, if torch is installed, train and evaluate; returns the error, if any."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            _index_and_search("starter", "scenes:train=1,val=1,test=1", Path(folder) / "starter.diptych")
            if importlib.util.find_spec("torch") is not None:
                _index_and_search(_train_and_evaluate(folder), _CORPUS, Path(folder) / "scenes.diptych")
    except Exception as error:  # any failure is the diagnosis
        return [f"{type(error).__name__}: {error}"]
    return []


def _index_and_search(address: str | Path, corpus: str, index: Path) -> None:
    from diptych.index.entries import SearchRequest
    from diptych.index.search import Searcher
    from diptych.index.sqlite.store import Store
    from diptych.index.sync import sync
    from diptych.model import Model

    model = Model.load(address)
    sync(model, corpus, index)
    Searcher(Store.open(index), model).search_texts(["a red circle"], SearchRequest(k=1))


def _train_and_evaluate(folder: str) -> Path:
    """A tiny run."""
    from diptych.data.open import open_corpus
    from diptych.evaluation.runs import evaluate
    from diptych.training.recipe_catalogue import recipe_names
    from diptych.training.recipe_loader import load_recipe
    from diptych.training.train import train

    small = ["model.joint=8", "model.text.hidden=8", "model.image.width=2", "model.image.pixels=16", "stage.2.epochs=1"]
    for name in recipe_names():
        load_recipe(name)
    corpus = open_corpus(_CORPUS)
    run = train(load_recipe("scenes", small), corpus, folder)
    evaluate(run, corpus)
    return run
