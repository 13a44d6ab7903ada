"""A matcher with its vocabulary, ready to encode corpora, pictures and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.data.corpus import Corpus, Integers, Picture
from diptych.data.image_reader import ImageReader
from diptych.data.sampling.pairs import read_ahead
from diptych.errors import DataError, ImageError, RunError
from diptych.features.readers import InputReader, StoreOptions, image_reader
from diptych.machine import choose_device
from diptych.models.address import run_folder
from diptych.models.encodings import Encoded, joined
from diptych.models.matcher import Matcher
from diptych.models.storage import load_matcher
from diptych.models.tower import Tokens
from diptych.progress import ProgressCallback
from diptych.text.tokenisers.treebank import tokenise
from diptych.text.vocabulary import Vocabulary, pad_ids

IMAGES_AT_ONCE = 64
TEXTS_AT_ONCE = 512


@dataclass(frozen=True)
class Trained:
    """A matcher and the vocabulary that it was trained with.

    `stores` is a folder that may hold features of its backbone; what is stored there is read and not computed again.
    """

    matcher: Matcher
    vocabulary: Vocabulary
    device: torch.device
    stores: Path | None = None

    @classmethod
    def open(cls, run: Path | str, device: str = "auto", snapshot: str = "best", stores: Path | None = None) -> Trained:
        """The best snapshot of a run, in evaluation mode on the device."""
        folder = run_folder(run)
        if not folder.is_dir():
            raise RunError(f"{folder}: no such run; train one with `diptych train RECIPE DATA --into {folder}`")
        if not (folder / "vocabulary.json").exists():
            raise RunError(f"{folder}: not a run: it has no vocabulary.json; name a folder that `diptych train` made")
        try:
            vocabulary = Vocabulary.load(folder / "vocabulary.json")
        except DataError as reason:
            raise RunError(str(reason)) from None
        matcher = load_matcher(folder / snapshot / "weights.safetensors", vocabulary)
        place = choose_device(device)
        return cls(matcher.to(place).eval(), vocabulary, place, stores)

    def reader(self, corpus: Corpus, workers: int = 2, progress: ProgressCallback | None = None) -> InputReader:
        """The reader of a corpus' images for this model; keep it to encode a corpus again without decoding it again.

        If the backbone has a feature store, the reader reads from it, after computing the features that it lacks.
        """
        store = None if self.stores is None else StoreOptions(self.stores, self.device, workers, progress)
        return image_reader(corpus, self.matcher.image_input, self.matcher.pretrained, store=store)

    def encode(
        self,
        corpus: Corpus,
        workers: int = 2,
        progress: ProgressCallback | None = None,
        reader: ImageReader | None = None,
    ) -> Encoded:
        """Encode what can be ranked of a corpus; `progress` is told how many items of how many are done."""
        corpus = corpus.matched()
        if not len(corpus.texts):
            raise DataError(f"{corpus.name}: no image and text share a group; nothing can be ranked")
        total = len(corpus.image_ids) + len(corpus.texts)
        images, readable, skipped = self.encode_images(
            corpus, workers, progress and (lambda done, _: progress(done, total)), reader
        )
        if skipped:
            corpus = corpus.take(readable, np.arange(len(corpus.texts)))
            kept = corpus.matched()
            here = np.flatnonzero(np.isin(corpus.image_groups, kept.image_groups))
            images, corpus = images[torch.from_numpy(here).to(images.device)], kept
        start = total - len(corpus.texts)
        texts = self.encode_texts(corpus.texts, progress and (lambda done, _: progress(start + done, total)))
        return Encoded.of(self.matcher, corpus, images, texts, skipped)

    @torch.inference_mode()
    def encode_images(
        self,
        corpus: Corpus,
        workers: int = 2,
        progress: ProgressCallback | None = None,
        reader: ImageReader | None = None,
    ) -> tuple[Tensor, Integers, dict[str, str]]:
        """Encode a corpus' images: the encodings, the image each row belongs to, and the reasons of the skipped."""
        reader = reader or self.reader(corpus, workers, progress)
        count = len(corpus.image_ids)
        chunks = np.split(np.arange(count), range(IMAGES_AT_ONCE, count, IMAGES_AT_ONCE))
        rows, numbers, done = [], [], 0
        for chunk, (values, readable) in zip(chunks, read_ahead(reader.read, chunks, workers), strict=True):
            if readable.any():
                rows.append(self.matcher.encode_images(torch.from_numpy(values).to(self.device)))
                numbers.append(chunk[readable])
            done += len(chunk)
            if progress:
                progress(done, count)
        skipped = {corpus.image_ids[image]: reason for image, reason in sorted(reader.skipped.items())}
        if not rows:
            splits = "+".join(sorted(set(corpus.image_splits.tolist())))
            first = next(iter(skipped.values()), "there is none")
            raise DataError(f"{corpus.name}: no image of {splits or 'it'} could be read; first reason: {first}")
        return joined(rows), np.concatenate(numbers), skipped

    @torch.inference_mode()
    def encode_picture(self, picture: Picture) -> Tensor:
        """Encode one picture of no corpus: (1, ...)."""
        reader = image_reader([picture], self.matcher.image_input, self.matcher.pretrained)
        values, readable = reader.read(np.array([0]))
        if not readable.all():
            raise ImageError(reader.skipped[0])
        return self.matcher.encode_images(torch.from_numpy(values).to(self.device))

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str], progress: ProgressCallback | None = None) -> Tensor:
        """Encode sentences; row j belongs to sentence j."""
        # In alphabetical order neighbours share beginnings, which the text tower computes once.
        order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
        table = self.vocabulary.encode_all(texts)
        rows, done = [], 0
        for chunk in np.split(order, range(TEXTS_AT_ONCE, len(order), TEXTS_AT_ONCE)):
            ids, lengths = table.batch(chunk)
            rows.append(self.matcher.encode_texts(self.tokens(ids, lengths)))
            done += len(chunk)
            if progress:
                progress(done, len(order))
        encoded = joined(rows)
        out = torch.empty_like(encoded)
        out[torch.from_numpy(order).to(out.device)] = encoded
        return out

    def known(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have a word that the model knows, (texts,): all others are the same to it."""
        fitted = self.matcher.fitted_text_tower
        if fitted is None:
            ids = self.vocabulary.ids
            return np.array([any(word in ids for word in tokenise(text)) for text in texts], bool)
        table = self.vocabulary.encode_all(texts)
        chunks = np.split(np.arange(len(texts)), range(TEXTS_AT_ONCE, len(texts), TEXTS_AT_ONCE))
        known = [fitted.known(self.tokens(*table.batch(chunk))).cpu().numpy() for chunk in chunks if len(chunk)]
        return np.concatenate([np.zeros(0, bool), *known])

    def known_words(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which words the model can tell from others: those of its vocabulary and of its text tower's fit, if any."""
        known = np.array([word in self.vocabulary.ids for word in words], bool)
        fitted = self.matcher.fitted_text_tower
        if fitted is not None and len(words):
            ids = [self.vocabulary.encode_tokens([word]) for word in words]
            known &= fitted.known(self.tokens(*pad_ids(ids))).cpu().numpy()
        return known

    def tokens(self, ids: Integers, lengths: Integers) -> Tokens:
        """Padded ids as tokens on the device."""
        return Tokens(torch.from_numpy(ids).to(self.device), torch.from_numpy(lengths).to(self.device))
