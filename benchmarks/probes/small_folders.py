"""Measure how well few photos are judged: how many answerable queries find nothing, and how many others do.

    python benchmarks/probes/small_folders.py RUN DATA [--splits test]

The queries are those of `nothing_found.py`, asked of folders of photos that are drawn at random from a split. A query
is answerable if one of the first three hits is right. "Absent" are things that no photo shows, and "removed" concepts
that no photo of the folder mentions. Beside each figure is that of a level that does not depend on the number of
photos; the power of the number was chosen on val.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.data.open import open_corpus
from diptych.index.relevance import FOUND, answer_level, calibration_of
from diptych.machine import keep_freed_memory
from diptych.model import Model

sys.path.insert(0, str(Path(__file__).parents[1]))

from probes.captioned_photos import Flags, Photos, Values, parser_of, read
from probes.nothing_found import ABSENT, COMMON, CONCEPTS, FIRST, mentions

FOLDERS = {20: 100, 50: 60, 100: 40, 200: 20, 500: 10, 1000: 1, 2000: 1}  # how many folders of each number of photos


@dataclass(frozen=True)
class Asked:
    """A query: the score of each photo of the split, its probability as an answer, and whether it is right."""

    text: str
    scores: Values
    answers: Values
    right: Flags


def best_in(queries: list[Asked], folders: list[NDArray[np.int64]], *, answerable: bool = False) -> Values:
    """The best probability of each query in each folder, if it must be answerable, in those in which it is."""
    found = [
        query.answers[folder].max()
        for folder in folders
        for query in queries
        if not answerable or query.right[folder][np.argsort(-query.scores[folder])[:FIRST]].any()
    ]
    return np.array(found, np.float32)


def shares(best: Values, photos: int) -> str:
    """The share of queries that find nothing, and that with the level of a thousand photos."""
    return f"{100 * np.mean(best < answer_level(photos)):.0f}% ({100 * np.mean(best < FOUND):.0f}%)"


def main() -> None:
    """Print one row per number of photos."""
    parser = parser_of(__doc__)
    parser.add_argument("--splits", nargs="+", default=["test"], help="whose photos are taken together")
    options = parser.parse_args()
    keep_freed_memory()
    model = Model.load(options.run, "cpu", quality="fast")
    calibration = calibration_of(model)
    if calibration is None:
        raise SystemExit(f"{options.run} has no calibration; run: diptych calibrate {options.run} {options.data}")
    corpus = open_corpus(options.data)
    parts = [read(model, corpus.split(name), options.vectors, f"{name}_fast") for name in options.splits]
    photos = Photos(
        np.concatenate([part.vectors for part in parts]), [some for part in parts for some in part.captions]
    )

    def ask(text: str, right: Flags) -> Asked:
        query = model.engine.encode_texts([text]).vectors
        scores = photos.vectors @ query[0]
        answers = calibration.answers.probabilities(scores, calibration.describe_texts(query, [text]))
        return Asked(text, scores, answers, right)

    concepts = [
        ask(text, mentions(photos.captions, pattern))
        for pattern, queries in CONCEPTS.values()
        for text in queries.split("|")
    ]
    absent = [ask(text, np.zeros(len(photos.vectors), np.bool_)) for text in ABSENT]
    common = [ask(text, mentions(photos.captions, pattern)) for text, pattern in COMMON.items()]
    random = np.random.default_rng(0)
    names = ["level", "answerable", *(query.text for query in common), "absent", "removed"]
    print("| photos |", " | ".join(names), "|\n|---|" + "---|" * len(names))
    for count in (count for count in FOLDERS if count <= len(photos.vectors)):
        orders = [random.permutation(len(photos.vectors)) for _ in range(FOLDERS[count])]
        folders = [order[:count] for order in orders]
        cells = [shares(best_in(concepts, folders, answerable=True), count)]
        cells += [shares(best_in([query], folders, answerable=True), count) for query in common]
        cells += [shares(best_in(absent, folders), count)]
        without = [[order[~query.right[order]][:count] for order in orders] for query in concepts]
        removed = [best_in([query], some) for query, some in zip(concepts, without, strict=True)]
        # Folders of all photos but those of a concept are smaller, and have a level of their own.
        levels = [[answer_level(len(folder)) for folder in some] for some in without]
        nothing = np.mean(np.concatenate(removed) < np.concatenate(levels))
        cells += [f"{100 * nothing:.0f}% ({100 * np.mean(np.concatenate(removed) < FOUND):.0f}%)"]
        print(f"| {count} | {answer_level(count):.2f} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
