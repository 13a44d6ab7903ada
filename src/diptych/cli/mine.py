"""`diptych mine`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from diptych.cli.console import print_note, print_result, print_skipped, progress_bar, stdout
from diptych.cli.options import Data, Device, Features, Run, Workers

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.mining.lists import HardNegativeLists

SHOWN = 3


def command(
    run: Run,
    data: Data,
    top_texts: Annotated[int, typer.Option(min=1, help="Texts in the list of an image.")] = 300,
    top_images: Annotated[int, typer.Option(min=1, help="Images in the list of a text.")] = 60,
    split: Annotated[list[str] | None, typer.Option(help="What to mine; repeatable.", show_default="train")] = None,
    into: Annotated[
        Path | None, typer.Option(help="The file of the lists.", show_default="RUN/lists.safetensors")
    ] = None,
    features: Features = Path("features"),
    device: Device = "auto",
    workers: Workers = None,
) -> None:
    """Find the hardest negatives in the whole training set.

    For each image the texts, and for each text the images, that the run scores highest and that do not belong to it.
    A stage of a recipe draws from these lists: offline.lists = "RUN". Stopped with Ctrl-C, the same command goes on.

    Examples:

        diptych mine runs/first scenes

        diptych mine runs/vsrn dataset_flickr8k.json --top-texts 500 --top-images 100

        diptych mine runs/coco data/coco --split train --split restval
    """
    from diptych.data.open import open_corpus
    from diptych.machine import available_cores, keep_freed_memory
    from diptych.mining.lists import LISTS_FILE, weights_digest
    from diptych.mining.mine import mine
    from diptych.models.trained import Trained

    keep_freed_memory()
    trained = Trained.open(run, device, stores=features)
    whole = open_corpus(data)
    _warn(run, whole)
    corpus = whole.split(*(split or ["train"])).matched()
    file = into or run / LISTS_FILE
    try:
        with progress_bar("mining") as progress:
            lists = mine(
                trained,
                corpus,
                file,
                weights=weights_digest(run),
                top_texts=top_texts,
                top_images=top_images,
                workers=available_cores() if workers is None else workers,
                progress=progress,
            )
    except KeyboardInterrupt:
        print_note("stopped; the same command goes on where this one was")
        raise
    _tell(lists, corpus, file)


def _warn(run: Path, corpus: Corpus) -> None:
    """Say so where a run was trained on other data than it is to mine."""
    from diptych.training.origin import Origin

    if (run / "data.json").is_file() and Origin.read(run).digest != corpus.digest():
        print_note(f"{corpus.name} is not what {run} was trained on, or has changed since; mining it all the same")


def _tell(lists: HardNegativeLists, corpus: Corpus, file: Path) -> None:
    """What there is, how hard it is, and a few of the hardest to look at."""
    print_skipped(lists.about.skipped)
    if lists.notice:
        print_note(lists.notice)
    images, texts = (int((side[:, 0] >= 0).sum()) for side in (lists.texts, lists.images))
    size = file.stat().st_size / 1e6
    print_result(f"lists of {images:,} images and {texts:,} texts: {file} ({size:,.1f} MB)", "bold green")
    if (hardness := lists.about.hardness) is not None:
        table = Table("median score", box=None)
        for column in ("own", "hardest", "last of the list"):
            table.add_column(column, justify="right")
        for name, first, last in (
            ("an image's texts", hardness.first_text, hardness.last_text),
            ("a text's images", hardness.first_image, hardness.last_image),
        ):
            table.add_row(name, *(f"{score:.3f}" for score in (hardness.positive, first, last)))
        stdout.print(table)
    for image in _spread(lists):
        _show(image, lists, corpus)


def _spread(lists: HardNegativeLists) -> list[int]:
    """A few images that have a list, from all over the corpus."""
    import numpy as np

    some = np.flatnonzero(lists.texts[:, 0] >= 0)
    return sorted({int(some[len(some) * place // SHOWN]) for place in range(SHOWN)})


def _show(image: int, lists: HardNegativeLists, corpus: Corpus) -> None:
    """An image by one of its texts, and the text of another image that is hardest for it."""
    import numpy as np

    own = int(np.flatnonzero(corpus.text_groups == corpus.image_groups[image])[0])
    stdout.print(Text(corpus.image_ids[image], "bold"), soft_wrap=True)
    stdout.print(Text.assemble("  own      ", corpus.texts[own]), soft_wrap=True)
    stdout.print(Text.assemble("  hardest  ", corpus.texts[lists.texts[image, 0]]), soft_wrap=True)
