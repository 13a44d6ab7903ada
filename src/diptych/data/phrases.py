"""Mentions: phrases whose place in an image is known. Localisation is trained and measured on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diptych.data.corpus import Corpus, Floats, Integers, Phrase
from diptych.errors import DataError


@dataclass(frozen=True, eq=False)
class Mentions:
    """The phrases that name an entity with a box, one row per phrase and image that shows the entity.

    Mentions of the same entity in the same image share a number in `entities`, counted from 0, and a box: left, top,
    right, bottom, relative to the image.
    """

    phrases: Sequence[str]
    images: Integers  # (mentions,) the row of the image in the corpus
    texts: Integers  # (mentions,) the row of the text in the corpus
    entities: Integers  # (mentions,)
    boxes: Floats  # (mentions, 4)
    kinds: Sequence[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.phrases)

    def take(self, rows: Integers) -> Mentions:
        """The mentions in these rows; entities keep their numbers."""
        phrases, kinds = ([column[row] for row in rows.tolist()] for column in (self.phrases, self.kinds))
        return Mentions(phrases, self.images[rows], self.texts[rows], self.entities[rows], self.boxes[rows], kinds)


def find_mentions(corpus: Corpus) -> Mentions:
    """All mentions in a corpus, in the order of its texts; a corpus without any raises a DataError."""
    images_of_group: dict[int, list[int]] = {}
    for image, group in enumerate(corpus.image_groups.tolist()):
        images_of_group.setdefault(group, []).append(image)
    boxes_of_image = [{box.chain: box for box in boxes} for boxes in corpus.boxes or ()]
    phrases: list[Phrase] = []
    rows: list[tuple[int, int, int]] = []  # image, text, entity
    edges: list[tuple[float, float, float, float]] = []
    entities: dict[tuple[int, str], int] = {}
    for text, (group, text_phrases) in enumerate(zip(corpus.text_groups.tolist(), corpus.phrases or (), strict=False)):
        for phrase in text_phrases:
            for image in images_of_group.get(group, ()) if boxes_of_image else ():
                if box := boxes_of_image[image].get(phrase.chain):
                    phrases.append(phrase)
                    rows.append((image, text, entities.setdefault((image, phrase.chain), len(entities))))
                    edges.append((box.left, box.top, box.right, box.bottom))
    if not phrases:
        raise DataError(
            f"{corpus.name}: no phrase with a box; localisation needs annotated data, such as Flickr30K Entities"
        )
    image_rows, text_rows, entity_numbers = np.array(rows, np.int64).T
    return Mentions(
        phrases=[phrase.text for phrase in phrases],
        images=image_rows.copy(),  # contiguous, not every third number
        texts=text_rows.copy(),
        entities=entity_numbers.copy(),
        boxes=np.array(edges, np.float32),
        kinds=[phrase.kinds for phrase in phrases],
    )
