"""Compare encoding texts as Fisher vectors with a loop over words, and time a whole fit.

25,000 texts of 12 words from a vocabulary of 2,600, with word frequencies as in captions; clustered, heavy-tailed word
vectors of size 100; an HGLMM with 30 centres after an ICA, and a PCA from 6,000 dimensions to 1,000. With `--quick`,
there are 5,000 texts and vectors of size 25. The comparison covers the Fisher vectors before the PCA, which is a matrix
product either way. The loop takes one word of one text at a time, with all centres and dimensions at once; both must
agree. The fit must also stay below a limit in seconds.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.machine import keep_freed_memory
from diptych.models.towers.text.fisher import Fisher, FisherSettings
from diptych.text.features.bags import DistinctTexts
from diptych.text.tokenisers.token_table import SPECIALS, TokenTable
from diptych.text.word_vectors import WordVectors
from diptych.training.inputs.text_features import put_features
from harness import arguments, finish, interleaved, timed

WORDS, SPOKEN, CENTRES = 2_600, 12, 30
LOOPED = 200  # texts that the loop is timed on; its rate does not depend on their number
TARGET, SECONDS_TARGET = 20, 300


def draw_texts(count: int, random: np.random.Generator) -> TokenTable:
    """Texts with start and end tokens, with Zipf-Mandelbrot word frequencies."""
    chances = 1 / (np.arange(WORDS) + 2.7) ** 1.2
    spoken = random.choice(WORDS, (count, SPOKEN), p=chances / chances.sum()) + len(SPECIALS)
    ids = np.concatenate([np.full((count, 1), 1), spoken, np.full((count, 1), 2)], 1)
    return TokenTable(ids.astype(np.int32).ravel(), np.arange(count + 1) * ids.shape[1])


def draw_vectors(size: int, random: np.random.Generator) -> WordVectors:
    """Vectors around a hundred centres, linearly mixed, so that there are independent components to find."""
    centres = random.normal(size=(100, size))[random.integers(0, 100, WORDS)]
    mixed = (centres + random.laplace(size=(WORDS, size))) @ random.normal(size=(size, size))
    vectors = np.concatenate([np.zeros((len(SPECIALS), size)), mixed]).astype(np.float32)
    return WordVectors(vectors, np.arange(len(vectors)) >= len(SPECIALS))


def loop(tower: Fisher, texts: TokenTable, count: int) -> NDArray[np.float32]:
    """The Fisher vectors of the first texts, word by word."""
    table, found = tower.table.numpy(), tower.found.numpy()
    weights, locations, scales = tower.weights.numpy(), tower.locations.numpy(), tower.scales.numpy()
    laplacian = tower.laplacian.numpy()
    constants = np.log(weights) - (np.log(scales) + np.where(laplacian, np.log(2), np.log(2 * np.pi) / 2)).sum(1)
    made = np.zeros((count, 2, *locations.shape), np.float32)
    for text in range(count):
        ids = texts.flat[texts.offsets[text] : texts.offsets[text + 1]]
        words = ids[found[ids]]
        for word in words:
            deviations = (table[word] - locations) / scales
            distances = np.abs(deviations)
            squares = deviations**2
            joint = constants - np.where(laplacian, distances, squares / 2).sum(1)
            posteriors = np.exp(joint - joint.max())
            posteriors = (posteriors / posteriors.sum() / np.sqrt(weights))[:, None]
            made[text, 0] += posteriors * np.where(laplacian, np.sign(deviations), deviations)
            made[text, 1] += posteriors * np.where(laplacian, distances - 1, (squares - 1) / np.sqrt(2))
        made[text] = np.sign(made[text]) * np.sqrt(np.abs(made[text] / len(words)))
        made[text] /= np.linalg.norm(made[text])
    return made.reshape(count, -1)


def main() -> None:
    """Time a whole fit, then encode alternately both ways."""
    options = arguments(__doc__)
    keep_freed_memory()
    random = np.random.default_rng(0)
    size, count, reduced = (25, 5_000, 200) if options.quick else (100, 25_000, 1_000)
    texts, vectors = draw_texts(count, random), draw_vectors(size, random)
    whole = FisherSettings(word=size, centres=CENTRES, size=reduced)
    fit = timed(lambda: whole.build(len(vectors.found)).fit(texts, vectors))
    tower = whole.model_copy(update={"size": None}).build(len(vectors.found))
    tower.fit(texts, vectors)
    device = torch.device("cpu")
    distinct = DistinctTexts.from_table(texts)
    rows = np.empty((len(distinct.first), tower.size), np.float32)
    works = {
        "encoding": lambda: put_features(tower, texts, distinct, device, rows),
        "loop": lambda: loop(tower, texts, LOOPED),
    }
    both = interleaved(works, 3)
    difference = float(np.abs(rows[distinct.inverse[:LOOPED]] - loop(tower, texts, LOOPED)).max())
    seconds = {"encoding": both["encoding"].wall / count, "loop": both["loop"].wall / LOOPED}
    ratio = seconds["loop"] / seconds["encoding"]
    finish(
        "text_features",
        ratio=ratio,
        target=TARGET,
        ok=ratio >= TARGET and fit.wall < SECONDS_TARGET and difference < 1e-3,
        texts_a_second=round(1 / seconds["encoding"]),
        loop_texts_a_second=round(1 / seconds["loop"]),
        largest_difference=difference,
        fit_seconds=round(fit.wall, 1),
        fit_cpu_seconds=round(fit.cpu, 1),
        fit_seconds_target=SECONDS_TARGET,
        texts=count,
    )


if __name__ == "__main__":
    main()
