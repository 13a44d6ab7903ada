"""Runs a matcher with torch: encodes images, texts and whole corpora."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from diptych.data.corpus import Corpus, Floats, Integers
from diptych.data.image_reader import ImageReader
from diptych.data.images import DecodedPicture
from diptych.data.read_ahead import read_ahead
from diptych.errors import DataError, ImageError
from diptych.features.choices import Quality
from diptych.features.crops import Crops, crops_for, decode_size
from diptych.features.image_input import ImageInput
from diptych.features.readers import InputReader, StoreOptions, image_reader
from diptych.machine import choose_device
from diptych.models.address import ModelFiles
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.engines.engine import Encodings
from diptych.models.layers.sets import concatenate_encodings, present
from diptych.models.matcher import Matcher
from diptych.models.opening import open_matcher
from diptych.models.spread_rows import SpreadRows
from diptych.models.text_inputs import TextInputs
from diptych.models.tower import Tokens
from diptych.progress import ProgressCallback
from diptych.ranks import ALONE, Ranks
from diptych.text.tokenisers.tokeniser import Tokeniser, known_texts

IMAGES_AT_ONCE = 64
TEXTS_AT_ONCE = 512


@dataclass(frozen=True)
class TorchEngine:
    """A matcher on a device, with its tokeniser.

    `stores` is an optional folder of feature stores: features of the backbone that are stored there are read instead of
    computed. If an encoding is a set of vectors, `Encodings.vectors` holds the mean of the set, of length one.
    """

    matcher: Matcher
    tokeniser: Tokeniser
    device: torch.device
    stores: Path | None = None
    wanted_quality: Quality = "best"

    @classmethod
    def open(
        cls,
        address: ModelFiles | Path | str,
        device: str = "auto",
        snapshot: str = "best",
        stores: Path | None = None,
        quality: Quality = "best",
    ) -> TorchEngine:
        """Load a snapshot of a run, or a pretrained pair, in evaluation mode."""
        files = address if isinstance(address, ModelFiles) else ModelFiles.find(address, snapshot)
        matcher, tokeniser = open_matcher(files, snapshot)
        chosen = choose_device(device)
        return cls(matcher.to(chosen).eval(), tokeniser, chosen, stores, quality)

    @property
    def embedding_dim(self) -> int:
        """The matcher's, or the size of the vectors in its sets."""
        size = self.matcher.embedding_dim
        return self.encode_texts(["a"]).vectors.shape[1] if size is None else size

    @property
    def is_inner_product(self) -> bool:
        """The matcher's."""
        return self.matcher.is_inner_product

    @property
    def reads_pictures(self) -> bool:
        """Whether the matcher's image tower reads pictures."""
        return self.matcher.image_input.kind != "features"

    @property
    def localises(self) -> bool:
        """The matcher's."""
        return self.matcher.localises

    @property
    def encodes_vectors(self) -> bool:
        """Whether the matcher has embeddings."""
        return self.matcher.embedding_dim is not None

    @property
    def quality(self) -> Quality:
        """Whether single images are encoded with all of the matcher's crops, or with fewer of them."""
        return self._crops_and_quality[1]

    @property
    def _crops_and_quality(self) -> tuple[Crops | None, Quality]:
        image_input = self.matcher.image_input
        # A model with regions may need all of them: they are not averaged.
        wanted = self.wanted_quality if image_input.regions is None else "best"
        return crops_for(wanted, image_input.crops)

    @property
    def _image_input(self) -> ImageInput:
        """The matcher's image input for single images, with the crops of the quality."""
        image_input = self.matcher.image_input
        return replace(image_input, crops=self._crops_and_quality[0])

    @property
    def decode_size(self) -> int | None:
        """That of the matcher's image input."""
        image_input = self._image_input
        return decode_size(image_input.shape[-1], image_input.crops)

    # Images and texts as numpy arrays

    def preprocess(self, image: Image.Image) -> NDArray[Any]:
        """The image's crops, pixels or regions, as the image tower reads them."""
        reader = image_reader([DecodedPicture(image)], self._image_input, self.matcher.pretrained)
        values, readable = reader.read(np.array([0]))
        if not readable.all():
            raise ImageError(reader.skipped[0])
        row: NDArray[Any] = values[0]
        return row

    @torch.inference_mode()
    def encode_preprocessed(self, preprocessed: Sequence[NDArray[Any]]) -> Encodings:
        """Encode preprocessed images in one batch."""
        return _encodings(self.matcher.encode_images(self._to_device(np.stack(preprocessed))))

    def encode_texts(
        self, texts: Sequence[str], batch_size: int | None = None, progress: ProgressCallback | None = None
    ) -> Encodings:
        """Encode texts."""
        return _encodings(self.text_tensor(texts, progress, batch_size))

    def encode_tokens(self, texts: Sequence[Sequence[str]]) -> Encodings:
        """Encode texts that the tokeniser has split into words, in one batch."""
        return _encodings(self.token_tensor(texts))

    @torch.inference_mode()
    def score(self, images: Encodings, texts: Encodings) -> Floats:
        """The matcher's score: (images, texts)."""
        scores: Floats = self.matcher.score(self._tensor(images), self._tensor(texts)).float().cpu().numpy()
        return scores

    def known_words(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which words the tokeniser knows and, for a fitted text tower, its fit as well: (words,)."""
        known = self.tokeniser.known(words)
        fitted = self.matcher.fitted_text_tower
        if fitted is not None and len(words):
            known = known & fitted.known(self._all_tokens([[word] for word in words])).cpu().numpy()
        return known

    def known_texts(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have a known word: (texts,)."""
        fitted = self.matcher.fitted_text_tower
        if fitted is None:
            return known_texts(self.tokeniser, texts)
        table = self.tokeniser.encode_all(texts)
        chunks = np.split(np.arange(len(texts)), range(TEXTS_AT_ONCE, len(texts), TEXTS_AT_ONCE))
        known = [fitted.known(self._tokens(*table.batch(chunk))).cpu().numpy() for chunk in chunks if len(chunk)]
        return np.concatenate([np.zeros(0, bool), *known])

    # Images and texts as tensors on the device

    @torch.inference_mode()
    def text_tensor(
        self,
        texts: Sequence[str],
        progress: ProgressCallback | None = None,
        batch_size: int | None = None,
        inputs: TextInputs | None = None,
        ranks: Ranks = ALONE,
        keep: slice = slice(None),
    ) -> Tensor:
        """Encode texts: (texts, ...). `inputs` are their ids and features, if those are known already.

        Several `ranks` take turns with the batches, and all get the result of one process; `keep` are the texts whose
        encodings this rank needs, by default all.
        """
        at_once = batch_size or TEXTS_AT_ONCE
        inputs = TextInputs(self.tokeniser.encode_all(texts)) if inputs is None else inputs
        # Neighbours share prefixes, which the text tower computes once, or have equal lengths and need no padding.
        keys: Sequence[Any] = texts if self.matcher.shares_prefixes else inputs.lengths.tolist()
        order = np.array(sorted(range(len(texts)), key=keys.__getitem__), np.int64)
        kept = np.zeros(len(texts), bool)
        kept[keep] = True
        rows, numbers, done = [], [], 0
        chunks = np.split(order, range(at_once, len(order), at_once))
        for begin in range(0, len(chunks), ranks.count):
            turn = chunks[begin : begin + ranks.count]
            has_chunk = ranks.rank < len(turn)
            encoded = self.matcher.encode_texts(
                inputs.tokens(turn[ranks.rank] if has_chunk else order[:1], self.device)
            )
            for part, chunk in zip(ranks.gather(encoded if has_chunk else encoded[:0]), turn, strict=False):
                rows.append(part if kept[chunk].all() else part[torch.from_numpy(kept[chunk]).to(part.device)])
                numbers.append(chunk[kept[chunk]])
            done += sum(map(len, turn))
            if progress:
                progress(done, len(order))
        encoded = concatenate_encodings(rows)
        out = torch.empty_like(encoded)
        out[torch.from_numpy(np.argsort(np.argsort(np.concatenate(numbers)))).to(out.device)] = encoded
        return out

    @torch.inference_mode()
    def token_tensor(self, texts: Sequence[Sequence[str]]) -> Tensor:
        """Encode texts that the tokeniser has split into words, in one batch: (texts, ...)."""
        return self.matcher.encode_texts(self._all_tokens(texts))

    # Corpora

    def image_reader(
        self, corpus: Corpus, workers: int = 2, progress: ProgressCallback | None = None, ranks: Ranks = ALONE
    ) -> InputReader:
        """The reader of a corpus' images for this model; keep it to encode a corpus again without decoding it again.

        If the backbone has a feature store, the reader reads from it, after computing the features that it lacks, of
        which each of several `ranks` computes a share.
        """
        store = None if self.stores is None else StoreOptions(self.stores, self.device, workers, progress, ranks=ranks)
        return image_reader(corpus, self.matcher.image_input, self.matcher.pretrained, store=store)

    def encode_corpus(
        self,
        corpus: Corpus,
        workers: int = 2,
        progress: ProgressCallback | None = None,
        reader: ImageReader | None = None,
        texts: TextInputs | None = None,
        ranks: Ranks = ALONE,
    ) -> EncodedCorpus:
        """Encode the images and texts of a corpus that share a group with the other side.

        `progress` receives the number of items done and the total. `texts` are the inputs of those texts, if they are
        known already. Several `ranks` do it together, and all get the same encodings.
        """
        corpus = _matched(corpus)
        total = len(corpus.image_ids) + len(corpus.texts)
        images, readable, skipped = self.encode_corpus_images(
            corpus, workers, progress and (lambda done, _: progress(done, total)), reader, ranks
        )
        if skipped:
            corpus, rows, kept = _readable_part(corpus, readable)
            texts = None if texts is None else texts.take(kept)
            images = images[torch.from_numpy(rows).to(images.device)]
        start = total - len(corpus.texts)
        encoded = self.text_tensor(
            corpus.texts, progress and (lambda done, _: progress(start + done, total)), inputs=texts, ranks=ranks
        )
        return EncodedCorpus.from_matcher(self.matcher, corpus, images, encoded, skipped)

    def encode_spread(
        self, corpus: Corpus, workers: int = 2, progress: ProgressCallback | None = None, *, ranks: Ranks
    ) -> EncodedCorpus[SpreadRows]:
        """What `encode_corpus` returns, with encodings that stay spread over the ranks."""
        corpus = _matched(corpus)
        total = len(corpus.image_ids) + len(corpus.texts)
        own, numbers, skipped = self._encode_own_images(
            corpus, workers, progress and (lambda done, _: progress(done, total)), None, ranks
        )
        if skipped:
            readable = ranks.all_rows(torch.from_numpy(numbers)).numpy()
            corpus, rows, _ = _readable_part(corpus, readable)
            own = own[torch.from_numpy(np.isin(numbers, readable[rows])).to(own.device)]
        start, share = total - len(corpus.texts), ranks.share(len(corpus.texts))
        texts = self.text_tensor(
            corpus.texts, progress and (lambda done, _: progress(start + done, total)), ranks=ranks, keep=share
        )
        images = SpreadRows(own, ranks)
        return EncodedCorpus.from_matcher(self.matcher, corpus, images, SpreadRows(texts, ranks), skipped)

    def encode_corpus_images(
        self,
        corpus: Corpus,
        workers: int = 2,
        progress: ProgressCallback | None = None,
        reader: ImageReader | None = None,
        ranks: Ranks = ALONE,
    ) -> tuple[Tensor, Integers, dict[str, str]]:
        """Encode a corpus' images: the encodings, the image number of each row, and why images were skipped, by id."""
        own, numbers, skipped = self._encode_own_images(corpus, workers, progress, reader, ranks)
        return ranks.all_rows(own), ranks.all_rows(torch.from_numpy(numbers)).numpy(), skipped

    @torch.inference_mode()
    def _encode_own_images(
        self,
        corpus: Corpus,
        workers: int,
        progress: ProgressCallback | None,
        reader: ImageReader | None,
        ranks: Ranks,
    ) -> tuple[Tensor, Integers, dict[str, str]]:
        """The encodings of this rank's share of the images and their numbers, and why any images were skipped."""
        reader = reader or self.image_reader(corpus, workers, progress, ranks)
        count = len(corpus.image_ids)
        chunks = np.split(np.arange(count), range(IMAGES_AT_ONCE, count, IMAGES_AT_ONCE))
        rows, numbers, done = [], [], 0
        own = chunks[ranks.share(len(chunks))]
        for chunk, (values, readable) in zip(own, read_ahead(reader.read, own, workers), strict=True):
            if readable.any():
                rows.append(self.matcher.encode_images(self._to_device(values)))
                numbers.append(chunk[readable])
            done += len(chunk)
            if progress:
                progress(done, count)
        all_skipped = [pair for part in ranks.gather_values(list(reader.skipped.items())) for pair in part]
        skipped = {corpus.image_ids[image]: reason for image, reason in sorted(all_skipped)}
        if not sum(count for (count,) in ranks.gather_numbers(len(rows))):
            splits = "+".join(sorted(set(corpus.image_splits.tolist())))
            first = next(iter(skipped.values()), "there is none")
            raise DataError(f"{corpus.name}: no image of {splits or 'it'} could be read; first reason: {first}")
        if not rows:  # nothing for this rank
            values = reader.read(np.arange(0))[0]
            nothing = self._to_device(np.zeros((1, *values.shape[1:]), values.dtype))
            rows, numbers = [self.matcher.encode_images(nothing)[:0]], [np.arange(0)]
        return concatenate_encodings(rows), np.concatenate(numbers), skipped

    def _all_tokens(self, texts: Sequence[Sequence[str]]) -> Tokens:
        table = self.tokeniser.encode_words(texts)
        return self._tokens(*table.batch(np.arange(len(table))))

    def _tokens(self, ids: Integers, lengths: Integers) -> Tokens:
        return Tokens(self._to_device(ids), self._to_device(lengths))

    def _tensor(self, encodings: Encodings) -> Tensor:
        if encodings.sets is None:
            return self._to_device(encodings.vectors)
        return concatenate_encodings([torch.from_numpy(vectors)[None] for vectors in encodings.sets]).to(self.device)

    def _to_device(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


def _matched(corpus: Corpus) -> Corpus:
    """The images and texts that share a group with the other side; raises DataError if there are none."""
    matched = corpus.matched()
    if not len(matched.texts):
        raise DataError(f"{corpus.name}: no image and text share a group; nothing can be ranked")
    return matched


def _readable_part(corpus: Corpus, readable: Integers) -> tuple[Corpus, Integers, Integers]:
    """The part of a corpus with readable images, and which of these and which of all texts are left."""
    corpus = corpus.take(readable, np.arange(len(corpus.texts)))
    matched = corpus.matched()
    images = np.flatnonzero(np.isin(corpus.image_groups, matched.image_groups))
    return matched, images, np.flatnonzero(np.isin(corpus.text_groups, matched.text_groups))


def _encodings(encoded: Tensor) -> Encodings:
    if encoded.dim() == 2:
        return Encodings(encoded.float().cpu().numpy())
    means = torch.nn.functional.normalize(encoded.sum(1), dim=1)
    rows, filled = encoded.float().cpu(), present(encoded).cpu()
    sets = tuple(row[places].numpy() for row, places in zip(rows, filled, strict=True))
    return Encodings(means.float().cpu().numpy(), sets)
