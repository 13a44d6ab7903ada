"""The share of Stage II of the dual-path model, from pixels, that waits for data.

256 JPEG photos of 341 x 256 pixels, five texts each; a random window of 224 x 224 of each photo, read ahead by two
threads; batches of 32 pairs. lite0, its last three blocks and its head trainable, and the small text CNN, with the
ranking and both instance terms. Waiting is the time until the next batch is there, in all steps but the first, before
which nothing can have been read ahead. Beside it, in the same run: what two threads take to read the same batches
while nothing is trained, and what the same steps take on batches that lie ready. Reading and training share the cores:
what reading takes away shows as longer steps, and `slowdown` is all of it, the time of a step with its waiting against
that of a step alone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from diptych.training.engine.stage import prepare_step, set_trainable, train_mode
from diptych.training.inputs.classes import Classes
from PIL import Image

from diptych.data.corpus import Corpus
from diptych.data.images import PictureFile
from diptych.data.sampling.pairs import PairBatch, PairReader, Pairs, PairSampler, read_ahead
from diptych.features.readers import CropReader
from diptych.machine import keep_freed_memory
from diptych.models.matchers.dual_path import DualPath, DualPathSettings
from diptych.models.towers.image.views import ViewsSettings
from diptych.models.towers.text.cnn import TextCNNSettings
from diptych.objectives.instance import Instance
from diptych.text.vocabulary import Vocabulary
from diptych.training.engine.step import Step
from diptych.training.recipe import Optimiser, Stage
from harness import arguments, finish

PHOTOS, WIDTH, HEIGHT, TEXTS_A_PHOTO, WORDS = 256, 341, 256, 5, 2000
PAIRS, WORKERS = 32, 2
TARGET = 0.10

STAGE = Stage(
    crops="window",
    trainable=(
        *("image.backbone.blocks.13", "image.backbone.blocks.14", "image.backbone.blocks.15", "image.backbone.head"),
        *("image_head", "text", "text_head"),
    ),
    objective=Instance(rank=1.0),
    optimiser=Optimiser(name="sgd", rate=0.001),
)


def draw_corpus(folder: Path) -> Corpus:
    """Smooth photos whose detail falls off towards the fine scales, and texts of random words."""
    random = np.random.default_rng(0)
    pictures, texts = [], []
    for number in range(PHOTOS):
        pixels = np.full((HEIGHT, WIDTH, 3), 128.0)
        for cells in (4, 8, 16, 32, 64, 128):
            noise = random.integers(0, 256, (cells * HEIGHT // WIDTH, cells, 3), np.uint8)
            layer = Image.fromarray(noise).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
            pixels += (np.asarray(layer) - 127.5) / cells**0.5
        path = folder / f"{number:03d}.jpg"
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=90)
        pictures.append(PictureFile(path))
        lengths = random.integers(6, 15, TEXTS_A_PHOTO)
        texts += [" ".join(f"w{word}" for word in random.integers(WORDS, size=length)) for length in lengths]
    photos = np.arange(PHOTOS)
    return Corpus(
        name="drawn",
        image_ids=[picture.path.name for picture in pictures],
        image_groups=photos,
        image_splits=np.full(PHOTOS, "train"),
        texts=texts,
        text_groups=np.repeat(photos, TEXTS_A_PHOTO),
        text_splits=np.full(len(texts), "train"),
        pictures=pictures,
    )


def stage_two(corpus: Corpus) -> tuple[Step, PairReader]:
    """The steps of the stage, and what reads their batches."""
    vocabulary = Vocabulary.from_texts(corpus.texts, 1)
    settings = DualPathSettings(
        image=ViewsSettings(resize="short"),
        text=TextCNNSettings(depth="small"),
        hidden=1024,
        joint=512,
        words=len(vocabulary),
    )
    matcher = DualPath(settings)
    matcher.load_pretrained()
    set_trainable(matcher, STAGE.trainable)
    train_mode(matcher)
    step = prepare_step(matcher, STAGE, torch.device("cpu"), Classes(np.arange(PHOTOS), np.arange(PHOTOS)))
    wanted = matcher.image_input
    assert corpus.pictures is not None
    assert wanted.crops is not None
    images = CropReader(corpus.pictures, wanted.crops, wanted.shape[-1], random=STAGE.crops)
    return step, PairReader(corpus.text_groups, images, vocabulary.encode_all(corpus.texts))


@dataclass
class Clock:
    """The seconds of each step: until its batch was there, and of the training on it."""

    waiting: list[float] = field(default_factory=list)
    training: list[float] = field(default_factory=list)

    def run(self, batches: Iterator[PairBatch], train: Callable[[PairBatch], object]) -> None:
        """Train on all of these batches."""
        started = time.perf_counter()
        for batch in batches:
            here = time.perf_counter()
            train(batch)
            done = time.perf_counter()
            self.waiting.append(here - started)
            self.training.append(done - here)
            started = done

    @property
    def waited(self) -> float:
        """The mean seconds that a step waits, but for the first."""
        return float(np.mean(self.waiting[1:]))

    @property
    def trained(self) -> float:
        """The mean seconds that a step trains, but for the first."""
        return float(np.mean(self.training[1:]))


def seconds_to_read(read: Callable[[Pairs], PairBatch], batches: list[Pairs]) -> float:
    """The mean seconds a batch while nothing else is done."""
    started = time.perf_counter()
    for _ in read_ahead(read, batches, WORKERS):
        pass
    return (time.perf_counter() - started) / len(batches)


def main() -> None:
    """Train with reading ahead, then read alone, then train alone."""
    options = arguments(__doc__)
    keep_freed_memory()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        corpus = draw_corpus(Path(folder))
        step, reader = stage_two(corpus)
        epoch = PairSampler(corpus, PAIRS, (0, 1)).epoch(1)
        batches = epoch[:13] if options.quick else epoch
        step(reader.read(epoch[0]))  # buffers are made once
        together, alone = Clock(), Clock()
        together.run(read_ahead(reader.read, batches, WORKERS), step)
        print(f"waited {[round(1000 * each) for each in together.waiting]} ms", file=sys.stderr)
        reading = seconds_to_read(reader.read, batches)
        ready = [reader.read(pairs) for pairs in batches[: len(batches) // 2]]
    alone.run(iter(ready), step)
    whole = together.waited + together.trained
    ratio = together.waited / whole
    finish(
        "pixels",
        ratio=ratio,
        target=TARGET,
        ok=ratio <= TARGET,
        slowdown=round(whole / alone.trained, 3),
        milliseconds={
            name: round(1000 * seconds, 1)
            for name, seconds in (
                ("waiting", together.waited),
                ("step", together.trained),
                ("reading_alone", reading),
                ("step_alone", alone.trained),
            )
        },
    )


if __name__ == "__main__":
    main()
