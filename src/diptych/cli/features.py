"""`diptych features`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from diptych.cli.console import print_note, print_result, print_skipped, stderr
from diptych.cli.options import Data, Device, Workers
from diptych.errors import DataError
from diptych.features.choices import CropName, Dtype, RegionMethod, Resize
from diptych.progress import ProgressCallback
from diptych.settings import first_error

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.features.crops import Crops
    from diptych.features.extract import StoredFeatures
    from diptych.features.regions import Regions

LINE_SECONDS = 60


def command(
    data: Data,
    backbone: Annotated[str, typer.Option(help="The network: lite0, resnet152, vgg19, timm:NAME ...")] = "lite0",
    crops: Annotated[CropName, typer.Option(help="What is seen of a photo.")] = "1C",
    resize: Annotated[Resize, typer.Option(help="To a square, or by the short side.")] = "square",
    side: Annotated[
        int | None, typer.Option(help="Pixels of a crop's side, a multiple of 32.", show_default="the backbone's own")
    ] = None,
    regions: Annotated[
        RegionMethod | None,
        typer.Option(
            help="Several vectors a photo: cells of the last map, boxes, or crops.", show_default="one vector"
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Boxes a photo, at most.")] = 36,
    edge_model: Annotated[
        Path | None, typer.Option(help="OpenCV's structured forest for edge-boxes.", show_default="none")
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="The numbers on disk.")] = "float32",
    weights: Annotated[
        Path | None, typer.Option(help="Weights of the backbone (safetensors).", show_default="the pretrained ones")
    ] = None,
    into: Annotated[
        Path | None, typer.Option(help="The folder of the store.", show_default="features/BACKBONE-CROPS")
    ] = None,
    device: Device = "auto",
    workers: Workers = None,
) -> None:
    """Compute the features of a corpus' images once, and store them.

    What is in the store is not computed again: photos are known by their content, so they may be renamed and added.

    Examples:

        diptych features photos/ --backbone lite0 --crops 1C

        diptych features dataset_flickr8k.json --crops 10C --into features/ten

        diptych features photos/ --regions grid --dtype float16

        diptych features photos/ --crops whole --regions selective-search
    """
    from diptych.data.open import open_corpus
    from diptych.features.backbone import crop_side
    from diptych.features.backbones.registry import load_backbone
    from diptych.features.extract import extract
    from diptych.features.regions import check_whole_photo
    from diptych.features.store import FeatureStoreSpec, store_folder
    from diptych.machine import available_cores, choose_device, keep_freed_memory

    keep_freed_memory()
    place = choose_device(device)
    corpus = open_corpus(data)
    if corpus.pictures is None:
        raise DataError(f"{corpus.name}: has stored features but no pictures; there is nothing to compute")
    seen, places = _crops(crops, resize, side), _regions(regions, count, edge_model)
    check_whole_photo(places, seen)
    network = load_backbone(backbone, weights)
    spec = FeatureStoreSpec.for_backbone(network, seen, regions=places, dtype=dtype)
    folder = into or store_folder(Path("features"), spec)
    try:
        with _bar() as watch:
            stored = extract(
                corpus.pictures,
                network,
                spec,
                folder,
                workers=available_cores() if workers is None else workers,
                device=place,
                progress=watch,
            )
    except KeyboardInterrupt:
        print_note(f"stopped; the same command goes on where this one was ({folder})")
        raise
    _tell(corpus, stored, folder, crop_side(seen, network))


def _crops(name: CropName, resize: Resize, side: int | None) -> Crops:
    from diptych.features.crops import Crops

    try:
        return Crops(name=name, resize=resize, side=side)
    except ValidationError as error:
        raise DataError(f"--{first_error(error, Crops)}") from None


def _regions(method: RegionMethod | None, count: int, edge_model: Path | None) -> Regions | None:
    from diptych.features.regions import Regions

    if method == "edge-boxes" and edge_model is None:
        raise DataError("--regions edge-boxes: needs --edge-model FILE, OpenCV's structured forest (model.yml.gz)")
    if method != "edge-boxes" and edge_model is not None:
        raise DataError("--edge-model: belongs to --regions edge-boxes; leave it out")
    if method is None:
        return None
    return Regions(method=method, count=count, model=None if edge_model is None else str(edge_model))


def _tell(corpus: Corpus, stored: StoredFeatures, folder: Path, side: int) -> None:
    """The closing lines: what was left out and why, what was enlarged, what there is."""
    print_skipped({corpus.image_ids[image]: reason for image, reason in stored.skipped.items()})
    if not len(stored.readable):
        first = next(iter(stored.skipped.values()), "there is none")
        raise DataError(f"{corpus.name}: no image could be read; first reason: {first}")
    if stored.enlarged:
        image, (width, height) = next(iter(stored.enlarged.items()))
        photos = "1 photo is" if len(stored.enlarged) == 1 else f"{len(stored.enlarged):,} photos are"
        first = f"{corpus.image_ids[image]} ({width} x {height})"
        print_note(f"{photos} smaller than the crop of {side} x {side} and had to be enlarged; first {first}")
    there = len(stored.readable) - stored.computed
    size = sum(file.stat().st_size for file in folder.glob("part-*.npy")) / 1e6
    if stored.computed:
        of = f"{stored.computed:,} of {len(stored.readable):,} images"
        print_result(f"computed {of}, {there:,} were there: {folder} ({size:,.1f} MB)", "bold green")
    else:
        print_result(f"nothing to do: all {there:,} images were there: {folder} ({size:,.1f} MB)", "bold green")


@contextmanager
def _bar() -> Iterator[ProgressCallback]:
    """A progress bar with images a second; where nobody watches, a line a minute."""
    columns = (
        TextColumn("[bold]features"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    started = told = time.monotonic()
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("", total=None, rate="")

        def watch(done: int, total: int) -> None:
            nonlocal told
            now = time.monotonic()
            rate = f"{done / max(now - started, 1e-9):,.1f} images/s"
            progress.update(task, completed=done, total=total, rate=rate)
            if not stderr.is_terminal and now - told >= LINE_SECONDS:
                told = now
                print_note(f"{done:,} of {total:,} images, {rate}")

        yield watch
