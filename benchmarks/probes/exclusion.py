"""Compare rules for queries that exclude a word ("dog -snow"), on captioned photos.

    python benchmarks/probes/exclusion.py RUN DATA [--vectors FOLDER] [--choose val] [--report test]

A query is a pair of common words of the captions: the first is wanted, the second excluded. A photo is correct if its
captions have the first and not the second. Pairs are those with at least 20 correct photos and 10 with both words.
The words of the pairs come from the split that chooses. Each rule with each of its parameters is one line; `*` marks
the best average precision on the split that chooses.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from probes.captioned_photos import Flags, Values, average_precision, parse_splits, read_splits, unit

COMMON = 90  # words that make up the pairs

Rule = Callable[[Values, Values, Values], Values]  # photos, wanted and excluded vector -> scores


def subtract(share: float) -> Rule:
    """Take a share of the excluded vector from the wanted one."""
    return lambda photos, wanted, excluded: photos @ unit(wanted - share * excluded)


def penalise(weight: float, above: float) -> Rule:
    """Take from the score what the score of the excluded word is above a threshold."""
    return lambda photos, wanted, excluded: photos @ wanted - weight * np.maximum(0, photos @ excluded - above)


def remove(above: float) -> Rule:
    """Put photos last whose score of the excluded word is above a threshold."""
    return lambda photos, wanted, excluded: photos @ wanted - 10 * (photos @ excluded > above)


def remove_nearer(margin: float) -> Rule:
    """Put photos last that are nearer to the excluded word than to the wanted one."""
    return lambda photos, wanted, excluded: photos @ wanted - 10 * (photos @ excluded > photos @ wanted + margin)


def rules() -> Iterator[tuple[str, Rule]]:
    """Each rule with each parameter."""
    yield "ignore the excluded word", subtract(0)
    yield "orthogonal", lambda photos, wanted, excluded: photos @ unit(wanted - (wanted @ excluded) * excluded)
    for share in (0.2, 0.35, 0.5, 0.7, 1.0):
        yield f"subtract {share}", subtract(share)
    for above, weight in itertools.product((0.0, 0.05, 0.1, 0.15, 0.2, 0.25), (0.5, 1.0)):
        yield f"penalise {weight} above {above}", penalise(weight, above)
    for above in (0.15, 0.2, 0.25, 0.3, 0.35):
        yield f"remove above {above}", remove(above)
    for margin in (-0.1, -0.05, 0.0, 0.05, 0.1):
        yield f"remove nearer by {margin}", remove_nearer(margin)


def pairs(words: list[Counter[str]], common: list[str]) -> Iterator[tuple[str, str, Flags, Flags]]:
    """Wanted word, excluded word, which photos are correct, and which have the excluded word."""
    having = {word: np.array([word in some for some in words]) for word in common}
    for wanted, excluded in itertools.permutations(common, 2):
        both, correct = having[wanted] & having[excluded], having[wanted] & ~having[excluded]
        if both.sum() >= 10 and correct.sum() >= 20 and both.sum() > 0.15 * having[wanted].sum():
            yield wanted, excluded, correct, having[excluded]


def main() -> None:
    """Print one line per rule and split."""
    model, splits = read_splits(options := parse_splits(__doc__))
    common = splits[options.choose].common_words(COMMON)
    vectors = dict(zip(common, unit(model.encode_texts(common)), strict=True))
    best = ""
    for split, found in splits.items():
        photos, chosen = found.directions, list(pairs(found.words, common))
        figures = {}
        for name, rule in rules():
            orders = [np.argsort(-rule(photos, vectors[a], vectors[b]), kind="stable") for a, b, _, _ in chosen]
            precisions = [average_precision(order, pair[2]) for order, pair in zip(orders, chosen, strict=True)]
            in_top = [pair[3][order[:10]].mean() for order, pair in zip(orders, chosen, strict=True)]
            figures[name] = float(np.mean(precisions)), float(np.mean(in_top))
        best = best or max(figures, key=lambda name: figures[name][0])
        print(f"{split}: {len(chosen)} pairs; average precision, excluded word in the first ten")
        for name, (precision, shown) in figures.items():
            print(f"{'*' if name == best else ' '} {name:28} {precision:.3f} {shown:6.1%}")


if __name__ == "__main__":
    main()
