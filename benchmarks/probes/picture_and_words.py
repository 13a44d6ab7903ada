"""Compare rules for a picture plus words ("like this, but at night"), on captioned photos.

    python benchmarks/probes/picture_and_words.py RUN DATA [--vectors FOLDER] [--choose val] [--report test]

A query is a photo and a common word that none of its captions has. A photo is correct if its captions have the word and
at least two of the words that the photo of the query has in two captions or more. Queries are drawn at random among
those with at least three correct photos. The words come from the split that chooses; `*` marks the best average
precision there.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from probes.captioned_photos import Flags, Values, average_precision, parse_splits, read_splits, unit

COMMON = 90  # words that queries have
QUERIES = 1500
ALIKE = 2  # words that a correct photo shares with that of the query
FEWEST = 3  # correct photos

Rule = Callable[[Values, Values], Values]  # vectors of length one of the photo and the word -> the query


def weighted(share: float, mean: Values | None = None) -> Rule:
    """The sum of both vectors; with a mean, the word is its direction from there."""
    if mean is None:
        return lambda photo, word: unit((1 - share) * photo + share * word)
    return lambda photo, word: unit((1 - share) * photo + share * unit(word - mean))


def rules(words: Values, captions: Values) -> Iterator[tuple[str, Rule]]:
    """Each rule with each parameter; `words` and `captions` are those of the split that chooses."""
    for share in (0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1):
        yield f"words {share}", weighted(share)
    for share in (0.4, 0.5, 0.6, 0.7):
        yield f"words from the mean word {share}", weighted(share, words.mean(0))
        yield f"words from the mean caption {share}", weighted(share, captions.mean(0))


def queries(words: list[Counter[str]], common: list[str], draw: random.Random) -> list[tuple[int, str, Flags]]:
    """The photo and the word of each query, and which photos are correct."""
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(word for some in words for word in some))}
    counts = np.zeros((len(words), len(vocabulary)), np.float32)
    for row, some in zip(counts, words, strict=True):
        row[[vocabulary[word] for word in some]] = [*some.values()]
    alike = (counts > 1).astype(np.float32) @ (counts > 0).T >= ALIKE
    np.fill_diagonal(alike, False)
    drawn: list[tuple[int, str, Flags]] = []
    while len(drawn) < QUERIES:
        photo, word = draw.randrange(len(words)), draw.choice(common)
        correct = alike[photo] & (counts[:, vocabulary[word]] > 0)
        if word not in words[photo] and correct.sum() >= FEWEST:
            drawn.append((photo, word, correct))
    return drawn


def main() -> None:
    """Print one line per rule and split."""
    model, splits = read_splits(options := parse_splits(__doc__))
    common = splits[options.choose].common_words(COMMON)
    encoded = unit(model.encode_texts(common))
    vectors = dict(zip(common, encoded, strict=True))
    captions = unit(model.encode_texts([text for some in splits[options.choose].captions for text in some]))
    best = ""
    for split, found in splits.items():
        photos, words = found.directions, found.words
        drawn = queries(words, common, random.Random(0))
        figures = {}
        for name, rule in rules(encoded, captions):
            precisions, shown = [], []
            for photo, word, correct in drawn:
                scores = photos @ rule(photos[photo], vectors[word])
                scores[photo] = -np.inf
                order = np.argsort(-scores, kind="stable")
                precisions.append(average_precision(order, correct))
                shown.append(np.mean([word in words[place] for place in order[:10]]))
            figures[name] = float(np.mean(precisions)), float(np.mean(shown))
        best = best or max(figures, key=lambda name: figures[name][0])
        print(f"{split}: {len(drawn):,} queries; average precision, the word in the first ten")
        for name, (precision, share) in figures.items():
            print(f"{'*' if name == best else ' '} {name:32} {precision:.3f} {share:6.1%}", flush=True)


if __name__ == "__main__":
    main()
