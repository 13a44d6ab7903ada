"""Find out what separates the recipe `vsepp` from the authors' public code of VSE++, one difference at a time.

    python benchmarks/probes/vsepp_gap.py FLICKR8K --runs authors unit-length text-projection masking --seeds 0 1 2

A plain PyTorch model with the settings of the public code is trained on stored 1C features of lite0: features as they
are, fc (Xavier), word embedding U(-0.1, 0.1), a GRU whose last state is the embedding of a text, max of hinges summed
over a batch of 128 pairs, every caption once per epoch, Adam, gradients clipped at norm 2. A run is `authors`, or names
of differences from it, joined by `+`:

- `unit-length`: features are divided by their lengths before the fc layer.
- `text-projection`: a linear map after the GRU (the paper's Eq. 2), with a bias, and initialised like the fc layer.
- `unbiased`: the text projection has no bias.
- `identity-start`: the weights of the text projection begin as the identity, as those of Diptych do.
- `slow-projection`: the text projection learns at a tenth of the rate.
- `masking`: other captions of the same photo are not negatives.
- `no-clipping`: gradients are not clipped.
- `whole`: the crop is the whole photo instead of the centre of 1C.
- `diptych`: Diptych's matcher, objective and step are trained in place of the plain ones, with the other differences
  as settings, from the same weights on the same batches.

The recipe `vsepp` is `unit-length+text-projection+masking`. Runs with the same seed begin with the same weights and see
the same batches. One JSON line per run: val rsum after each epoch, and test rsum after the last one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.data.sampling.batch import PairBatch
from diptych.evaluation.metrics.scores import embedding_score
from diptych.evaluation.protocols.retrieval import evaluate_score
from diptych.features.backbones.registry import load_backbone
from diptych.features.choices import CropName
from diptych.features.crops import Crops
from diptych.features.image_input import ImageInput
from diptych.features.readers import StoreOptions, image_reader
from diptych.machine import keep_freed_memory
from diptych.models.layers.prefix_gru import last_states
from diptych.models.matchers.vse import VSE, VSESettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.hinge import Hinge
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.vocabulary import Vocabulary
from diptych.training.engine.optimiser import make_optimiser, set_rate
from diptych.training.engine.step import Step
from diptych.training.recipe import Optimiser

PAIRS, MARGIN, CLIP, WORD, THRESHOLD = 128, 0.2, 2.0, 300, 4
AUTHORS, JOINT_SIGN, PROJECTION = "authors", "+", "project_text"
DIFFERENCES = (
    *("unit-length", "text-projection", "unbiased", "identity-start", "slow-projection"),
    *("masking", "no-clipping", "whole", "diptych"),
)


@dataclass(frozen=True)
class Part:
    """A split: stored features, one row per photo, the captions as ids, and the row of each caption's photo."""

    corpus: Corpus
    features: Tensor  # (photos, size)
    captions: TokenTable
    photo_of: NDArray[np.int64]  # (captions,)


@dataclass(frozen=True)
class Setting:
    """What all runs share: sizes, and the epochs at the full rate and at a tenth of it."""

    joint: int
    epochs: int
    last_epochs: int
    rate: float


class Reference(nn.Module):
    """The model of the public code for precomputed features, with the differences that concern the model."""

    def __init__(self, size: int, words: int, joint: int, differences: frozenset[str]) -> None:
        super().__init__()
        self.differences = differences
        self.project = nn.Linear(size, joint)
        self.words = nn.Embedding(words, WORD)
        self.gru = nn.GRU(WORD, joint, batch_first=True)
        self.project_text: nn.Module = nn.Identity()
        nn.init.uniform_(self.words.weight, -0.1, 0.1)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        if "text-projection" in differences:
            self.project_text = _text_projection(joint, differences)

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode features: (images, joint)."""
        images = normalize(images, dim=1) if "unit-length" in self.differences else images
        return normalize(self.project(images), dim=1)

    def encode_texts(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode padded ids: (texts, joint); the GRU computes common prefixes once, which changes no value."""
        last = last_states(ids, lengths, self.words.weight, *self.gru.parameters())
        return normalize(self.project_text(last), dim=1)


