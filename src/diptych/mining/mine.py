"""Mining over a whole training set: the hardest negatives of each image and each text (Chen et al. 2020, section 3.2).

Any matcher can mine, since only scores are needed. Memory use is that of the encodings, the lists and one tile of
scores.
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
from diptych.evaluation.metrics.tiles import BLOCK, BLOCK_OF_SETS
from diptych.evaluation.resumable import ResumablePasses
from diptych.mining.exclusions import Exclusions
from diptych.mining.hardness import Hardness, sample_positives
from diptych.mining.lists import HardNegativeLists, ListRows, ListsHeader
from diptych.mining.score_pass import ScorePass, Tiles
from diptych.mining.top_scores import EMPTY, items_of
from diptych.model import Model
from diptych.progress import ProgressCallback
from diptych.ranks import ALONE, Ranks

TOP_TEXTS, TOP_IMAGES = 300, 60  # as in the paper

_MERGED_AT_ONCE = 4096  # lists


def mine(  # noqa: PLR0913 (options, by keyword only)
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
    ranks: Ranks = ALONE,
) -> HardNegativeLists:
    """Find the hardest negatives in a corpus, which is the split to mine, and store them in `file`.

    `weights` is the digest of the file that the model was loaded from (`weights_digest`). An interrupted call leaves a
    file that ends in `.partial`, from which the same call continues. Lists in `file` that are long enough are returned
    without computing them again. `progress` receives the number of steps done and the total: each image and each text
    is encoded, and each text is compared.

    Several `ranks` mine together: each encodes a share, holds the encodings of all images and of its share of the
    texts, and compares these. The lists are those of one process, byte for byte; the first rank stores them.
    """
    corpus = corpus.matched()
    header = ListsHeader(
        weights=weights,
        corpus=corpus.digest(),
        splits=tuple(name for name in SPLITS if (corpus.image_splits == name).any()),
        model=model.matcher.settings.name,
        top_texts=top_texts,
        top_images=top_images,
    )
    if (existing := ranks.together(lambda: existing_lists(file, header))) is not None:
        return existing.truncate(top_texts, top_images)
    progress = progress or (lambda _done, _total: None)
    block = block or (BLOCK if model.matcher.embedding_dim is not None else BLOCK_OF_SETS)
    readable = _encode(model, corpus, workers, progress, reader, block, ranks)
    score = embedding_score(model.matcher.score, readable.images, readable.texts)
    exclusions = Exclusions(readable.image_groups, readable.text_groups, readable.strings)
    score_pass = ScorePass(score, exclusions, top_texts, top_images, readable.tiles)
    total = len(corpus.image_ids) + 2 * len(corpus.texts)
    resumable = ResumablePasses(file, {"lists": header.model_dump(mode="json"), "read": readable.digest()}, ranks)
    resumable.run(score_pass, lambda compared: progress(total - score.texts + compared, total))
    texts = merged(score_pass.texts_of_images.best(), ranks)
    images = ranks.all_rows(torch.from_numpy(score_pass.images_of_texts.best())).numpy()
    if (texts == EMPTY).all():
        raise DataError(f"{corpus.name}: every image has the texts of every other; there are no negatives to mine")
    hardness = Hardness.from_keys(_positive_scores(model, readable, ranks), texts, images)
    image_count, text_count = len(corpus.image_ids), len(corpus.texts)
    lists = HardNegativeLists(
        _corpus_rows(texts, readable.text_rows, readable.image_rows, (image_count, min(top_texts, text_count))),
        _corpus_rows(images, readable.image_rows, readable.text_rows, (text_count, min(top_images, image_count))),
        header.model_copy(update={"skipped": readable.skipped, "hardness": hardness}),
    )
    if ranks.is_first:
        lists.save(file)
    ranks.wait()
    resumable.remove()
    return lists


def merged(keys: Integers, ranks: Ranks) -> Integers:
    """The best keys of each query among those of all ranks, (queries, size), each of which has seen other items."""
    if ranks.count == 1:
        return keys
    best = np.empty_like(keys)
    for begin in range(0, len(keys), _MERGED_AT_ONCE):
        part = slice(begin, begin + _MERGED_AT_ONCE)
        theirs = np.concatenate([rows.numpy() for rows in ranks.gather(torch.from_numpy(keys[part]))], 1)
        best[part] = np.sort(theirs, axis=1)[:, : -keys.shape[1] - 1 : -1]
    return best


def existing_lists(file: Path, wanted: ListsHeader) -> HardNegativeLists | None:
    """The lists in a file, if they have the same source and are long enough.

    Raises RunError if the file holds anything but lists of the same data, which must not be overwritten.
    """
    if not file.exists():
        return None
    try:
        lists = HardNegativeLists.load(file)
    except RunError as reason:
        problem = str(reason).partition(";")[0]
        raise RunError(f"{problem}; it is not overwritten: delete it or name another file") from None
    if lists.header.corpus != wanted.corpus:
        raise RunError(f"{file}: lists of other data; it is not overwritten: delete it or name another file")
    long_enough = lists.header.top_texts >= wanted.top_texts and lists.header.top_images >= wanted.top_images
    return lists if lists.header.same_source(wanted) and long_enough else None


@dataclass(frozen=True, eq=False)
class _ReadablePart:
    """The encodings of the readable part of a corpus, with their rows in the corpus.

    `tiles` are those that this rank compares, and `texts` has the encodings of their texts; all else is of all texts.
    """

    tiles: Tiles
    images: Tensor
    texts: Tensor
    image_rows: Integers
    text_rows: Integers
    image_groups: Integers
    text_groups: Integers
    strings: list[str]
    skipped: dict[str, str]

    def digest(self) -> str:
        """Identifies the rows: an interrupted pass cannot continue if an image has become readable since."""
        return hashlib.sha256(self.image_rows.tobytes()).hexdigest()


def _encode(  # noqa: PLR0917
    model: Model,
    corpus: Corpus,
    workers: int,
    progress: ProgressCallback,
    reader: ImageReader | None,
    block: int,
    ranks: Ranks,
) -> _ReadablePart:
    """Encode the readable images, and the texts that have one of them."""
    if not len(corpus.texts):
        raise DataError(f"{corpus.name}: no image and text share a group; there is nothing to mine")
    _check_groups(corpus, corpus.image_groups)
    total = len(corpus.image_ids) + 2 * len(corpus.texts)
    images, image_rows, skipped = model.torch_engine.encode_corpus_images(
        corpus, workers, lambda done, _: progress(done, total), reader, ranks
    )
    image_groups = corpus.image_groups[image_rows]
    _check_groups(corpus, image_groups)
    text_rows = np.flatnonzero(np.isin(corpus.text_groups, image_groups))
    strings = [corpus.texts[text] for text in text_rows.tolist()]
    before = total - 2 * len(strings)
    tiles = Tiles.of(len(image_rows), len(strings), block).share(ranks)
    texts = model.torch_engine.text_tensor(
        strings, lambda done, _: progress(before + done, total), ranks=ranks, keep=tiles.own_texts
    )
    text_groups = corpus.text_groups[text_rows]
    return _ReadablePart(tiles, images, texts, image_rows, text_rows, image_groups, text_groups, strings, skipped)


def _check_groups(corpus: Corpus, groups: Integers) -> None:
    if len(np.unique(groups)) < 2:
        raise DataError(f"{corpus.name}: all images and texts are of one group; there are no negatives to mine")


def _corpus_rows(keys: Integers, item_rows: Integers, query_rows: Integers, shape: tuple[int, int]) -> ListRows:
    """Lists for all rows of the corpus, from the keys of the readable part; unreadable rows have empty lists."""
    items = items_of(keys)
    lists = np.full(shape, -1, np.int32)
    lists[query_rows, : keys.shape[1]] = np.where(items < 0, -1, item_rows[items])
    return lists


@torch.inference_mode()
def _positive_scores(model: Model, readable: _ReadablePart, ranks: Ranks) -> Floats:
    device, own = readable.images.device, readable.tiles.own_texts
    images, texts = sample_positives(readable.image_groups, readable.text_groups)
    is_own = (texts >= own.start) & (texts < own.stop)
    sampled = images[is_own], texts[is_own] - own.start
    image_rows, text_rows = (torch.from_numpy(rows).to(device) for rows in sampled)
    pairs = readable.images[image_rows], readable.texts[text_rows]
    scores = model.matcher.score_pairs(*pairs) if is_own.any() else readable.images.new_empty(0)
    return np.asarray(ranks.all_rows(scores.float()).cpu())
