"""Compare templates for queries ("a photo of ...") with plain queries, on words, phrases and captions.

    python benchmarks/probes/templates.py RUN DATA [--vectors FOLDER] [--splits val test]

A query is a template filled with a text, or the mean of several. Words are the common words of the captions of val,
phrases its common pairs of neighbouring words, both without stop words: the figure is the average precision, where a
photo is correct if one of its captions has them. For captions it is the sum of recall@1, @5 and @10 of their photos.
Differences to plain queries have intervals of a paired bootstrap over queries.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.data.open import open_corpus
from diptych.machine import keep_freed_memory
from diptych.model import Model

sys.path.insert(0, str(Path(__file__).parents[1]))

from probes.captioned_photos import STOP, Photos, Values, average_precision, interval, parser_of, read, unit

RULES: dict[str, tuple[str, ...]] = {
    "plain": ("{}",),
    "a photo of": ("a photo of {}",),
    "a photo of a": ("a photo of a {}",),
    "there is": ("there is {} in the picture",),
    "mean of plain and a photo of": ("{}", "a photo of {}"),
    "mean of four": ("{}", "a photo of {}", "a picture of a {}", "there is {} in the picture"),
}
COMMON = 200
Scores = NDArray[np.float64]


def encode(model: Model, rule: Sequence[str], texts: Sequence[str]) -> Values:
    """One query per text."""
    return unit(
        np.mean([unit(model.encode_texts([template.format(text) for text in texts])) for template in rule], axis=0)
    )


def precisions(queries: Values, texts: Sequence[str], photos: Values, captions: Sequence[str]) -> Scores:
    """The average precision of each word or phrase."""
    found = []
    for query, text in zip(queries, texts, strict=True):
        correct = np.array([re.search(rf"\b{text}\b", caption) is not None for caption in captions])
        found.append(average_precision(np.argsort(-(photos @ query), kind="stable"), correct) if correct.any() else 0.0)
    return 100 * np.array(found)


def recalls(queries: Values, photos: Values, of_photo: NDArray[np.int64]) -> Scores:
    """The sum of recall@1, @5 and @10 of each caption."""
    scores = queries @ photos.T
    ranks = (scores > scores[np.arange(len(queries)), of_photo][:, None]).sum(1)
    sums: Scores = 100.0 * np.stack([ranks < at for at in (1, 5, 10)]).sum(0)
    return sums


def describe(scores: Scores, plain: Scores) -> str:
    """The mean, and the difference to plain queries with its interval."""
    low, high = interval(scores - plain)
    return f"{scores.mean():6.1f} ({(scores - plain).mean():+.1f}, {low:+.1f} to {high:+.1f})"


def common_texts(captions: Sequence[str]) -> tuple[list[str], list[str]]:
    """Common words, and common pairs of neighbouring words."""
    words, pairs = Counter[str](), Counter[str]()
    for caption in captions:
        split = re.findall("[a-z]+", caption)
        says = [word not in STOP and len(word) > 2 for word in split]
        words.update(word for word, is_said in zip(split, says, strict=True) if is_said)
        neighbours = zip(split, split[1:], says, says[1:], strict=False)
        pairs.update(f"{first} {second}" for first, second, one, other in neighbours if one and other)
    return [text for text, _ in words.most_common(COMMON)], [text for text, _ in pairs.most_common(COMMON)]


def report(model: Model, photos: Photos, words: list[str], phrases: list[str]) -> None:
    """Print one line per template."""
    of_photo = np.repeat(np.arange(len(photos.captions)), [len(some) for some in photos.captions])
    texts = [text for some in photos.captions for text in some]
    said = [" . ".join(some).lower() for some in photos.captions]
    plain: list[Scores] = []
    for name, rule in RULES.items():
        figures = [
            precisions(encode(model, rule, words), words, photos.directions, said),
            precisions(encode(model, rule, phrases), phrases, photos.directions, said),
            recalls(encode(model, rule, texts), photos.directions, of_photo),
        ]
        plain = plain or figures
        parts = zip(("words", "phrases", "captions"), figures, plain, strict=True)
        print(f"  {name:30}", "  ".join(f"{kind} {describe(scores, base)}" for kind, scores, base in parts), flush=True)


def main() -> None:
    """Print the figures of each split."""
    parser = parser_of(__doc__)
    parser.add_argument("--splits", nargs="*", default=["val", "test"])
    arguments = parser.parse_args()
    keep_freed_memory()
    model, whole = Model.load(arguments.run), open_corpus(arguments.data)
    words, phrases = common_texts([text.lower() for text in whole.split("val").texts])
    for split in arguments.splits:
        print(split)
        report(model, read(model, whole.split(split), arguments.vectors, split), words, phrases)


if __name__ == "__main__":
    main()
