"""Compare rules that decide whether a query has any match among the photos, on captioned everyday photos.

    python benchmarks/probes/nothing_found.py RUN DATA [--features FOLDER] [--choose val] [--report test]

Thirty concepts are searched for, each with a word and with phrases: among all photos of a split; among the photos whose
captions never mention it, plus 1, 5 or 25 photos that do; and among the former alone, where there is no match. Other
queries are captions, and things that no photo shows. Finally, folders of a single concept are searched for it and for
concepts that they lack. A query has a match if one of the first three hits is correct. Each rule has one threshold,
chosen on one split (the best mean of detection rate and correct rejection rate) and evaluated on the other, with 95%
bootstrap intervals over concepts.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.index.relevance import EXPECTED, Background, estimate_background, thresholds
from diptych.machine import keep_freed_memory
from diptych.model import Model

Values = NDArray[np.float32]
FolderQuery = tuple[str, str, list[str], NDArray[np.int64], NDArray[np.bool_] | None]

# A pattern of the words that captions use for it, and the queries.
CONCEPTS = {
    "dog": (r"dogs?|pupp\w+|poodle|terrier|retriever|\w*hounds?|collie|labrador|husky|canine", "dog|a dog running"),
    "bicycle": (r"bicycl\w*|bik\w+|cyclists?|cycling|motor\w+|bmx", "bicycle|a man on a bicycle|riding a bike"),
    "snow": (r"snow\w*|ski\w*|sled\w*|ice|icy|winter|sleigh", "snow|in the snow|a snowy mountain"),
    "water": (
        r"water\w*|beach\w*|ocean|sea|lake|river|pool|swim\w*|surf\w*|wav\w+|shore\w*|pond|stream|boat\w*|splash\w*|"
        r"fountain|wet|creek|canoe\w*|kayak\w*|raft\w*|puddle|div\w+|sprinkler",
        "water|the ocean|a beach",
    ),
    "children": (r"child\w*|kids?|boys?|girls?|bab\w+|toddlers?|infant", "children|a child|a little girl"),
    "soccer": (r"soccer|football|ball", "soccer|playing soccer|a soccer player"),
    "horse": (r"hors\w+|pon\w+|rodeo|cowboy|bull|bronco|jockey|equestrian", "horse|a horse|riding a horse"),
    "car": (r"cars?|vehicle\w*|truck\w*|jeep|rac\w+|van|traffic|suv|taxi|bus", "car|a red car|a race car"),
    "climbing": (
        r"climb\w*|rocks?|rocky|cliff\w*|boulder\w*|mountain\w*|r[ea]pp?el\w*",
        "rock climbing|a climber|a man climbing a rock",
    ),
    "skateboard": (r"skat\w+", "skateboard|a skateboarder|a skateboard trick"),
    "basketball": (r"basket\w*|hoop|dunk\w*|ball", "basketball|a basketball player"),
    "tennis": (r"tennis|racket|racquet|ball", "tennis|a tennis player"),
    "boat": (r"boat\w*|canoe\w*|kayak\w*|raft\w*|ship\w*|sail\w*|paddl\w*|row\w*", "boat|a boat on the water|a kayak"),
    "guitar": (r"guitar\w*|music\w*|band|instrument\w*|sing\w*|concert|banjo|violin", "guitar|playing a guitar"),
    "swing": (r"swing\w*|playground", "swing|a child on a swing"),
    "tent": (r"tents?|camp\w*", "tent|a tent"),
    "fire": (r"fire\w*|flam\w*|burn\w*|bonfire|torch", "fire|a fire"),
    "bird": (r"birds?|geese|goose|ducks?|pigeons?|\w*gulls?|flock|eagle|owl|falcon", "bird|a bird flying"),
    "cat": (r"cats?|kitten\w*", "cat|a cat"),
    "sunset": (r"sun\w*|dusk|silhouett\w*|dawn|evening", "sunset|the sunset|a silhouette"),
    "surfing": (r"surf\w*|wav\w+|\w*board\w*", "surfing|a surfer|a surfer on a wave"),
    "hockey": (r"hockey|ice|puck|rink|skat\w*", "hockey|ice hockey players"),
    "baseball": (r"baseball|bats?|pitch\w*|batter|catcher|ball|umpire", "baseball|a baseball player"),
    "wedding": (r"wedding|bride\w*|groom", "wedding|a bride"),
    "crowd": (r"crowd\w*|audience|spectators?|people|parade|fans|group", "crowd|a large crowd"),
    "trampoline": (r"trampolin\w*|bounc\w*|jump\w*", "trampoline|a trampoline"),
    "slide": (r"slid\w*|playground", "slide|a child on a slide"),
    "cattle": (r"sheep|cows?|cattle|goats?|lamb|bull\w*|animals?", "cow|a sheep|cows"),
    "hat": (r"hats?|caps?|helmet\w*|beanie|bandanna", "hat|a man in a hat"),
    "food": (
        r"eat\w*|food|drink\w*|restaurant|dinner|lunch|meal|cake|cream|grill\w*|cook\w*|bottle|cup|beer|pizza|table\w*",
        "food|eating food|people eating dinner",
    ),
}
# fmt: off
ABSENT = [
    "submarine", "x-ray of a hand", "asdf", "a giraffe", "an elephant", "a zebra in the savanna", "kitchen sink",
    "a bowl of fruit", "spaceship", "a piano", "the eiffel tower", "a spreadsheet", "computer keyboard", "a snake",
    "a penguin", "dinosaur", "a microscope image", "a chart of stock prices", "a lighthouse", "a castle",
    "a bathroom", "toilet", "a bed in a bedroom", "a refrigerator", "a laptop on a desk", "a traffic light",
    "stop sign", "a banana", "broccoli", "a wine glass", "scissors", "a teddy bear", "a hair dryer",
    "an abstract painting", "a map", "a clock", "the moon", "a galaxy", "a rocket launch", "a satellite image",
]
# fmt: on
ADDED, CAPTIONS, PANEL = (1, 5, 25), 100, 256
SURE, THEME = 3, 4  # least mentions in the captions of an image that shows a concept, and of one in a folder of it


@dataclass(frozen=True)
class Case:
    """A query to a folder: its concept, whether there is a match, and the value that each rule compares."""

    what: str
    concept: str
    there: bool
    measures: dict[str, float]


@dataclass(frozen=True)
class Photos:
    """The photos of a split: their vectors, captions, and scores with a panel of other texts."""

    images: Values
    captions: list[list[str]]
    panel: Values  # (images, texts)

    def mentions(self, concept: str) -> NDArray[np.int64]:
        """The number of captions of each image that mention a concept."""
        pattern = re.compile(rf"\b({CONCEPTS[concept][0]})\b")
        return np.array([sum(bool(pattern.search(text)) for text in texts) for texts in self.captions])


def measures(scores: Values, known: Background, panel: Values) -> dict[str, float]:
    """The value that each rule compares with its threshold; higher means a match. The last is a negated count."""
    best, entries = float(scores.max()), len(scores)
    low, middle, upper, top = np.quantile(scores, [0.16, 0.5, 0.75, 0.98])
    tail = scores[(scores > upper) & (scores < top)] - upper
    tops = panel.max(0)  # the best score of each text of the panel in this folder
    after = np.sort(scores)[-min(21, entries)]
    z = (best - middle) / known.spread
    bar = float(thresholds(scores[None], np.ones(1, np.float32), entries, known)[0])
    expected = entries * NormalDist().cdf(-z)
    if bar < middle:  # the folder as a whole matches the query
        expected = 0.0
    return {
        "flat threshold on the score": best,
        "robust z of the query": -entries * NormalDist().cdf(-(best - middle) / max(middle - low, 1e-9)),
        "exponential tail of the query": -entries * 0.25 * float(np.exp(-(best - upper) / max(tail.mean(), 1e-9))),
        "above a panel's best": float((best - np.median(tops)) / tops.std()),
        "gap to the 20th": float((best - after) / scores.std()),
        "folder's spread, alone": z,
        "folder's spread and size (ours)": -expected,
    }


def cases(photos: Photos, encode: Callable[[list[str]], Values], random: np.random.Generator) -> list[Case]:
    """All queries to all folders."""
    found = []
    for what, concept, texts, rows, right in folder_queries(photos, random):
        known = estimate_background(photos.images[random.permutation(rows)])
        assert known is not None
        for text in texts:
            scores = photos.images[rows] @ encode([text])[0]
            if right is None or right[rows[np.argsort(-scores)[:SURE]]].any():
                measured = measures(scores, known, photos.panel[rows])
                found.append(Case(what, concept, right is not None, measured))
    return found


def folder_queries(photos: Photos, random: np.random.Generator) -> Iterator[FolderQuery]:
    """The queries to each folder, and which photos match; None if none does."""
    everything = np.arange(len(photos.images))
    for concept, (_, queries) in CONCEPTS.items():
        counts, texts = photos.mentions(concept), queries.split("|")
        without, sure = np.flatnonzero(counts == 0), np.flatnonzero(counts >= SURE)
        yield "concept taken out", concept, texts, without, None
        if len(sure):
            yield "all photos", concept, texts, everything, counts > 0
        for added in (count for count in ADDED if count <= len(sure)):
            rows = np.sort(np.append(random.choice(sure, added, replace=False), without))
            yield f"{added} added", concept, texts, rows, counts > 0
        folder = np.flatnonzero(counts >= THEME)
        if len(folder) >= 60:
            yield "folder of it alone", concept, texts, folder, counts > 0
            for other, (_, other_queries) in CONCEPTS.items():
                left = folder[photos.mentions(other)[folder] == 0]
                if other != concept and len(left) >= 50:
                    yield "folder of another thing", concept, other_queries.split("|"), left, None
    for text in ABSENT:
        yield "never there", text, [text], everything, None
    for row in random.choice(everything, CAPTIONS, replace=False).tolist():
        yield "caption", str(row), [photos.captions[row][0]], everything, everything == row


def rate(chosen: list[Case], rule: str, number: float, random: np.random.Generator) -> str:
    """The share of cases in which a rule reports a match, with its bootstrap interval over concepts."""
    reported = np.array([case.measures[rule] >= number for case in chosen], float)
    _, concept = np.unique([case.concept for case in chosen], return_inverse=True)
    sums, counts = np.bincount(concept, reported), np.bincount(concept)
    drawn = random.integers(len(counts), size=(2000, len(counts)))
    low, high = np.quantile(sums[drawn].sum(1) / counts[drawn].sum(1), [0.025, 0.975])
    return f"{100 * reported.mean():.0f}% ({100 * low:.0f} to {100 * high:.0f})"


def balance(found: list[Case], rule: str, number: float) -> float:
    """The mean of detection rate and correct rejection rate, with equal weight for each kind of case."""
    kinds = sorted({case.what for case in found})
    right = {
        kind: np.mean([(case.measures[rule] >= number) == case.there for case in found if case.what == kind])
        for kind in kinds
    }
    there = {kind: next(case.there for case in found if case.what == kind) for kind in kinds}
    return float(
        np.mean([np.mean([right[kind] for kind in kinds if there[kind] == answer]) for answer in (True, False)])
    )


def photos_of(trained: Model, corpus: Corpus, panel: Values) -> Photos:
    """Encode the photos of a corpus."""
    images, rows, _ = trained.torch_engine.encode_corpus_images(corpus, 0)
    groups: dict[int, list[str]] = {int(group): [] for group in corpus.image_groups}
    for text, group in zip(corpus.texts, corpus.text_groups.tolist(), strict=True):
        groups[group].append(text.lower())
    vectors = images.numpy()
    return Photos(vectors, [groups[int(corpus.image_groups[row])] for row in rows], vectors @ panel.T)


def main() -> None:
    """Print the figures of each rule as a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("data")
    parser.add_argument("--features", type=Path, default=Path("features"))
    parser.add_argument("--choose", default="val")
    parser.add_argument("--report", default="test")
    options = parser.parse_args()
    keep_freed_memory()
    trained, corpus = Model.load(options.run, "cpu", stores=options.features), open_corpus(options.data)
    known: dict[str, Values] = {}

    def encode(texts: list[str]) -> Values:
        for text in texts:
            if text not in known:
                known[text] = trained.torch_engine.text_tensor([text]).numpy()[0]
        return np.stack([known[text] for text in texts])

    train, random = corpus.split("train"), np.random.default_rng(0)
    others = [train.texts[row] for row in random.choice(len(train.texts), PANEL, replace=False)]
    panel = trained.torch_engine.text_tensor(others).numpy()
    choosing, reporting = (
        cases(photos_of(trained, corpus.split(split), panel), encode, np.random.default_rng(0))
        for split in (options.choose, options.report)
    )
    kinds = list(dict.fromkeys(case.what for case in sorted(reporting, key=lambda case: not case.there)))
    counts = [f"{kind} ({sum(case.what == kind for case in reporting)})" for kind in kinds]
    print("| rule | number | balance |", " | ".join(counts), "|")
    print("|---" * (3 + len(kinds)) + "|")
    for rule in reporting[0].measures:
        values = np.unique([case.measures[rule] for case in choosing])
        number = max(values[:: max(1, len(values) // 300)], key=lambda value: balance(choosing, rule, float(value)))
        rates = [rate([case for case in reporting if case.what == kind], rule, number, random) for kind in kinds]
        print(f"| {rule} | {abs(number):.3g} | {100 * balance(reporting, rule, number):.0f}% |", " | ".join(rates), "|")
    ours = list(reporting[0].measures)[-1]
    rates = [rate([case for case in reporting if case.what == kind], ours, -EXPECTED, random) for kind in kinds]
    print(
        f"| {ours}, as shipped | {EXPECTED} | {100 * balance(reporting, ours, -EXPECTED):.0f}% |",
        " | ".join(rates),
        "|",
    )


if __name__ == "__main__":
    main()
