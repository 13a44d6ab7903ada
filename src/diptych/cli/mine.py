"""`diptych mine`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from diptych.cli.console import print_note, print_result, print_skipped, progress_bar, stdout
from diptych.cli.open_data import open_data
from diptych.cli.options import AllowCode, Data, Device, Devices, Download, Features, Run, Workers, thread_count

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.mining.lists import HardNegativeLists

SHOWN = 3


def command(
    run: Run,
    data: Data,
    top_texts: Annotated[int, typer.Option(min=1, help="Texts in the list of an image.")] = 300,
    top_images: Annotated[int, typer.Option(min=1, help="Images in the list of a text.")] = 60,
    split: Annotated[
        list[str] | None, typer.Option(help="The splits to mine; repeatable.", show_default="train")
    ] = None,
    into: Annotated[
        Path | None, typer.Option(help="The file of the lists.", show_default="RUN/lists.safetensors")
    ] = None,
    features: Features = Path("features"),
    device: Device = "auto",
    devices: Devices = None,
    workers: Workers = None,
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Find the hardest negatives in the whole training set.

    These are, for each image, the texts of other groups with the highest scores, and for each text the images. A stage
    of a recipe samples from these lists with offline.lists = "RUN". After Ctrl-C, the same command continues.

    Examples:

        diptych mine runs/first scenes

        diptych mine runs/vsrn dataset_flickr8k.json --top-texts 500 --top-images 100

        diptych mine runs/coco data/coco --split train --split restval

        diptych mine runs/coco data/coco --devices 4
    """
    from diptych.cli.ranks import job
    from diptych.machine import keep_freed_memory
    from diptych.mining.lists import LISTS_FILE, weights_digest
    from diptych.mining.mine import mine
    from diptych.model import Model
    from diptych.models.address import address_name, names_pair

    keep_freed_memory()
    with job(device, devices) as ranks:
        model = ranks.first_alone(lambda: Model.load(run, device, stores=features))
        everything = open_data(data, runs=[run])
        _warn_of_other_data(run, everything)
        corpus = everything.split(*(split or ["train"])).matched()
        file = into or (Path("lists") / f"{address_name(run)}.safetensors" if names_pair(run) else run / LISTS_FILE)
        weights = model.identity if names_pair(run) else weights_digest(run)
        ranks.must_agree({"the data": corpus.digest(), "the run": weights, "lists": [top_texts, top_images]})
        try:
            with progress_bar("mining") as progress:
                lists = mine(
                    model,
                    corpus,
                    file,
                    weights=weights,
                    top_texts=top_texts,
                    top_images=top_images,
                    workers=thread_count(workers),
                    progress=progress,
                    ranks=ranks,
                )
        except KeyboardInterrupt:
            print_note("stopped; run the same command again to continue")
            raise
        _print_lists(lists, corpus, file)


def _warn_of_other_data(run: Path, corpus: Corpus) -> None:
    """Print a warning if the run was trained on other data."""
    from diptych.data.origin import Origin

    if (run / "data.json").is_file() and Origin.read(run).digest != corpus.digest():
        print_note(f"warning: {run} was trained on other data than {corpus.name}, or the data has changed since")


def _print_lists(lists: HardNegativeLists, corpus: Corpus, file: Path) -> None:
    """Print the size of the lists, how hard the negatives are, and a few examples."""
    print_skipped(lists.header.skipped)
    if lists.shortage:
        print_note(lists.shortage)
    images, texts = (int((side[:, 0] >= 0).sum()) for side in (lists.texts, lists.images))
    size = file.stat().st_size / 1e6
    print_result(f"lists of {images:,} images and {texts:,} texts: {file} ({size:,.1f} MB)", "bold green")
    if (hardness := lists.header.hardness) is not None:
        table = Table("median score", box=None)
        for column in ("positive", "hardest negative", "last of the list"):
            table.add_column(column, justify="right")
        for name, first, last in (
            ("texts per image", hardness.first_text, hardness.last_text),
            ("images per text", hardness.first_image, hardness.last_image),
        ):
            table.add_row(name, *(f"{score:.3f}" for score in (hardness.positive, first, last)))
        stdout.print(table)
    for image in _example_images(lists):
        _print_example(image, lists, corpus)


def _example_images(lists: HardNegativeLists) -> list[int]:
    """A few images with a list, spread evenly over the corpus."""
    import numpy as np

    some = np.flatnonzero(lists.texts[:, 0] >= 0)
    return sorted({int(some[len(some) * step // SHOWN]) for step in range(SHOWN)})


def _print_example(image: int, lists: HardNegativeLists, corpus: Corpus) -> None:
    """Print an image's id, one of its texts, and its hardest negative text."""
    import numpy as np

    positive = int(np.flatnonzero(corpus.text_groups == corpus.image_groups[image])[0])
    stdout.print(Text(corpus.image_ids[image], "bold"), soft_wrap=True)
    stdout.print(Text.assemble("  positive  ", corpus.texts[positive]), soft_wrap=True)
    stdout.print(Text.assemble("  hardest   ", corpus.texts[lists.texts[image, 0]]), soft_wrap=True)
