"""Compare an epoch of the recipe `adapt-heads` with a bare loop: the products of its heads, the loss and the optimiser.

5,000 images with 5 texts each, 25,000 pairs in batches of 256 (`--quick`: 1,000 images), and a base like the starter:
1280-d stored features, 1024-d embeddings, residual heads with 1024 hidden units. Diptych's epoch is that of
`diptych.train`, from drawing the pairs to the last step, without validation and snapshots. The bare loop has the base's
embeddings of both sides in memory, and does for each batch what no training of the heads can avoid: both heads, the
scores, the contrastive loss, backward, clipping, and Adam. Epochs of both alternate.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

import diptych
from diptych.data.corpus import Corpus, Features
from diptych.machine import available_cores, keep_freed_memory
from diptych.training.engine.callbacks import Callback
from diptych.training.engine.events import Checkpoint, EpochEnd, StageStart, StepEnd
from harness import Timing, arguments, finish, timed

TARGET = 1.3
IMAGES, QUICK_IMAGES, VAL, TEXTS_PER_IMAGE = 5_000, 1_000, 50, 5
FEATURES, JOINT, HIDDEN, BATCH, WORDS = 1280, 1024, 1024, 256, 2_000
TEMPERATURE, RATE, CLIP = 0.05, 0.0003, 2.0
BASE = f"""
[model]
name = "vse"
joint = {JOINT}
dropout = 0.5
image = {{ name = "features" }}
text = {{ name = "words", word = 300, hidden = {JOINT}, dropout = 0.5 }}

[text]
threshold = 1

[[stage]]
epochs = 1
objective = {{ name = "contrastive" }}
"""


def corpus(images: int) -> Corpus:
    """Random features, and texts of eleven random words."""
    random = np.random.default_rng(0)
    count = images + VAL
    splits = np.array(["train"] * images + ["val"] * VAL)
    words = random.integers(WORDS, size=(count * TEXTS_PER_IMAGE, 11))
    return Corpus(
        name="random",
        image_ids=[f"{number}.jpg" for number in range(count)],
        image_groups=np.arange(count),
        image_splits=splits,
        texts=[" ".join(f"w{word}" for word in text) for text in words],
        text_groups=np.repeat(np.arange(count), TEXTS_PER_IMAGE),
        text_splits=np.repeat(splits, TEXTS_PER_IMAGE),
        features=Features([random.standard_normal((count, FEATURES), dtype=np.float32)]),
    )


class BareLoop:
    """Residual heads on embeddings of both sides that are in memory."""

    def __init__(self, images: int) -> None:
        self.images = normalize(torch.randn(images, JOINT), dim=1)
        self.texts = normalize(torch.randn(images * TEXTS_PER_IMAGE, JOINT), dim=1)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(JOINT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, JOINT)) for _ in range(2)
        )
        self.optimiser = torch.optim.Adam(self.heads.parameters(), lr=RATE, fused=True)

    def epoch(self) -> None:
        """Train on each text once."""
        for texts in torch.randperm(len(self.texts)).split(BATCH):
            self.step(texts // TEXTS_PER_IMAGE, texts)

    def step(self, images: Tensor, texts: Tensor) -> float:
        """Train on one batch of pairs and return its loss."""
        self.optimiser.zero_grad()
        sides = (self.images[images], self.texts[texts])
        x, y = (normalize(each + head(each), dim=1) for each, head in zip(sides, self.heads, strict=True))
        scores = x @ y.t() / TEMPERATURE  # (pairs, pairs)
        others = (images[:, None] == images).fill_diagonal_(False)
        positive = scores.diagonal()
        scores = scores.masked_fill(others, -torch.inf)
        loss = (scores.logsumexp(1) - positive).mean() + (scores.logsumexp(0) - positive).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.heads.parameters(), CLIP)
        self.optimiser.step()
        return loss.item()


class Alternation(Callback):
    """Times the epochs of a training, and the bare loop's between them; the first of both is not counted."""

    def __init__(self, bare: BareLoop) -> None:
        self.bare, self.times = bare, {"diptych": list[Timing](), "bare": list[Timing]()}
        self.started = self.last = Timing(0.0, 0.0)

    def on_stage_start(self, stage: StageStart) -> None:
        """The first epoch begins."""
        self.started = now()

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        """The next epoch begins."""
        self.started = now()

    def on_step(self, step: StepEnd) -> None:
        """Perhaps the last step of the epoch."""
        self.last = now()

    def on_epoch_end(self, epoch: EpochEnd) -> None:
        """Train the bare loop for an epoch."""
        if epoch.epoch == 0:
            return
        ours = Timing(self.last.wall - self.started.wall, self.last.cpu - self.started.cpu)
        both = {"diptych": ours, "bare": timed(self.bare.epoch)}
        told = ", ".join(f"{name} {each.wall:.3f} s" for name, each in both.items())
        print(f"epoch {epoch.epoch} of {epoch.epochs}: {told}", file=sys.stderr)
        if epoch.epoch > 1:
            for name, each in both.items():
                self.times[name].append(each)


def now() -> Timing:
    """The clocks."""
    return Timing(time.perf_counter(), time.process_time())


def train_both(images: int, epochs: int) -> dict[str, list[Timing]]:
    """Train a base for one epoch, then heads on it, in turn with the bare loop; the seconds per epoch of each."""
    alternation = Alternation(BareLoop(images))
    with tempfile.TemporaryDirectory() as folder:
        base, stores, recipe = Path(folder) / "base", Path(folder) / "features", Path(folder) / "base.toml"
        recipe.write_text(BASE, encoding="utf-8")
        data = corpus(images)
        diptych.train(str(recipe), data, base, features=stores)
        heads = diptych.load_recipe("adapt-heads", [f"stage.1.start={base}", f"stage.1.epochs={epochs}"])
        diptych.train(heads, data, Path(folder) / "run", features=stores, callbacks=[alternation])
    return alternation.times


def main() -> None:
    """Train with both and compare the best epochs."""
    options = arguments(__doc__)
    keep_freed_memory()  # for both
    torch.manual_seed(0)
    images, epochs = (QUICK_IMAGES, 4) if options.quick else (IMAGES, 6)
    times = train_both(images, epochs)
    wall = {name: min(each.wall for each in some) for name, some in times.items()}
    cpu = {name: min(each.cpu for each in some) for name, some in times.items()}
    ratio = wall["diptych"] / wall["bare"]
    finish(
        "adapt_heads",
        ratio=ratio,
        target=TARGET,
        ok=ratio <= TARGET,
        cpu_ratio=round(cpu["diptych"] / cpu["bare"], 3),
        seconds_per_epoch={name: round(value, 3) for name, value in wall.items()},
        cpu_seconds_per_epoch={name: round(value, 3) for name, value in cpu.items()},
        pairs=images * TEXTS_PER_IMAGE,
        cores=available_cores(),
    )


if __name__ == "__main__":
    main()
