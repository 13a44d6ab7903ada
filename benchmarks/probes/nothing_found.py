"""Measure how well hits are judged: how many right ones are grey, and how many queries without an answer find nothing.

    python benchmarks/probes/nothing_found.py RUN DATA [--split test] [--quality best]

Thirty concepts are searched for, each with a word and with phrases: among all photos of a split, where a photo is right
if a caption mentions the concept, and among the photos whose captions never mention it, where nothing is right. Forty
further queries are of things that no photo shows. Intervals are of 95%, by bootstrap over concepts. The levels of
`index/relevance.py` were chosen on val; the curves show what others would do. The patterns of concepts are wide, so
that no photo of them is left when they are removed: "playground" counts as a swing. So right hits are also counted by
the query's own words, which at least two captions of a photo must have.

Words and phrases that are drawn from captions as people use them, and a thousand whole captions, are queries as well:
whether those with a right photo among the first three hits find something, and for captions, whether any does among
the photos whose captions have less than a third of its words.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.data.open import open_corpus
from diptych.index.relevance import FOUND, LEVELS, answer_level, calibration_of
from diptych.machine import keep_freed_memory
from diptych.model import Model
from diptych.models.calibration.calibration import Calibration
from diptych.models.calibration.caption_queries import SENTENCE, CaptionIndex, content_words

sys.path.insert(0, str(Path(__file__).parents[1]))

from probes.captioned_photos import Flags, Photos, Values, parser_of, read

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
COMMON = {
    "dog": CONCEPTS["dog"][0],
    "a man": "m[ae]n|guys?|males?",
    "children playing": r"(?:child\w*|kids?|boys?|girls?|bab\w+|toddlers?).*\bplay\w*",
    "people": r"people|persons?|\w*m[ae]n|guys?|males?|lad(?:y|ies)|child\w*|kids?|boys?|girls?|bab\w+|toddlers?|crowd",
}
# fmt: on
SENTENCES = 1000
LIKE = 1 / 3  # share of a caption's words from which another photo may be right
LENGTHS = ((1, 7), (8, 11), (12, 99))  # words
SHOWN = {
    "among the first 10": 10,
    "among the first 20": 20,
    "among the first 50": 50,
    "among as many as there are right photos": 1000,
    "all": None,
}
TYPED = 3000  # queries that are drawn from captions
FIRST = 3  # hits of which one must be right for a query to have an answer that the model knows
LEAST = LEVELS[-1][1]


@dataclass(frozen=True)
class Case:
    """A query and the photos that it is asked of: probabilities, best first, and which are right; None if none is.

    `said` are the photos whose captions have the query's own words.
    """

    concept: str
    text: str
    hits: Values
    answer: float
    right: Flags | None
    said: Flags | None = None

    def lit(self, found: float = FOUND, least: float = LEAST) -> Flags:
        """Which hits are not grey."""
        return (self.hits >= least) & self.finds(found)

    def finds(self, found: float = FOUND) -> bool:
        """Whether anything is found, if the best of a thousand photos must have this probability."""
        return self.answer >= answer_level(len(self.hits), found)


@dataclass(frozen=True)
class Sentence:
    """A caption as a query: its number of words, and whether its photo is among the first.

    `finds` is whether anything is found among all photos, and `finds_unlike` among those unlike the caption.
    """

    words: int
    is_first: bool
    finds: bool
    finds_unlike: bool


def interval(wrong: list[float], counts: list[float], concepts: list[str], random: np.random.Generator) -> str:
    """The share of all counts that is wrong, with its bootstrap interval over concepts."""
    _, group = np.unique(concepts, return_inverse=True)
    sums, totals = np.bincount(group, wrong), np.bincount(group, counts)
    drawn = random.integers(len(sums), size=(2000, len(sums)))
    low, high = np.quantile(sums[drawn].sum(1) / totals[drawn].sum(1), [0.025, 0.975])
    return f"{100 * sums.sum() / totals.sum():.1f}% ({100 * low:.1f} to {100 * high:.1f})"


def greyed(
    cases: list[Case], shown: int | None, found: float, random: np.random.Generator, least: float = LEAST
) -> str:
    """The share of right hits that are grey: of all, or of the first so many; see `SHOWN`."""
    wrong, counts = [], []
    for case in cases:
        assert case.right is not None
        first = slice(None if shown is None else min(shown, int(case.right.sum())))
        right = case.right[first]
        wrong.append(float((right & ~case.lit(found, least)[first]).sum()))
        counts.append(float(right.sum()))
    return interval(wrong, counts, [case.concept for case in cases], random)


def coloured(cases: list[Case], random: np.random.Generator, least: float = LEAST) -> str:
    """The share of wrong hits, of any rank, that are not grey."""
    wrong = [(case.lit(least=least) & ~case.right).sum() for case in cases if case.right is not None]
    counts = [(~case.right).sum() for case in cases if case.right is not None]
    return interval([*map(float, wrong)], [*map(float, counts)], [case.concept for case in cases], random)


def rejected(cases: list[Case], found: float, random: np.random.Generator) -> str:
    """The share of queries that find nothing."""
    wrong = [float(not case.finds(found)) for case in cases]
    return interval(wrong, [1.0] * len(cases), [case.concept for case in cases], random)


def answerable(cases: list[Case]) -> list[Case]:
    """The queries with a right photo among the first hits."""
    return [case for case in cases if case.right is not None and case.right[:FIRST].any()]


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
        found = answer >= answer_level(len(mine)), removed >= answer_level(int(unlike.sum()))
        result.append(Sentence(len(re.findall(r"\w+", text)), is_first, *found))
    return result


def report_sentences(found: list[Sentence]) -> None:
    """Print how many captions find something, with and without a photo that they describe."""
    for low, high in LENGTHS:
        some = [each for each in found if low <= each.words <= high]
        right = 100 * np.mean([each.finds for each in some if each.is_first])
        wrong = 100 * np.mean([not each.finds_unlike for each in some])
        counted = f"captions of {low} to {high} words ({len(some)})"
        print(f"{counted}: found {right:.0f}%; nothing found without their photos {wrong:.0f}%")


def report(cases: dict[str, list[Case]], random: np.random.Generator) -> None:
    """Print what the levels do, and the curves of other levels."""
    concepts = cases["concept"]
    said = [replace(case, right=case.said) for case in concepts]
    for name, shown in SHOWN.items():
        print(f"right hits that are grey, {name}: {greyed(concepts, shown, FOUND, random)}")
        print(f"  by the query's own words: {greyed(said, shown, FOUND, random)}")
    print(f"wrong hits that are not grey: {coloured(concepts, random)}")
    known = answerable(concepts)
    print(f"answerable queries ({len(known)}) that find nothing: {rejected(known, FOUND, random)}")
    for kind in ("absent", "removed"):
        print(f"{kind} ({len(cases[kind])}), nothing found: {rejected(cases[kind], FOUND, random)}")
    both = cases["absent"] + cases["removed"]
    print(f"both ({len(both)}), nothing found: {rejected(both, FOUND, random)}")
    for case in cases["common"]:
        assert case.right is not None
        lit, found = case.lit(), "found" if case.finds() else "nothing found"
        grey = int((case.right & ~lit).sum())
        print(f"{case.text}: {found}, {int(case.right.sum())} photos, {grey} of them grey, {int(lit.sum())} in colour")
    known = answerable(cases["typed"])
    print(f"words and phrases ({len(known)}) that find nothing: {rejected(known, FOUND, random)}")
    print(f"  their right hits that are grey, among the first 20: {greyed(known, 20, FOUND, random)}")
    report_fits(concepts)
    print("| level | right hits grey, first 20 | absent | removed |\n|---|---|---|---|")
    for found in sorted([*np.arange(0.2, 0.56, 0.05).tolist(), FOUND]):
        row = (
            greyed(concepts, 20, found, random),
            *(rejected(cases[kind], found, random) for kind in ("absent", "removed")),
        )
        print(f"| {found:.2f} |", " | ".join(row), "|")
    print("| possible from | as many as right photos | all, by own words | wrong, in colour |\n|---|---|---|---|")
    for least in (0.01, 0.015, 0.02, 0.03):
        row = greyed(concepts, 1000, FOUND, random, least), greyed(said, None, FOUND, random, least)
        print(f"| {least} |", " | ".join([*row, coloured(concepts, random, least)]), "|")


def mentions(captions: list[list[str]], pattern: str) -> Flags:
    """Which photos have a caption with a pattern."""
    word = re.compile(rf"\b({pattern})\b")
    return np.array([any(word.search(caption.lower()) for caption in some) for some in captions])


def report_fits(cases: list[Case]) -> None:
    """Print how probable the hits of each fit are, and what share of them is right."""
    hits = np.concatenate([case.hits for case in cases])
    right, own = (np.concatenate([getattr(case, name) for case in cases]) for name in ("right", "said"))
    highest = np.inf
    for name, least in LEVELS:
        some = (hits >= least) & (hits < highest)
        shares = [f"{100 * values[some].mean():.0f}%" for values in (hits, right, own)]
        print(f"{name}: mean probability {shares[0]}, right {shares[1]}, by the query's own words {shares[2]}")
        highest = least


def collect(
    model: Model, calibration: Calibration, photos: Photos, random: np.random.Generator
) -> dict[str, list[Case]]:
    """The cases of each kind."""
    captions, everything = photos.captions, np.arange(len(photos.vectors))
    owners = np.repeat(everything, [len(some) for some in captions])
    index = CaptionIndex([caption for some in captions for caption in some], owners, len(captions))

    def case(concept: str, text: str, right: Flags | None, where: NDArray[np.int64] = everything) -> Case:
        query = model.engine.encode_texts([text]).vectors
        scores = photos.vectors[where] @ query[0]
        order, about = np.argsort(-scores, kind="stable"), calibration.describe_texts(query, [text])
        hits, answers = (fit.probabilities(scores[order], about) for fit in (calibration.hits, calibration.answers))
        said = index.matches(text)[0][where][order]
        return Case(concept, text, hits, float(answers[0]), None if right is None else right[order], said)

    cases: dict[str, list[Case]] = {"concept": [], "removed": []}
    for concept, (pattern, queries) in CONCEPTS.items():
        right = mentions(captions, pattern)
        for text in queries.split("|"):
            cases["concept"].append(case(concept, text, right))
            cases["removed"].append(case(concept, text, None, np.flatnonzero(~right)))
    cases["absent"] = [case(text, text, None) for text in ABSENT]
    cases["common"] = [case(text, text, mentions(captions, pattern)) for text, pattern in COMMON.items()]
    drawn = [text for text in index.draw(TYPED, random) if len(content_words(text)) < SENTENCE]
    known = {text: case(text, text, index.matches(text)[0]) for text in dict.fromkeys(drawn)}
    return cases | {"typed": [known[text] for text in drawn]}


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
    report(collect(model, calibration, photos, np.random.default_rng(0)), np.random.default_rng(0))
    report_sentences(sentences(model, calibration, photos, np.random.default_rng(0)))


if __name__ == "__main__":
    main()
