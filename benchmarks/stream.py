"""Compare steps of stage II of VSE++ that are fed from shards with the same steps fed from files.

Stage II trains all of lite0, the GRU and the projections on random crops of 224 pixels, in batches of 32 pairs (quick:
16). The 256 drawn photos are the JPEG files of `pixels.py` (341 x 256), and the same bytes in shards of 64. Steps
alternate between the two. Each is drawn, read, decoded and trained on in one thread, so that nothing hides behind the
step: the ratio is an upper bound of what training notices, which reads ahead with threads.

A step is the median over both sides, because training on a batch does not depend on where it comes from. Also measured,
and not part of the ratio: filling the buffer at the beginning of an epoch, with the photos in the cache of the disk.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import torch

from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.data.sampling.batch import PairBatch, PairReader
from diptych.data.sampling.pairs import Pairs, PairSampler
from diptych.data.sampling.stream import StreamGroups, StreamPairs, StreamPictures, StreamTexts, StreamWindow
from diptych.data.shards.corpus import StreamCorpus
from diptych.data.shards.stream import Stream
from diptych.data.shards.writing import write_shards
from diptych.features.readers import CropReader
from diptych.machine import keep_freed_memory
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.hinge import Hinge
from diptych.text.vocabulary import Vocabulary
from diptych.training.engine.step import Step
from diptych.training.engine.trainable import set_trainable, train_mode
from diptych.training.prepare import make_step
from diptych.training.recipe import Optimiser, Stage
from harness import arguments, finish
from pixels import draw_corpus

BUFFER, SHARD, SEED = 128, 64, (0, 1)
TARGET = 1.05
QUICK_SECONDS = 25.0  # after which no round is begun

STAGE = Stage(
    crops="RC",
    trainable=("all",),
    objective=Hinge(negatives="max", margin=0.2),
    optimiser=Optimiser(rate=0.00002),
)


def stage_two(vocabulary: Vocabulary) -> tuple[Step, Callable[..., CropReader]]:
    """The step, and what makes a reader of its crops from pictures."""
    image = BackboneSettings(backbone="lite0", crops="1C")
    matcher = VSESettings(
        joint=1024, image=image, text=GRUSettings(word=300, hidden=1024), words=len(vocabulary)
    ).build()
    matcher.load_pretrained()
    set_trainable(matcher, STAGE.trainable, None)
    train_mode(matcher)
    crops, side = matcher.image_input.crops, matcher.image_input.shape[-1]
    assert crops is not None
    return make_step(matcher, STAGE, torch.device("cpu")), lambda pictures: CropReader(
        pictures, crops, side, STAGE.crops
    )


def from_files(corpus: Corpus, pairs: int) -> Iterator[Pairs]:
    """The batches of epoch after epoch."""
    sampler = PairSampler(corpus, pairs, SEED)
    for epoch in range(1, 1000):
        yield from sampler.epoch(epoch)


def from_shards(stream: Stream, window: StreamWindow, pairs: int) -> Iterator[Pairs]:
    """The batches of epoch after epoch, each read in the calling thread."""
    for epoch in range(1, 1000):
        items = stream.items(SEED, epoch, BUFFER)
        for step in range(len(stream) // pairs):
            batch = tuple(next(items) for _ in range(pairs))
            for item in batch:
                window.add(item)
            numbers = torch.tensor([item.number for item in batch]).numpy()
            yield StreamPairs(numbers, numbers, (*SEED, epoch, step), items=batch)


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    rounds, pairs = (6, 16) if options.quick else (25, 32)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = draw_corpus(folder)
        write_shards(corpus, folder / "shards", SHARD)
        shards = open_corpus(folder / "shards")
        assert isinstance(shards, StreamCorpus)
        vocabulary = Vocabulary.from_texts(corpus.texts, 1)
        step, crops = stage_two(vocabulary)
        stream, window = shards.stream(["train"]), StreamWindow()
        texts = vocabulary.encode_all(corpus.texts)
        readers = {
            "files": PairReader(corpus.text_groups, crops(corpus.pictures), texts),
            "shards": PairReader(
                StreamGroups(window),
                crops(StreamPictures(window, len(stream))),
                StreamTexts(window, vocabulary),
            ),
        }
        batches = {"files": from_files(corpus, pairs), "shards": from_shards(stream, window, pairs)}
        reading: dict[str, list[float]] = {"files": [], "shards": []}
        training: list[float] = []
        started = time.perf_counter()
        fill = stream.items(SEED, 0, BUFFER)
        next(fill)
        filled = time.perf_counter() - started
        fill.close()
        for source, reader in readers.items():  # the first batch fills the buffer and warms up
            step(reader.read(next(batches[source])))
        for number in range(rounds):
            for source, reader in readers.items():
                begun = time.perf_counter()
                batch: PairBatch = reader.read(next(batches[source]))
                read = time.perf_counter()
                step(batch)
                training.append(time.perf_counter() - read)
                reading[source].append(read - begun)
            now = ", ".join(f"{source} {1000 * median(times):.1f} ms" for source, times in reading.items())
            if options.quick and time.perf_counter() - started > QUICK_SECONDS:
                break
            print(f"round {number + 1} of {rounds}: reading {now}, step {median(training):.3f} s", file=sys.stderr)
    steps, files, streamed = median(training), median(reading["files"]), median(reading["shards"])
    ratio = (steps + streamed) / (steps + files)
    finish(
        "stream",
        ratio=ratio,
        target=TARGET,
        ok=ratio <= TARGET,
        step_ms=round(1000 * steps, 1),
        read_files_ms=round(1000 * files, 2),
        read_shards_ms=round(1000 * streamed, 2),
        share_of_step=round((streamed - files) / steps, 4),
        fill_buffer_ms=round(1000 * filled, 1),
        buffer=BUFFER,
    )


if __name__ == "__main__":
    main()
