"""Measure how well hits are judged: how many right ones are grey, and how many queries without an answer find nothing.

    python benchmarks/probes/nothing_found.py RUN DATA [--split test] [--quality best]

Thirty concepts are searched for, each with a word and with phrases: among all photos of a split, where a photo is right
if a caption mentions the concept, and among the photos whose captions never mention it, where nothing is right. Forty
further queries are of things that no photo shows. Intervals are of 95%, by bootstrap over concepts. The levels of
`index/relevance.py` were chosen on val; the curve shows what others would do.

A thousand captions are queries as well: whether those with their own photo among the first three hits find something,
and whether any does among the photos whose captions have less than a third of its words.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.data.open import open_corpus
from diptych.index.relevance import FOUND, LEVELS, calibration_of
from diptych.machine import keep_freed_memory
from diptych.model import Model
from diptych.models.calibration.calibration import Calibration
from diptych.models.calibration.caption_queries import content_words

sys.path.insert(0, str(Path(__file__).parents[1]))

from probes.captioned_photos import Photos, Values, parser_of, read

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
COMMON = ["dog", "a man", "children playing"]
SENTENCES = 1000
LIKE = 1 / 3  # share of a caption's words from which another photo may be right
LENGTHS = ((1, 7), (8, 11), (12, 99))  # words
SHOWN = (10, 20, 50, 1000)  # hits that are looked at
FIRST = 3  # hits of which one must be right for a query to have an answer that the model knows
LEAST = LEVELS[-1][1]


@dataclass(frozen=True)
class Case:
    """A query and the photos that it is asked of: probabilities, best first, and which are right; None if none is."""

    concept: str
    text: str
    hits: Values
    answer: float
    right: NDArray[np.bool_] | None

    def lit(self, found: float) -> NDArray[np.bool_]:
        """Which hits are not grey."""
        return (self.hits >= LEAST) & (self.answer >= found)


@dataclass(frozen=True)
class Sentence:
    """A caption as a query: its number of words, whether its photo is among the first, and two answers.

    `answer` is the probability of the best of all photos, and `removed` that of the best of those unlike the caption.
    """

    words: int
    is_first: bool
    answer: float
    removed: float


def interval(wrong: list[float], counts: list[float], concepts: list[str], random: np.random.Generator) -> str:
    """The share of all counts that is wrong, with its bootstrap interval over concepts."""
    _, group = np.unique(concepts, return_inverse=True)
    sums, totals = np.bincount(group, wrong), np.bincount(group, counts)
    drawn = random.integers(len(sums), size=(2000, len(sums)))
    low, high = np.quantile(sums[drawn].sum(1) / totals[drawn].sum(1), [0.025, 0.975])
    return f"{100 * sums.sum() / totals.sum():.1f}% ({100 * low:.1f} to {100 * high:.1f})"


def greyed(cases: list[Case], shown: int, found: float, random: np.random.Generator) -> str:
    """The share of right hits that are grey, among the first so many and at most as many as there are right photos."""
    wrong, counts = [], []
    for case in cases:
        assert case.right is not None
        first = slice(min(shown, int(case.right.sum())))
        right = case.right[first]
        wrong.append(float((right & ~case.lit(found)[first]).sum()))
        counts.append(float(right.sum()))
    return interval(wrong, counts, [case.concept for case in cases], random)


def rejected(cases: list[Case], found: float, random: np.random.Generator) -> str:
    """The share of queries that find nothing."""
    wrong = [float(case.answer < found) for case in cases]
    return interval(wrong, [1.0] * len(cases), [case.concept for case in cases], random)


def sentences(model: Model, calibration: Calibration, photos: Photos, random: np.random.Generator) -> list[Sentence]:
    """Captions of the photos, drawn at random, as queries."""
    said = [content_words(" ".join(captions)) for captions in photos.captions]
    drawn = [
        (row, photos.captions[row][random.integers(len(photos.captions[row]))])
        for row in random.integers(len(said), size=SENTENCES).tolist()
    ]
    texts = [text for _, text in drawn]
    vectors = model.engine.encode_texts(texts).vectors
    scores, about = vectors @ photos.vectors.T, calibration.describe_texts(vectors, texts)
    result = []
    for (row, text), mine, known in zip(drawn, scores, about, strict=True):
        words = content_words(text)
        unlike = np.array([len(words & each) < LIKE * len(words) for each in said])
        best = np.array([mine.max(), mine[unlike].max(initial=-1)])
        answer, removed = calibration.answers.probabilities(best, known[None]).tolist()
        is_first = bool((mine > mine[row]).sum() < FIRST)
        result.append(Sentence(len(re.findall(r"\w+", text)), is_first, answer, removed))
    return result


def report_sentences(found: list[Sentence]) -> None:
    """Print how many captions find something, with and without a photo that they describe."""
    for low, high in LENGTHS:
        some = [each for each in found if low <= each.words <= high]
        right = 100 * np.mean([each.answer >= FOUND for each in some if each.is_first])
        wrong = 100 * np.mean([each.removed < FOUND for each in some])
        counted = f"captions of {low} to {high} words ({len(some)})"
        print(f"{counted}: found {right:.0f}%; nothing found without their photos {wrong:.0f}%")


def report(cases: dict[str, list[Case]], random: np.random.Generator) -> None:
    """Print what the levels do, and the curve of other levels."""
    concepts = cases["concept"]
    answerable = [case for case in concepts if case.right is not None and case.right[:FIRST].any()]
    for shown in SHOWN:
        print(f"right hits that are grey, first {shown}: {greyed(concepts, shown, FOUND, random)}")
    print(f"answerable queries ({len(answerable)}) that find nothing: {rejected(answerable, FOUND, random)}")
    for kind in ("absent", "removed"):
        print(f"{kind} ({len(cases[kind])}), nothing found: {rejected(cases[kind], FOUND, random)}")
    both = cases["absent"] + cases["removed"]
    print(f"both ({len(both)}), nothing found: {rejected(both, FOUND, random)}")
    for case in cases["common"]:
        assert case.right is not None
        grey = int((case.right & ~case.lit(FOUND)).sum())
        print(
            f"{case.text}: {int(case.right.sum())} photos, {grey} of them grey, {int(case.lit(FOUND).sum())} in colour"
        )
    print("| level | right hits grey, first 20 | absent | removed |\n|---|---|---|---|")
    for found in np.arange(0.2, 0.56, 0.05).tolist():
        row = (
            greyed(concepts, 20, found, random),
            *(rejected(cases[kind], found, random) for kind in ("absent", "removed")),
        )
        print(f"| {found:.2f} |", " | ".join(row), "|")


def main() -> None:
    """Encode the split and the queries, and report."""
    parser = parser_of(__doc__)
    parser.add_argument("--split", default="test")
    parser.add_argument("--quality", choices=["fast", "best"], default="fast", help="fast, as an index by default")
    options = parser.parse_args()
    keep_freed_memory()
    model = Model.load(options.run, "cpu", quality=options.quality)
    corpus = open_corpus(options.data).split(options.split)
    calibration = calibration_of(model)
    if calibration is None:
        raise SystemExit(f"{options.run} has no calibration; run: diptych calibrate {options.run} {options.data}")
    photos = read(model, corpus, options.vectors, f"{options.split}_{options.quality}")
    vectors, captions = photos.vectors, [[text.lower() for text in some] for some in photos.captions]

    def mentions(pattern: str) -> NDArray[np.bool_]:
        word = re.compile(rf"\b({pattern})\b")
        return np.array([any(word.search(caption) for caption in each) for each in captions])

    def case(concept: str, text: str, where: NDArray[np.int64], right: NDArray[np.bool_] | None) -> Case:
        query = model.engine.encode_texts([text]).vectors
        scores = vectors[where] @ query[0]
        order, about = np.argsort(-scores, kind="stable"), calibration.describe_texts(query, [text])
        hits, answers = (fit.probabilities(scores[order], about) for fit in (calibration.hits, calibration.answers))
        return Case(concept, text, hits, float(answers[0]), None if right is None else right[order])

    everything = np.arange(len(vectors))
    cases: dict[str, list[Case]] = {kind: [] for kind in ("concept", "removed", "absent", "common")}
    for concept, (pattern, queries) in CONCEPTS.items():
        right = mentions(pattern)
        for text in queries.split("|"):
            cases["concept"].append(case(concept, text, everything, right))
            cases["removed"].append(case(concept, text, np.flatnonzero(~right), None))
    cases["absent"] = [case(text, text, everything, None) for text in ABSENT]
    playing = r"(?:child\w*|kids?|boys?|girls?|bab\w+|toddlers?).*\bplay\w*"
    patterns = [CONCEPTS["dog"][0], "m[ae]n|guys?|males?", playing]
    cases["common"] = [
        case(text, text, everything, mentions(each)) for text, each in zip(COMMON, patterns, strict=True)
    ]
    report(cases, np.random.default_rng(0))
    report_sentences(sentences(model, calibration, photos, np.random.default_rng(0)))


if __name__ == "__main__":
    main()