def _text_projection(joint: int, differences: frozenset[str]) -> nn.Linear:
    layer = nn.Linear(joint, joint, bias="unbiased" not in differences)
    start = nn.init.eye_ if "identity-start" in differences else nn.init.xavier_uniform_
    start(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def _multiple(differences: frozenset[str]) -> float:
    """The rate of the text projection, as a multiple of that of the rest."""
    return 0.1 if "slow-projection" in differences else 1.0


def max_of_hinges(scores: Tensor, same_photo: Tensor) -> Tensor:
    """The loss of the public code, summed over the batch; entries of `same_photo` are not negatives."""
    positive = scores.diag().view(-1, 1)
    texts = (MARGIN + scores - positive).clamp(min=0).masked_fill(same_photo, 0)
    images = (MARGIN + scores - positive.t()).clamp(min=0).masked_fill(same_photo, 0)
    return texts.amax(1).sum() + images.amax(0).sum()


class PlainRun:
    """Trains the reference."""

    def __init__(self, train: Part, words: int, setting: Setting, differences: frozenset[str]) -> None:
        self.train, self.differences = train, differences
        self.model = Reference(train.features.shape[1], words, setting.joint, differences)
        own = [parameter for name, parameter in self.model.named_parameters() if not name.startswith(PROJECTION)]
        groups = [
            {"params": own, "multiple": 1.0},
            {"params": list(self.model.project_text.parameters()), "multiple": _multiple(differences)},
        ]
        self.optimiser = torch.optim.Adam(groups, lr=setting.rate)

    def step(self, captions: NDArray[np.int64]) -> float:
        """Train on a batch of captions with their photos; return the loss per pair."""
        ids, lengths = map(torch.from_numpy, self.train.captions.batch(captions))
        photos = torch.from_numpy(self.train.photo_of[captions])
        scores = self.model.encode_images(self.train.features[photos]) @ self.model.encode_texts(ids, lengths).t()
        masking = "masking" in self.differences
        excluded = photos[:, None] == photos if masking else torch.eye(len(photos), dtype=torch.bool)
        loss = max_of_hinges(scores, excluded)
        self.optimiser.zero_grad()
        loss.backward()
        if "no-clipping" not in self.differences:
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimiser.step()
        return loss.item() / len(captions)

    def encode(self, images: Tensor, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Encode photos and captions."""
        return self.model.encode_images(images), self.model.encode_texts(ids, lengths)


class DiptychRun:
    """Trains Diptych's own parts from the weights of the reference."""

    def __init__(self, train: Part, words: int, setting: Setting, differences: frozenset[str]) -> None:
        self.train = train
        start = Reference(train.features.shape[1], words, setting.joint, differences)
        settings = VSESettings(
            joint=setting.joint,
            image=FeatureSettings(shape=(train.features.shape[1],), normalise="unit-length" in differences),
            text=GRUSettings(word=WORD, hidden=setting.joint),
            text_projection="text-projection" in differences,
            words=words,
        )
        self.matcher = VSE(settings).train()
        with torch.no_grad():
            for parameter, value in zip(self.matcher.parameters(), start.parameters(), strict=True):
                parameter.copy_(value)
        parts = {PROJECTION: _multiple(differences)} if "slow-projection" in differences else {}
        self.optimiser = make_optimiser(self.matcher, Optimiser(rate=setting.rate, parts=parts))
        clip = 0.0 if "no-clipping" in differences else CLIP
        objective = Hinge(margin=MARGIN, mask_same_group="masking" in differences)
        self.step_on = Step(self.matcher, objective, self.optimiser, torch.device("cpu"), clip)

    def step(self, captions: NDArray[np.int64]) -> float:
        """Train on a batch of captions with their photos; return the loss per pair."""
        ids, lengths = self.train.captions.batch(captions)
        photos, image_of = np.unique(self.train.photo_of[captions], return_inverse=True)
        rows = np.arange(len(captions))
        batch = PairBatch(self.train.features[photos].numpy(), image_of, ids, lengths, rows, groups=image_of)
        loss, _ = self.step_on(batch)
        return loss.total.item() / len(captions)

    def encode(self, images: Tensor, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Encode photos and captions."""
        return self.matcher.encode_images(images), self.matcher.encode_texts(Tokens(ids, lengths))


@torch.inference_mode()
def rsum(run: PlainRun | DiptychRun, part: Part) -> float:
    """The sum of the six recalls on a split."""
    rows = np.array_split(np.arange(len(part.captions)), max(1, len(part.captions) // 500))
    texts = [run.encode(part.features[:1], *map(torch.from_numpy, part.captions.batch(some)))[1] for some in rows]
    images = run.encode(part.features, *map(torch.from_numpy, part.captions.batch([0])))[0]
    score = embedding_score(lambda some, captions: some @ captions.t(), images, torch.cat(texts))
    groups = part.corpus.image_groups, part.corpus.text_groups
    return evaluate_score(score, *groups, draws=2).metrics.rsum


def train_run(parts: dict[str, Part], words: int, name: str, seed: int, setting: Setting) -> dict[str, object]:
    """Train one run and measure it."""
    torch.manual_seed(seed)
    differences = frozenset(name.split(JOINT_SIGN)) - {AUTHORS}
    train, started = parts["train"], time.process_time()
    run = (DiptychRun if "diptych" in differences else PlainRun)(train, words, setting, differences)
    losses, val = [], []
    for epoch in range(setting.epochs):
        set_rate(run.optimiser, setting.rate * (0.1 if epoch >= setting.epochs - setting.last_epochs else 1))
        order = np.random.default_rng((seed, epoch)).permutation(len(train.captions))
        steps = [run.step(order[start : start + PAIRS]) for start in range(0, len(order), PAIRS)]
        losses.append(round(float(np.mean(steps)), 4))
        val.append(round(rsum(run, parts["val"]), 1))
        print(f"{name} seed {seed} epoch {epoch + 1}: loss {losses[-1]}, val {val[-1]}", file=sys.stderr, flush=True)
    return {
        "run": name,
        "seed": seed,
        "joint": setting.joint,
        "steps": len(steps) * setting.epochs,
        "loss": losses,
        "val": val,
        "test": round(rsum(run, parts["test"]), 1),
        "cpu_seconds": round(time.process_time() - started),
    }


def read_parts(data: str, stores: Path, crops: CropName, splits: Sequence[str]) -> tuple[dict[str, Part], int]:
    """The splits with their stored features, which are computed first if need be, and the number of words."""
    corpus, backbone = open_corpus(data), load_backbone("lite0")
    image_input = ImageInput("crops", (3, backbone.side, backbone.side), Crops(name=crops))
    store = StoreOptions(stores, torch.device("cpu"), create=True)
    chosen = {"train": splits, "val": ["val"], "test": ["test"]}
    corpora = {name: corpus.split(*which).matched() for name, which in chosen.items()}
    vocabulary = Vocabulary.from_texts(corpora["train"].texts, THRESHOLD)
    parts = {}
    for name, part in corpora.items():
        photos = np.arange(len(part.image_ids))
        values, readable = image_reader(part, image_input, backbone, store=store).read(photos)
        assert readable.all(), "a photo cannot be read"
        row = {group: photo for photo, group in enumerate(part.image_groups.tolist())}
        photo_of = np.array([row[group] for group in part.text_groups.tolist()])
        parts[name] = Part(part, torch.from_numpy(values), vocabulary.encode_all(part.texts), photo_of)
    return parts, len(vocabulary)


def check_names(runs: Sequence[str]) -> None:
    """Refuse a difference that does not exist."""
    for name in runs:
        if unknown := set(name.split(JOINT_SIGN)) - {AUTHORS, *DIFFERENCES}:
            sys.exit(f"--runs: unknown {sorted(unknown)}; use {AUTHORS} or {', '.join(DIFFERENCES)}, joined by +")


def main() -> None:
    """Train every run with every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--runs", nargs="+", default=[AUTHORS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--features", type=Path, default=Path("features"))
    parser.add_argument("--splits", nargs="+", default=["train"], help="what is trained on")
    parser.add_argument("--joint", type=int, default=1024, help="size of the joint space and of the GRU")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--last-epochs", type=int, default=1, help="epochs at a tenth of the rate")
    parser.add_argument("--rate", type=float, default=2e-4)
    options = parser.parse_args()
    check_names(options.runs)
    keep_freed_memory()
    setting = Setting(options.joint, options.epochs, options.last_epochs, options.rate)
    cached: dict[CropName, tuple[dict[str, Part], int]] = {}
    for seed in options.seeds:
        for name in options.runs:
            crops: CropName = "whole" if "whole" in name.split(JOINT_SIGN) else "1C"
            if crops not in cached:
                cached[crops] = read_parts(options.data, options.features, crops, options.splits)
            print(json.dumps(train_run(*cached[crops], name, seed, setting)), flush=True)


if __name__ == "__main__":
    main()
