"""Choose the weights of relevance feedback ("more like these, less like those"), on captioned photos.

    python benchmarks/probes/feedback.py RUN DATA [--vectors FOLDER] [--choose val] [--report test]

A query is a common word of the captions, two of them, or no text at all: then it begins with one correct photo. A photo
is correct if its captions have the words. In each of two rounds, simulated people mark the first three correct and the
first three wrong photos among the first twenty that they have not marked yet. Marked photos are taken out before
anything is measured, of the ranking with feedback and of that without, so that they do not count as found.

Each weight is one line with the average precision after one and two rounds; `*` marks the best sum on the split that
chooses. The weights in use, `diptych.index.feedback`, are reported with paired intervals over the queries.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.index.feedback import LESS, MORE

sys.path.insert(0, str(Path(__file__).parents[1]))

from probes.captioned_photos import Flags, Values, average_precision, interval, parse_splits, read_splits, unit

COMMON = 150  # words that make up the queries
PAIRS = 150
SHOWN, MARKED, ROUNDS = 20, 3, 2

Rule = Callable[[Values | None, Values, Values, Values], Values]  # text, more, less, mean of the photos -> vector


@dataclass(frozen=True)
class Wish:
    """What somebody looks for: a kind of query, its vector if it has a text, and which photos are correct."""

    kind: str
    text: Values | None
    correct: Flags


def rocchio(more_weight: float, less_weight: float, centred: bool) -> Rule:
    """Add the mean of the photos that are liked, and subtract that of the others."""

    def turn(text: Values | None, more: Values, less: Values, mean: Values) -> Values:
        origin = mean if centred else 0 * mean
        vector = np.zeros_like(mean) if text is None else text
        if len(more):
            vector = vector + (more_weight if text is not None else 1) * unit(more.mean(0) - origin)
        if len(less):
            vector = vector - less_weight * unit(less.mean(0) - origin)
        return vector

    return turn


def rules() -> Iterator[tuple[str, Rule]]:
    """Each pair of weights."""
    weights = (0.25, 0.5, 0.75, 1.0, 1.5)
    for more, less, centred in itertools.product(weights, (0.0, 0.15, 0.3, 0.5), (False, True)):
        yield f"more {more:.2f} less {less:.2f}{' centred' if centred else ''}", rocchio(more, less, centred)


def wishes(words: list[Counter[str]], common: list[str], encode: Callable[[list[str]], Values]) -> Iterator[Wish]:
    """Single words with 20 correct photos, pairs of words with 10, and the same single words without a text."""
    having = {word: np.array([word in some for some in words]) for word in common}
    frequent = [word for word in common if having[word].sum() >= 20]
    for word, vector in zip(frequent, encode(frequent), strict=True):
        yield Wish("one word", vector, having[word])
        yield Wish("no text", None, having[word])
    pairs = [(a, b) for a, b in itertools.combinations(common, 2) if (having[a] & having[b]).sum() >= 10]
    drawn = [pairs[place] for place in np.random.default_rng(0).permutation(len(pairs))[:PAIRS]]
    for (a, b), vector in zip(drawn, encode([f"{a} {b}" for a, b in drawn]), strict=True):
        yield Wish("two words", vector, having[a] & having[b])


def rounds(wish: Wish, photos: Values, mean: Values, rule: Rule) -> list[tuple[float, float, float, float]]:
    """Average precision and precision@10 after each round: without feedback, and with it."""
    more: list[int] = []
    less: list[int] = []
    if wish.text is None:
        more.append(int(np.flatnonzero(wish.correct)[0]))
    first = wish.text if wish.text is not None else photos[more[0]]
    vector, figures = first, []
    for _ in range(ROUNDS):
        shown = ranked(photos, vector, more + less)[:SHOWN].tolist()
        more += [photo for photo in shown if wish.correct[photo]][:MARKED]
        less += [photo for photo in shown if not wish.correct[photo]][:MARKED]
        vector = rule(wish.text, photos[more], photos[less], mean)
        figures.append((*measure(wish, photos, first, more + less), *measure(wish, photos, vector, more + less)))
    return figures


def ranked(photos: Values, vector: Values, marked: list[int]) -> NDArray[np.int64]:
    """The photos that are not marked, best first."""
    scores = photos @ vector
    scores[marked] = -np.inf
    order: NDArray[np.int64] = np.argsort(-scores, kind="stable")
    return order[: len(order) - len(set(marked))]


def measure(wish: Wish, photos: Values, vector: Values, marked: list[int]) -> tuple[float, float]:
    """Average precision and precision@10 of a ranking without the marked photos."""
    order = ranked(photos, vector, marked)
    return average_precision(order, wish.correct), float(wish.correct[order[:10]].mean())


def results(found: list[Wish], photos: Values, rule: Rule) -> NDArray[np.float64]:
    """(queries, rounds, 4): see `rounds`."""
    mean = photos.mean(0)
    return np.array([rounds(wish, photos, mean, rule) for wish in found])


def report(name: str, before: NDArray[np.float64], after: NDArray[np.float64]) -> str:
    """Both means and the interval of their difference, drawn over the queries."""
    difference = after - before
    low, high = interval(difference)
    return f"{name} {before.mean():.3f} -> {after.mean():.3f} ({difference.mean():+.3f}, {low:+.3f} to {high:+.3f})"


def main() -> None:
    """Print one line per pair of weights on the split that chooses, and the one in use on the other."""
    model, splits = read_splits(options := parse_splits(__doc__))
    common = splits[options.choose].common_words(COMMON)
    found = {
        split: list(wishes(photos.words, common, lambda texts: unit(model.encode_texts(texts))))
        for split, photos in splits.items()
    }
    chosen, photos = found[options.choose], splits[options.choose].directions
    figures = {name: results(chosen, photos, rule) for name, rule in rules()}
    best = max(figures, key=lambda name: figures[name][:, :, 2].mean())
    print(f"{options.choose}: {len(chosen)} queries; average precision after one and two rounds, by kind of query")
    kinds = sorted({wish.kind for wish in chosen})
    for name, values in figures.items():
        parts = []
        for kind in kinds:
            rows = np.array([row for row, wish in enumerate(chosen) if wish.kind == kind])
            parts.append(f"{kind} {values[rows, 0, 2].mean():.3f} {values[rows, 1, 2].mean():.3f}")
        print(f"{'*' if name == best else ' '} {name:32} {values[:, :, 2].mean():.4f}  {'  '.join(parts)}")
    reported, photos = found[options.report], splits[options.report].directions
    values = results(reported, photos, rocchio(MORE, LESS, False))
    print(f"{options.report}: more {MORE} less {LESS}, in use")
    for kind in kinds:
        rows = np.array([row for row, wish in enumerate(reported) if wish.kind == kind])
        for number in range(ROUNDS):
            one = values[rows, number]
            print(f"  {kind}, {len(rows)} queries, round {number + 1}:")
            print("    " + report("average precision", one[:, 0], one[:, 2]))
            print("    " + report("precision@10", one[:, 1], one[:, 3]))


if __name__ == "__main__":
    main()
