"""Measure how much of its time stage 2 of the dual-path model waits for data when it trains on pixels.

256 JPEG photos of 341 x 256 pixels, five texts each; a random 224 x 224 window of each photo, read ahead by two
threads; batches of 32 pairs. lite0 with its last three blocks and its head trainable, and the small text CNN, with the
ranking term and both instance terms. Waiting is the time until the next batch is there, in all steps but the first,
before which nothing can be read ahead. The same run also measures reading the batches while nothing is trained, and
the steps on batches in memory. Reading and training share the cores, so reading makes steps longer: `slowdown` is the
time of a step, including waiting, relative to a step on a batch in memory.
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
from PIL import Image

from diptych.data.corpus import Corpus
from diptych.data.images import PictureFile
from diptych.data.read_ahead import read_ahead
from diptych.data.sampling.batch import PairBatch, PairReader
from diptych.data.sampling.pairs import Pairs, PairSampler
from diptych.features.readers import CropReader
from diptych.machine import keep_freed_memory
from diptych.models.matchers.dual_path import DualPath, DualPathSettings
from diptych.models.towers.image.views import ViewsSettings
from diptych.models.towers.text.cnn import TextCNNSettings
from diptych.objectives.instance import Instance
from diptych.text.vocabulary import Vocabulary
from diptych.training.engine.step import Step
from diptych.training.engine.trainable import set_trainable, train_mode
from diptych.training.inputs.group_classes import GroupClasses
from diptych.training.needs.classes import Classes
from diptych.training.prepare import make_step
from diptych.training.recipe import Optimiser, Stage
from harness import arguments, finish

PHOTOS, WIDTH, HEIGHT, TEXTS_PER_PHOTO, WORDS = 256, 341, 256, 5, 2000
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
    """Photos whose contrast decreases towards fine scales, and texts of random words."""
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
        lengths = random.integers(6, 15, TEXTS_PER_PHOTO)
        texts += [" ".join(f"w{word}" for word in random.integers(WORDS, size=length)) for length in lengths]
    photos = np.arange(PHOTOS)
    return Corpus(
        name="drawn",
        image_ids=[picture.path.name for picture in pictures],
        image_groups=photos,
        image_splits=np.full(PHOTOS, "train"),
        texts=texts,
        text_groups=np.repeat(photos, TEXTS_PER_PHOTO),
        text_splits=np.full(len(texts), "train"),
        pictures=pictures,
    )


def stage_two(corpus: Corpus) -> tuple[Step, PairReader]:
    """The step of the stage, and the reader of its batches."""
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
    groups = GroupClasses(np.arange(PHOTOS), np.arange(PHOTOS))
    classes = Classes(groups, STAGE.objective.need_options(Classes.name))
    step = make_step(matcher, STAGE, torch.device("cpu"), [classes])
    image_input = matcher.image_input
    assert corpus.pictures is not None
    assert image_input.crops is not None
    images = CropReader(corpus.pictures, image_input.crops, image_input.shape[-1], random=STAGE.crops)
    return step, PairReader(corpus.text_groups, images, vocabulary.encode_all(corpus.texts))


@dataclass
class Clock:
    """The seconds of each step: waiting for its batch, and training on it."""

    waiting: list[float] = field(default_factory=list)
    training: list[float] = field(default_factory=list)

    def run(self, batches: Iterator[PairBatch], train: Callable[[PairBatch], object]) -> None:
        """Train on all batches."""
        started = time.perf_counter()
        for batch in batches:
            arrived = time.perf_counter()
            train(batch)
            done = time.perf_counter()
            self.waiting.append(arrived - started)
            self.training.append(done - arrived)
            started = done

    @property
    def mean_waiting(self) -> float:
        """The mean seconds that a step waits, without the first."""
        return float(np.mean(self.waiting[1:]))

    @property
    def mean_training(self) -> float:
        """The mean seconds that a step trains, without the first."""
        return float(np.mean(self.training[1:]))


def seconds_to_read(read: Callable[[Pairs], PairBatch], batches: list[Pairs]) -> float:
    """The mean seconds per batch while nothing else runs."""
    started = time.perf_counter()
    for _ in read_ahead(read, batches, WORKERS):
        pass
    return (time.perf_counter() - started) / len(batches)


def main() -> None:
    """Train while reading ahead, then only read, then only train."""
    options = arguments(__doc__)
    keep_freed_memory()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        corpus = draw_corpus(Path(folder))
        step, reader = stage_two(corpus)
        epoch = PairSampler(corpus, PAIRS, (0, 1)).epoch(1)
        batches = epoch[:13] if options.quick else epoch
        step(reader.read(epoch[0]))  # allocates buffers
        together, alone = Clock(), Clock()
        together.run(read_ahead(reader.read, batches, WORKERS), step)
        print(f"waited {[round(1000 * each) for each in together.waiting]} ms", file=sys.stderr)
        reading = seconds_to_read(reader.read, batches)
        ready = [reader.read(pairs) for pairs in batches[: len(batches) // 2]]
    alone.run(iter(ready), step)
    step_seconds = together.mean_waiting + together.mean_training
    ratio = together.mean_waiting / step_seconds
    finish(
        "pixels",
        ratio=ratio,
        target=TARGET,
        ok=ratio <= TARGET,
        slowdown=round(step_seconds / alone.mean_training, 3),
        milliseconds={
            name: round(1000 * seconds, 1)
            for name, seconds in (
                ("waiting", together.mean_waiting),
                ("step", together.mean_training),
                ("reading_alone", reading),
                ("step_alone", alone.mean_training),
            )
        },
    )


if __name__ == "__main__":
    main()
