"""The positives of ECCV Caption and CxC: which images and captions of COCO belong together, beyond those written so.

A COCO caption was written for one image, but describes others as well. CxC (Parekh et al. 2021) and ECCV Caption (Chun
et al. 2022) list those that people found, for the 5,000 images of the test split by Karpathy with five captions each.
Their lists, COCO's ids and the order of the 1K folds are in the package `eccv_caption`, which is read and not run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from diptych.data.corpus import Corpus, Integers
from diptych.errors import DataError
from diptych.evaluation.metrics.relevance import NOT_SEARCHED, Relevance, Side
from diptych.files import read_json
from diptych.optional import import_optional, quiet

INSTALL = "pip install 'diptych[eccv]'"

_NEEDS = "open Karpathy's dataset_coco.json, or COCO's captions_val2014.json with --split val"
_FILES: dict[Side, str] = {"images": "image_to_caption.json", "texts": "caption_to_image.json"}


@dataclass(frozen=True, eq=False)
class CocoPositives:
    """COCO's ids of the images and texts that are measured, in the order of the folds, and their positives by row.

    `text_images` has the row of the image that each text was written for. `cxc` and `eccv` have the positives of images
    as queries for texts, and of texts as queries for images, which differ.
    """

    image_ids: Integers
    text_ids: Integers
    text_images: Integers
    cxc: Mapping[Side, Relevance]
    eccv: Mapping[Side, Relevance]


def read_positives() -> CocoPositives:
    """The lists of the installed package; raises DiptychError if it is not installed."""
    with quiet():  # it misses a faster reader of JSON
        package = import_optional("eccv_caption", INSTALL, instead="evaluation without --eccv")
    folder = Path(package.__file__).parent / "data"
    text_ids = np.load(folder / "coco_test_ids.npy", allow_pickle=False).astype(np.int64)
    own = _lists(folder / "original_caption_to_image.json")
    image_ids = list(dict.fromkeys(own[text][0] for text in text_ids.tolist()))
    rows: dict[Side, dict[int, int]] = {"images": _rows(image_ids), "texts": _rows(text_ids.tolist())}

    def relevance(name: str) -> dict[Side, Relevance]:
        others: dict[Side, Side] = {"images": "texts", "texts": "images"}
        return {
            side: Relevance.from_lists(
                {
                    rows[side][query]: [rows[other].get(positive, NOT_SEARCHED) for positive in positives]
                    for query, positives in _lists(folder / f"{name}_{_FILES[side]}").items()
                }
            )
            for side, other in others.items()
        }

    text_images = np.array([rows["images"][own[text][0]] for text in text_ids.tolist()], np.int64)
    return CocoPositives(np.array(image_ids, np.int64), text_ids, text_images, relevance("cxc"), relevance("eccv"))


def coco_rows(corpus: Corpus, positives: CocoPositives) -> tuple[Integers, Integers]:
    """The rows of the measured images and texts in a corpus, in the order of the folds.

    Raises DataError if the corpus does not have all of them, or if a text belongs to another image.
    """
    if corpus.text_ids is None:
        raise DataError(f"{corpus.name}: its texts have no ids, and ECCV Caption and CxC need those of COCO; {_NEEDS}")
    numbers = (re.search(r"[0-9]+$", PurePosixPath(name).stem) for name in corpus.image_ids)
    images = _found(corpus, "images", [number and number[0] for number in numbers], positives.image_ids)
    texts = _found(corpus, "texts", corpus.text_ids, positives.text_ids)
    moved = np.flatnonzero(corpus.text_groups[texts] != corpus.image_groups[images][positives.text_images])
    if len(moved):
        text, image = positives.text_ids[moved[0]], positives.image_ids[positives.text_images[moved[0]]]
        raise DataError(f"{corpus.name}: text {text} does not belong to image {image}, as in COCO; {_NEEDS}")
    return images, texts


def _found(corpus: Corpus, what: Side, names: Sequence[str | None], wanted: Integers) -> Integers:
    """The row of each wanted id; names that are no number are not COCO's."""
    known = {int(name): row for row, name in enumerate(names) if name is not None and re.fullmatch("[0-9]+", name)}
    missing = [number for number in wanted.tolist() if number not in known]
    if missing:
        raise DataError(
            f"{corpus.name}: {len(missing):,} of the {len(wanted):,} {what} of ECCV Caption and CxC are not in it "
            f"(the first has COCO's id {missing[0]}); {_NEEDS}"
            + (f" (first problem of the data: {corpus.problems[0]})" if corpus.problems else "")
        )
    return np.array([known[number] for number in wanted.tolist()], np.int64)


def _lists(file: Path) -> dict[int, list[int]]:
    """The distinct ids that a file lists for each id."""
    return {int(query): sorted(set(map(int, positives))) for query, positives in read_json(file, DataError).items()}


def _rows(ids: Sequence[int]) -> dict[int, int]:
    return {identity: row for row, identity in enumerate(ids)}
