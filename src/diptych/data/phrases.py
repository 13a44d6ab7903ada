"""Phrases with a known place: what localisation learns from and is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diptych.data.corpus import Corpus, Floats, Integers, Phrase
from diptych.errors import DataError


@dataclass(frozen=True, eq=False)
class Mentions:
    """The phrases of a corpus' texts that name a thing with a box, once for each image that shows it.

    Row k of each column is mention k. Mentions of the same thing in the same image have the same number in `things`,
    counted from 0, and the same box: left, top, right, bottom, relative to the picture.
    """

    words: Sequence[str]
    images: Integers  # (mentions,) the row of the image in the corpus
    texts: Integers  # (mentions,) the row of the text in the corpus
    things: Integers  # (mentions,)
    boxes: Floats  # (mentions, 4)
    kinds: Sequence[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.words)

    def take(self, rows: Integers) -> Mentions:
        """Some of the mentions; their things keep their numbers."""
        words, kinds = ([column[row] for row in rows.tolist()] for column in (self.words, self.kinds))
        return Mentions(words, self.images[rows], self.texts[rows], self.things[rows], self.boxes[rows], kinds)


def find_mentions(corpus: Corpus) -> Mentions:
    """All mentions of a corpus, in the order of its texts; a corpus without any is an error."""
    images_of: dict[int, list[int]] = {}
    for image, group in enumerate(corpus.image_groups.tolist()):
        images_of.setdefault(group, []).append(image)
    boxes = [{box.chain: box for box in some} for some in corpus.boxes or ()]
    named: list[Phrase] = []
    rows: list[tuple[int, int, int]] = []  # image, text, thing
    places: list[tuple[float, float, float, float]] = []
    numbers: dict[tuple[int, str], int] = {}
    for text, (group, phrases) in enumerate(zip(corpus.text_groups.tolist(), corpus.phrases or (), strict=False)):
        for phrase in phrases:
            for image in images_of.get(group, ()) if boxes else ():
                if box := boxes[image].get(phrase.chain):
                    named.append(phrase)
                    rows.append((image, text, numbers.setdefault((image, phrase.chain), len(numbers))))
                    places.append((box.left, box.top, box.right, box.bottom))
    if not named:
        raise DataError(
            f"{corpus.name}: no phrase with a box; localisation needs annotated data, such as Flickr30K Entities"
        )
    images, texts, things = np.array(rows, np.int64).T
    return Mentions(
        words=[phrase.words for phrase in named],
        images=images.copy(),  # a column of its own, not every third number
        texts=texts.copy(),
        things=things.copy(),
        boxes=np.array(places, np.float32),
        kinds=[phrase.kinds for phrase in named],
    )
