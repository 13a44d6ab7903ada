"""Mining over a whole training set: the hardest negatives of each image and each text (Chen et al. 2020, section 3.2).

Any matcher can mine: all it must do is score. Memory is that of the encodings, of the lists and of a tile of scores.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import SPLITS, Corpus, Floats, Integers
from diptych.data.image_reader import ImageReader
from diptych.errors import DataError, RunError
from diptych.evaluation.metrics.scores import embedding_score
from diptych.evaluation.metrics.tiles import BLOCK
from diptych.mining.exclusions import Exclusions
from diptych.mining.lists import HardNegativeLists, Hardness, ListsHeader, Rows
from diptych.mining.resumable_pass import ResumablePass
from diptych.mining.score_pass import ScorePass
from diptych.mining.top_scores import EMPTY, items_of, scores_of
from diptych.model import Model
from diptych.progress import ProgressCallback

TOP_TEXTS, TOP_IMAGES = 300, 60  # as in the paper
POSITIVES = 1000  # how many are scored to tell how hard the negatives are

# Scoring sets is some hundred times the work of scoring vectors: smaller tiles, so that a stop is noticed soon.
BLOCK_OF_SETS = BLOCK // 64


def mine(
    model: Model,
    corpus: Corpus,
    file: Path,
    *,
    weights: str,
    top_texts: int = TOP_TEXTS,
    top_images: int = TOP_IMAGES,
    workers: int = 2,
    progress: ProgressCallback | None = None,
    reader: ImageReader | None = None,
    block: int | None = None,
) -> HardNegativeLists:
    """The hardest negatives in a corpus, which is the split to mine; they are stored in `file`, and found there again.

    `weights` is the digest of what `trained` was read from (`weights_digest`). Beside a file that is not finished lies
    one that ends in `.partial`, from which the same call goes on; a finished one with lists that are long enough is
    not computed again. `progress` is told how many items of how many are done: each image and each text is encoded, and
    each text is compared.
    """
    corpus = corpus.matched()
    about = ListsHeader(
        weights=weights,
        corpus=corpus.digest(),
        splits=tuple(name for name in SPLITS if (corpus.image_splits == name).any()),
        model=model.matcher.settings.name,
        top_texts=top_texts,
        top_images=top_images,
    )
    if (known := finished(file, about)) is not None:
        return known.head(top_texts, top_images)
    progress = progress or (lambda _done, _total: None)
    encoded = _encode(model, corpus, workers, progress, reader)
    score = embedding_score(model.matcher.score, encoded.images, encoded.texts)
    exclusions = Exclusions(encoded.image_groups, encoded.text_groups, encoded.strings)
    block = block or (BLOCK if model.matcher.embedding_dim is not None else BLOCK_OF_SETS)
    tiles = ScorePass(score, exclusions, top_texts, top_images, block)
    total = len(corpus.image_ids) + 2 * len(corpus.texts)
    partial = ResumablePass(file, {"lists": about.model_dump(mode="json"), "read": encoded.digest()})
    partial.run(tiles, lambda compared: progress(total - score.texts + compared, total))
    texts, images = tiles.texts_of_images.best(), tiles.images_of_texts.best()
    if (texts == EMPTY).all():
        raise DataError(f"{corpus.name}: every image has the texts of every other; there are no negatives to mine")
    of_images, of_texts = (len(corpus.image_ids), top_texts), (len(corpus.texts), top_images)
    lists = HardNegativeLists(
        _rows(texts, encoded.text_rows, encoded.image_rows, (of_images[0], min(of_images[1], of_texts[0]))),
        _rows(images, encoded.image_rows, encoded.text_rows, (of_texts[0], min(of_texts[1], of_images[0]))),
        about.model_copy(
            update={"skipped": encoded.skipped, "hardness": _hardness(model, encoded, texts, images)},
        ),
    )
    lists.save(file)
    partial.remove()
    return lists


def finished(file: Path, wanted: ListsHeader) -> HardNegativeLists | None:
    """The lists in a file, if they are the wanted ones and long enough; what else must not be lost is refused."""
    if not file.exists():
        return None
    try:
        lists = HardNegativeLists.load(file)
    except RunError as reason:
        what = str(reason).partition(";")[0]
        raise RunError(f"{what}; it is not overwritten: delete it or name another file") from None
    if lists.about.corpus != wanted.corpus:
        raise RunError(f"{file}: lists of other data; it is not overwritten: delete it or name another file")
    long_enough = lists.about.top_texts >= wanted.top_texts and lists.about.top_images >= wanted.top_images
    return lists if lists.about.made_like(wanted) and long_enough else None


@dataclass(frozen=True, eq=False)
class _Encoded:
    """The encodings of what could be read of a corpus, and which of its rows they are."""

    images: Tensor
    texts: Tensor
    image_rows: Integers
    text_rows: Integers
    image_groups: Integers
    text_groups: Integers
    strings: list[str]
    skipped: dict[str, str]

    def digest(self) -> str:
        """What identifies the rows: a pass cannot go on when an image has become readable since."""
        return hashlib.sha256(self.image_rows.tobytes()).hexdigest()


def _encode(
    model: Model, corpus: Corpus, workers: int, progress: ProgressCallback, reader: ImageReader | None
) -> _Encoded:
    """Encode the images that can be read, and the texts that have one of them."""
    if not len(corpus.texts):
        raise DataError(f"{corpus.name}: no image and text share a group; there is nothing to mine")
    _need_groups(corpus, corpus.image_groups)
    total = len(corpus.image_ids) + 2 * len(corpus.texts)
    images, image_rows, skipped = model.torch_engine.encode_corpus_images(
        corpus, workers, lambda done, _: progress(done, total), reader
    )
    image_groups = corpus.image_groups[image_rows]
    _need_groups(corpus, image_groups)
    text_rows = np.flatnonzero(np.isin(corpus.text_groups, image_groups))
    strings = [corpus.texts[text] for text in text_rows.tolist()]
    before = total - 2 * len(strings)
    texts = model.torch_engine.text_tensor(strings, lambda done, _: progress(before + done, total))
    text_groups = corpus.text_groups[text_rows]
    return _Encoded(images, texts, image_rows, text_rows, image_groups, text_groups, strings, skipped)


def _need_groups(corpus: Corpus, groups: Integers) -> None:
    if len(np.unique(groups)) < 2:
        raise DataError(f"{corpus.name}: all images and texts are of one group; there are no negatives to mine")


def _rows(keys: Integers, items: Integers, owners: Integers, shape: tuple[int, int]) -> Rows:
    """Lists of the whole corpus, in its rows; those of whom nothing is known are empty."""
    found = items_of(keys)
    lists = np.full(shape, -1, np.int32)
    lists[owners, : keys.shape[1]] = np.where(found < 0, -1, items[found])
    return lists


def _hardness(model: Model, encoded: _Encoded, texts: Integers, images: Integers) -> Hardness:
    first_text, last_text = _ends(texts)
    first_image, last_image = _ends(images)
    return Hardness(
        positive=_median(_positives(model, encoded)),
        first_text=first_text,
        last_text=last_text,
        first_image=first_image,
        last_image=last_image,
    )


@torch.inference_mode()
def _positives(model: Model, encoded: _Encoded) -> Floats:
    """The scores of some texts, from all over the corpus, each with an image of its group."""
    some = np.unique(np.linspace(0, len(encoded.text_groups) - 1, POSITIVES).astype(np.int64))
    by_group = np.argsort(encoded.image_groups, kind="stable")
    own = by_group[np.searchsorted(encoded.image_groups[by_group], encoded.text_groups[some])]
    device = encoded.images.device
    images, texts = (torch.from_numpy(rows).to(device) for rows in (own, some))
    return np.asarray(model.matcher.score_pairs(encoded.images[images], encoded.texts[texts]).float().cpu())


def _ends(keys: Integers) -> tuple[float, float]:
    """The medians of the first and of the last scores of lists."""
    lengths = (keys != EMPTY).sum(1)
    some = np.flatnonzero(lengths)
    return _median(scores_of(keys[some, 0])), _median(scores_of(keys[some, lengths[some] - 1]))


def _median(scores: Floats) -> float:
    return float(np.nan_to_num(np.median(scores)))  # an infinite one is a very large one
