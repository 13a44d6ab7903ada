"""Compare an epoch of VSE++ on stored features in Diptych with a plain loop in the style of the original code.

25,000 pairs (`--quick`: a tenth), 5 texts per image, batch 128, the paper's sizes. The plain loop is a torch DataLoader
whose workers tokenise each caption on demand with NLTK and look its words up one by one; it skips the sentence
splitting that NLTK's `word_tokenize` does first. Both train on the same batches, alternating between parts of the
epoch, each with as many workers as there are cores. Before the measurement, their losses must agree.

The time spent on data is an upper bound. It includes everything that is done once (from the corpus to the encoded texts
and the drawn batches), although a training has thirty epochs; the time that the training thread waits for batches; and
the CPU time of the threads that read ahead, as if all of it were taken from training. Neither side counts the
vocabulary.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from nltk.tokenize import NLTKWordTokenizer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.data.read_ahead import read_ahead
from diptych.data.sampling.batch import PairBatch, PairReader
from diptych.data.sampling.pairs import Pairs, PairSampler
from diptych.machine import available_cores, keep_freed_memory
from diptych.model import Model
from diptych.models.matchers.vse import VSE, VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.objectives.hinge import Hinge
from diptych.text.tokenisers.token_table import END, SPECIALS, START, UNKNOWN
from diptych.text.vocabulary import Vocabulary
from diptych.training.engine.optimiser import make_optimiser
from diptych.training.engine.step import Step
from diptych.training.recipe import Optimiser
from harness import Timing, arguments, finish, timed
from plain import FEATURES, PAIRS, VOCABULARY, PlainStep, draw_texts

TEXTS, TEXTS_PER_IMAGE = 25_000, 5
SPEED_TARGET, DATA_TARGET = 1.5, 0.03


def vocabulary() -> Vocabulary:
    """Words of two syllables, which no tokeniser splits."""
    syllables = [consonant + vowel for consonant in "bcdfghjklmnpqrstvwxz" for vowel in "aeiou"]
    words = [first + second for first in syllables for second in syllables][: VOCABULARY - len(SPECIALS)]
    return Vocabulary(tuple(words), (4,) * len(words), 4)


def write_corpus(folder: Path, texts: int, words: Vocabulary) -> None:
    """Random features and captions in the layout of VSE++; a caption starts with a capital and ends with a period."""
    random = np.random.default_rng(0)
    np.save(folder / "train_ims.npy", random.standard_normal((texts // TEXTS_PER_IMAGE, FEATURES), dtype=np.float32))
    ids, lengths = draw_texts(random, texts)
    drawn = (words.decode(row[1 : length - 2]) for row, length in zip(ids, lengths, strict=True))
    captions = (f"{' '.join(caption).capitalize()} .\n" for caption in drawn)
    (folder / "train_caps.txt").write_text("".join(captions), encoding="utf-8")


class Captions(Dataset[tuple[Tensor, Tensor]]):
    """Pairs as the original data sets return them: one at a time, with the caption tokenised on demand."""

    def __init__(self, folder: Path, words: Vocabulary) -> None:
        self.images = np.load(folder / "train_ims.npy")
        self.captions = (folder / "train_caps.txt").read_text(encoding="utf-8").splitlines()
        self.tokeniser = NLTKWordTokenizer()
        self.ids = dict(words.ids)

    def __len__(self) -> int:
        return len(self.captions)

    def __getitem__(self, text: int) -> tuple[Tensor, Tensor]:
        ids = [START]
        for word in self.tokeniser.tokenize(self.captions[text].lower()):
            ids.append(self.ids.get(word, UNKNOWN))
        ids.append(END)
        return torch.tensor(self.images[text // TEXTS_PER_IMAGE]), torch.tensor(ids)


def collate(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Sort pairs by the length of their texts and pad: images, ids, lengths."""
    pairs.sort(key=lambda pair: len(pair[1]), reverse=True)
    images, texts = zip(*pairs, strict=True)
    lengths = [len(text) for text in texts]
    ids = torch.zeros(len(texts), max(lengths), dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
    return torch.stack(images), ids, torch.tensor(lengths)


class PlainLoop:
    """The original loop; its workers are started once and live through all parts of the epoch."""

    def __init__(self, folder: Path, words: Vocabulary) -> None:
        self.step = PlainStep()
        self.part: list[list[int]] = []  # the texts of each batch; the loader iterates over it once per call
        self.loader = DataLoader(
            Captions(folder, words),
            batch_sampler=self.part,
            collate_fn=collate,
            num_workers=available_cores(),
            persistent_workers=True,
        )

    def __call__(self, batches: Sequence[Pairs]) -> list[float]:
        """Train on these batches and return their losses."""
        self.part[:] = [batch.texts.tolist() for batch in batches]
        return [self.step(*batch) for batch in self.loader]

    def stop(self) -> float:
        """Stop the workers and return the CPU seconds that they used."""
        del self.loader
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime


@dataclass
class DataSide:
    """The seconds that Diptych spends on data; see the module docstring."""

    once: float = 0.0
    waiting: float = 0.0
    reads: list[float] = field(default_factory=list)  # CPU seconds per batch; several threads append

    @property
    def reading(self) -> float:
        """The CPU seconds of all reads."""
        return sum(self.reads)

    @property
    def total(self) -> float:
        """The sum of all three."""
        return self.once + self.waiting + self.reading

    def count_waiting(self, batches: Iterator[PairBatch]) -> Iterator[PairBatch]:
        """Yield the same batches, counting the time until each is there."""
        while True:
            started = time.perf_counter()
            batch = next(batches, None)
            self.waiting += time.perf_counter() - started
            if batch is None:
                return
            yield batch


class OurLoop:
    """What Diptych's `StageLoop` does in an epoch; pairs of the same image are negatives of each other."""

    def __init__(self, words: Vocabulary) -> None:
        objective = Hinge(mask_same_group=False)  # as in the original code
        settings = Optimiser()
        self.matcher = VSE(VSESettings(image=FeatureSettings(shape=(FEATURES,)), words=len(words))).train()
        self.model = Model.from_matcher(self.matcher, words, torch.device("cpu"))
        optimiser = make_optimiser(self.matcher, settings)
        self.train = Step(self.matcher, objective, optimiser, self.model.device, settings.clip)
        self.objective = objective
        self.data = DataSide()

    def prepare(self, corpus: Corpus) -> None:
        """Do what is done once, before the first batch."""
        train = corpus.split("train").matched()
        texts = self.model.vocabulary.encode_all(train.texts)
        self.pairs = PairReader(train.text_groups, self.model.torch_engine.image_reader(train), texts)
        self.batches = PairSampler(train, PAIRS, (0, 1)).epoch(1)

    def read(self, pairs: Pairs) -> PairBatch:
        """Read a batch in a thread and record the CPU time."""
        started = time.thread_time()
        batch = self.pairs.read(pairs)
        self.data.reads.append(time.thread_time() - started)
        return batch

    def step(self, batch: PairBatch) -> float:
        """Train on one batch and return its loss."""
        loss, summary = self.train(batch)
        total = sum(float(term.detach()) for term in loss.terms.values())
        self.objective.has_collapsed(summary, total)
        return total

    def __call__(self, batches: Sequence[Pairs]) -> list[float]:
        """Train on these batches and return their losses."""
        return [
            self.step(batch) for batch in self.data.count_waiting(read_ahead(self.read, batches, available_cores()))
        ]


def check_same_losses(plain: PlainLoop, ours: OurLoop) -> None:
    """Check that from the same weights both have the same loss on one batch and, after a step, on the next."""
    with torch.no_grad():
        for parameter, start in zip(plain.step.parameters, ours.matcher.parameters(), strict=True):
            parameter.copy_(start)
    losses = plain(ours.batches[:2]), ours(ours.batches[:2])
    print(f"losses of two batches: plain {losses[0]}, ours {losses[1]}", file=sys.stderr)
    np.testing.assert_allclose(*losses, rtol=1e-4)


def train_in_turn(loops: dict[str, PlainLoop | OurLoop], batches: list[Pairs], parts: int) -> dict[str, Timing]:
    """Train both on all batches, alternating who goes first in each part, and return the seconds of each."""
    times = dict.fromkeys(loops, Timing(0.0, 0.0))
    size = -(-len(batches) // parts)
    for number in range(parts):
        part = batches[number * size : (number + 1) * size]
        for name in sorted(loops, reverse=bool(number % 2)):
            took = timed(partial(loops[name], part))
            times[name] = Timing(times[name].wall + took.wall, times[name].cpu + took.cpu)
        now = ", ".join(f"{name} {total.wall:.1f} s" for name, total in times.items())
        print(f"part {number + 1} of {parts}: {now} so far", file=sys.stderr)
    return times


def main() -> None:
    """Train one epoch with both."""
    options = arguments(__doc__)
    keep_freed_memory()  # for both
    torch.manual_seed(0)
    words = vocabulary()
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder), TEXTS // 10 if options.quick else TEXTS, words)
        corpus = open_corpus(folder)
        plain, ours = PlainLoop(Path(folder), words), OurLoop(words)
        once = timed(lambda: ours.prepare(corpus))
        check_same_losses(plain, ours)
        ours.data = data = DataSide(once.wall)
        times = train_in_turn({"plain": plain, "ours": ours}, ours.batches, 4 if options.quick else 14)
        workers = plain.stop()
    seconds = {"plain": times["plain"].wall, "ours": times["ours"].wall + once.wall}
    cpu = {"plain": times["plain"].cpu + workers, "ours": times["ours"].cpu + once.cpu}
    ratio, share = seconds["plain"] / seconds["ours"], data.total / seconds["ours"]
    finish(
        "epoch",
        ratio=ratio,
        target=SPEED_TARGET,
        ok=ratio >= SPEED_TARGET and share <= DATA_TARGET,
        data_share=round(share, 4),
        data_target=DATA_TARGET,
        data_seconds={
            "once": round(data.once, 3),
            "waiting": round(data.waiting, 3),
            "reading": round(data.reading, 3),
        },
        pairs=len(corpus.texts),
        seconds={name: round(value, 2) for name, value in seconds.items()},
        cpu_seconds={name: round(value, 2) for name, value in cpu.items()},
    )


if __name__ == "__main__":
    main()
