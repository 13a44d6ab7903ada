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
from diptych.cli.options import Data, Device, Devices, Workers, thread_count
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
    crops: Annotated[CropName, typer.Option(help="Which crops of a photo the backbone sees.")] = "1C",
    resize: Annotated[Resize, typer.Option(help="Resize to a square, or by the shorter side.")] = "square",
    side: Annotated[
        int | None,
        typer.Option(help="Side of a crop in pixels, a multiple of 32.", show_default="that of the backbone"),
    ] = None,
    regions: Annotated[
        RegionMethod | None,
        typer.Option(
            help="Several vectors per photo: cells of the last map, boxes, or crops.", show_default="one vector"
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="The maximum number of boxes per photo.")] = 36,
    edge_model: Annotated[
        Path | None, typer.Option(help="The file of OpenCV's structured forest, for edge-boxes.", show_default="none")
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="The type of the stored numbers.")] = "float32",
    weights: Annotated[
        Path | None, typer.Option(help="Weights of the backbone (safetensors).", show_default="the pretrained weights")
    ] = None,
    into: Annotated[
        Path | None, typer.Option(help="The folder of the store.", show_default="features/BACKBONE-CROPS")
    ] = None,
    device: Device = "auto",
    devices: Devices = None,
    workers: Workers = None,
) -> None:
    """Compute the features of a corpus' images once, and store them.

    Features that are already stored are not computed again: photos are identified by their content, so that they can be
    renamed and new ones added.

    Examples:

        diptych features photos/ --backbone lite0 --crops 1C

        diptych features dataset_flickr8k.json --crops 10C --into features/ten

        diptych features photos/ --regions grid --dtype float16

        diptych features photos/ --crops whole --regions selective-search

        diptych features data/coco --devices 4
    """
    from diptych.cli.ranks import job
    from diptych.data.open import open_corpus
    from diptych.features.backbone import crop_side
    from diptych.features.backbones.registry import load_backbone
    from diptych.features.extract import extract
    from diptych.features.regions import check_whole_photo
    from diptych.features.store import FeatureStoreSpec, store_folder
    from diptych.machine import choose_device, keep_freed_memory

    keep_freed_memory()
    with job(device, devices) as ranks:
        chosen_device = choose_device(device)
        corpus = open_corpus(data)
        if corpus.pictures is None:
            raise DataError(f"{corpus.name}: has stored features but no pictures; there is nothing to compute")
        crop_settings, region_settings = _crops(crops, resize, side), _regions(regions, count, edge_model)
        check_whole_photo(region_settings, crop_settings)
        network = load_backbone(backbone, weights)
        spec = FeatureStoreSpec.for_backbone(network, crop_settings, regions=region_settings, dtype=dtype)
        folder = into or store_folder(Path("features"), spec)
        ranks.must_agree({"the data": corpus.digest(), "the features": spec.model_dump(mode="json")})
        try:
            with _progress_bar() as progress:
                stored = extract(
                    corpus.pictures,
                    network,
                    spec,
                    folder,
                    workers=thread_count(workers),
                    device=chosen_device,
                    progress=progress,
                    ranks=ranks,
                )
        except KeyboardInterrupt:
            print_note(f"stopped; run the same command again to continue ({folder})")
            raise
        _print_summary(corpus, stored, folder, crop_side(crop_settings, network))


def _crops(name: CropName, resize: Resize, side: int | None) -> Crops:
    from diptych.features.crops import Crops

    try:
        return Crops(name=name, resize=resize, side=side)
    except ValidationError as error:
        raise DataError(f"--{first_error(error, Crops)}") from None


def _regions(method: RegionMethod | None, count: int, edge_model: Path | None) -> Regions | None:
    from diptych.features.regions import Regions

    model = None if edge_model is None else str(edge_model)
    try:
        regions = Regions(method=method or "grid", count=count, model=model)
    except ValidationError as error:
        raise DataError(f"--edge-model: {error.errors()[0]['msg']}") from None
    return regions if method is not None else None


def _print_summary(corpus: Corpus, stored: StoredFeatures, folder: Path, side: int) -> None:
    """Print which images were skipped or enlarged, and the size of the store."""
    print_skipped({corpus.image_ids[image]: reason for image, reason in stored.skipped.items()})
    if not len(stored.readable):
        first = next(iter(stored.skipped.values()), "the corpus has no images")
        raise DataError(f"{corpus.name}: no image could be read; the first reason: {first}")
    if stored.enlarged:
        image, (width, height) = next(iter(stored.enlarged.items()))
        photos = "1 photo was" if len(stored.enlarged) == 1 else f"{len(stored.enlarged):,} photos were"
        first = f"{corpus.image_ids[image]} ({width} x {height})"
        print_note(f"{photos} smaller than the crop of {side} x {side}, and enlarged; the first is {first}")
    already_stored = len(stored.readable) - stored.computed
    size = sum(file.stat().st_size for file in folder.glob("part-*.npy")) / 1e6
    where = f"{folder} ({size:,.1f} MB)"
    if stored.computed:
        images = f"{stored.computed:,} of {len(stored.readable):,} images"
        print_result(f"computed {images}, {already_stored:,} were already stored: {where}", "bold green")
    else:
        print_result(f"nothing to compute, all {already_stored:,} images are already stored: {where}", "bold green")


@contextmanager
def _progress_bar() -> Iterator[ProgressCallback]:
    """A progress bar with images per second; without a terminal, one line per minute."""
    columns = (
        TextColumn("[bold]features"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    started = printed = time.monotonic()
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("", total=None, rate="")

        def update(done: int, total: int) -> None:
            nonlocal printed
            now = time.monotonic()
            rate = f"{done / max(now - started, 1e-9):,.1f} images/s"
            progress.update(task, completed=done, total=total, rate=rate)
            if not stderr.is_terminal and now - printed >= LINE_SECONDS:
                printed = now
                print_note(f"{done:,} of {total:,} images, {rate}")

        yield update
