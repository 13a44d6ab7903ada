"""Find out which normalisation lite0's weights expect, by retrieval on your own photos.

    python benchmarks/probes/normalisation.py DATA [--train 2000] [--val 1000]

Features of the same photos are computed with both normalisations. A ridge regression, whose strength is chosen on half
of val, maps them to the words of their texts; the other half is ranked by the cosine of mapped features and words. The
normalisation that the weights were trained with should rank better.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from rich.console import Console
from torch import Tensor
from torch.nn.functional import normalize

from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.evaluation.metrics.scores import embedding_score
from diptych.evaluation.protocols.retrieval import RetrievalResult, evaluate_score
from diptych.features.backbones import efficientnet_lite
from diptych.features.backbones.registry import load_backbone
from diptych.features.crops import Crops
from diptych.features.image_input import pictures_of
from diptych.features.readers import CropReader
from diptych.machine import keep_freed_memory
from diptych.report.tables.evaluation import retrieval_table
from diptych.text.tokenisers.token_table import UNKNOWN
from diptych.text.vocabulary import Vocabulary

NORMALISATIONS = {
    "0.5 / 0.5": ((127.5,) * 3, (127.5,) * 3),
    "ImageNet's": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
}
STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def first(corpus: Corpus, images: int) -> Corpus:
    """The first images of a corpus with their texts."""
    rows = np.arange(min(images, len(corpus.image_ids)))
    return corpus.take(rows, np.arange(len(corpus.texts))).matched()


@torch.inference_mode()
def features(corpus: Corpus, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """The features of a corpus's photos with a normalisation, each of length 1."""
    backbone, plain = load_backbone("lite0"), efficientnet_lite.normalise  # type: ignore[attr-defined]
    setattr(efficientnet_lite, "normalise", lambda pixels, _mean, _deviation: plain(pixels, mean, deviation))  # noqa: B010
    try:
        reader = CropReader(pictures_of(corpus), Crops(), backbone.side)
        chunks = np.array_split(np.arange(len(corpus.image_ids)), max(1, len(corpus.image_ids) // 32))
        rows = [backbone(torch.from_numpy(reader.read(chunk)[0]).flatten(0, 1)) for chunk in chunks]
    finally:
        setattr(efficientnet_lite, "normalise", plain)  # noqa: B010
    return normalize(torch.cat(rows), dim=1)


def words(corpus: Corpus, vocabulary: Vocabulary) -> Tensor:
    """Each text as a bag of words of length 1: (texts, words)."""
    out = torch.zeros(len(corpus.texts), len(vocabulary))
    for row, text in enumerate(corpus.texts):
        out[row, [word for word in vocabulary.encode(text) if word > UNKNOWN]] = 1
    return normalize(out, dim=1)


def ranked(corpus: Corpus, mapped: Tensor, texts: Tensor) -> RetrievalResult:
    """The recall of mapped features against texts."""
    score = embedding_score(lambda images, captions: images @ captions.t(), mapped, texts)
    return evaluate_score(score, corpus.image_groups, corpus.text_groups)


def probe(
    train: Corpus, target: Tensor, halves: tuple[Corpus, Corpus], vocabulary: Vocabulary, name: str
) -> RetrievalResult:
    """The recall with one normalisation on the second half, with the strength that is best on the first."""
    known = features(train, *NORMALISATIONS[name])
    asked = [features(half, *NORMALISATIONS[name]) - known.mean(0) for half in halves]
    texts = [words(half, vocabulary) for half in halves]
    maps = {
        strength: torch.linalg.solve(known.t() @ known + strength * torch.eye(known.shape[1]), known.t() @ target)
        for strength in STRENGTHS
    }
    best = max(STRENGTHS, key=lambda s: ranked(halves[0], normalize(asked[0] @ maps[s]), texts[0]).metrics.rsum)
    return ranked(halves[1], normalize(asked[1] @ maps[best]), texts[1])


def main() -> None:
    """Print the recall with both normalisations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--val", type=int, default=1000)
    options = parser.parse_args()
    keep_freed_memory()
    corpus = open_corpus(options.data)
    train, val = (
        first(corpus.split("train").matched(), options.train),
        first(corpus.split("val").matched(), options.val),
    )
    vocabulary = Vocabulary.from_texts(train.texts, 4)
    groups = {group: row for row, group in enumerate(train.image_groups.tolist())}
    image_of = torch.tensor([groups[group] for group in train.text_groups.tolist()])
    target = torch.zeros(len(train.image_ids), len(vocabulary)).index_add_(0, image_of, words(train, vocabulary))
    half, texts = len(val.image_ids) // 2, np.arange(len(val.texts))
    halves = first(val, half), val.take(np.arange(half, len(val.image_ids)), texts).matched()
    console = Console()
    for name in NORMALISATIONS:
        console.print(name, retrieval_table(probe(train, target - target.mean(0), halves, vocabulary, name)))


if __name__ == "__main__":
    main()
