"""Model: what a user loads. A matcher with its tokeniser and image reader, on torch or from an ONNX export.

    model = diptych.load("starter")
    images = model.encode_images(["dog.jpg", "cat.jpg"])  # one row per image
    texts = model.encode_texts(["two dogs on a beach"])
    model.score(images, texts)  # (images, texts), higher is better

Loading reads no weights; the engine is opened on first use. Neither importing this module nor an export imports torch,
and neither does a run that was exported in place, such as the starter, until its torch module is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Unpack

from diptych.data.corpus import Corpus, Floats
from diptych.data.image_reader import ImageReader
from diptych.data.image_sources import ImageSource, as_picture, as_pictures
from diptych.errors import DataError, RunError
from diptych.features.choices import Quality
from diptych.machine import available_cores
from diptych.models.embeddings import (
    Embeddings,
    are_embeddings,
    check_devices,
    check_embeddings,
    check_one_image,
    from_array,
    normalized,
    to_tensor,
)
from diptych.models.encode import (
    EncodedImages,
    ImageOptions,
    OnError,
    TextOptions,
    check_texts,
    encode_pictures,
    encode_texts,
    score_blocks,
)
from diptych.models.engines.engine import Engine
from diptych.models.engines.sources import EngineSource, ModelOptions
from diptych.models.explain.word_importance import Explanation, explain
from diptych.models.export.exported import new_folder
from diptych.progress import ProgressCallback, open_progress
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.text.vocabulary import Vocabulary, require_words

if TYPE_CHECKING:
    import torch

    from diptych.models.encoded_corpus import EncodedCorpus
    from diptych.models.engines.torch_engine import TorchEngine
    from diptych.models.explain.localise import LocatedRegion
    from diptych.models.matcher import Matcher


def load(
    address: str | Path,
    device: str = "auto",
    *,
    snapshot: str = "best",
    download: bool = False,
    quality: Quality = "best",
) -> Model:
    """Load a run or an export by its folder, `starter`, the model that comes with the package, or a pretrained pair.

    A pair is `open_clip:NAME/TAG`, `open_clip:NAME/FOLDER`, or a folder in the layout of open_clip, CLIP or
    transformers. Files that the hub's cache does not have are fetched from the hub only with `download`.
    `device` is "auto", "cpu", "cuda", "cuda:1" or "mps"; `snapshot` is "best", "last" or another of the run. With the
    quality "fast", a model of four views encodes images in half the time, as two views; others know only "best".
    """
    return Model.load(address, device, quality=quality, snapshot=snapshot, download=download)


class Model:
    """A model that encodes images and texts and scores them; safe to share between threads.

    Models come from `load` (a run, an export, the starter, a pair) and from `Model.from_matcher` (in memory).
    """

    def __init__(self, source: EngineSource | None = None, engine: TorchEngine | None = None) -> None:
        self._source, self._torch = source, engine
        self._graphs: Engine | None = None
        self._lock = threading.RLock()

    @classmethod
    def load(
        cls, address: str | Path, device: str = "auto", *, stores: Path | None = None, **options: Unpack[ModelOptions]
    ) -> Model:
        """As `load`; `stores` is a folder of feature stores to read the features of a corpus from."""
        return cls(EngineSource.find(address, device, stores, **options))

    @classmethod
    def from_matcher(
        cls, matcher: Matcher, tokeniser: Tokeniser, device: torch.device | str = "cpu", *, stores: Path | None = None
    ) -> Model:
        """A model around a matcher in memory, which must be on the device already."""
        import torch

        from diptych.models.engines.torch_engine import TorchEngine

        return cls(engine=TorchEngine(matcher, tokeniser, torch.device(device), stores))

    def __repr__(self) -> str:
        return f"Model({self.address if self._source else 'in memory'})"

    @property
    def address(self) -> str:
        """Where the model was loaded from, as it was given to `load`."""
        return self.loaded("address").files.address

    @property
    def identity(self) -> str:
        """A digest of weights, settings and tokeniser, equal for a run and its export and for no other model."""
        with self._lock:
            return self.loaded("identity").identity

    @property
    def image_identity(self) -> str:
        """The identity with the quality: equal for models that encode images alike."""
        return self.identity if self._source is None else f"{self.identity} {self._source.quality}"

    def loaded(self, what: str) -> EngineSource:
        """What the model was loaded from; an error says that it has no `what` if it is in memory."""
        if self._source is None:
            raise RunError(
                f"a model in memory has no {what}; save it with model.save(FOLDER) and load that with Model.load"
            )
        return self._source

    @property
    def _name(self) -> str:
        """What errors call the model."""
        return self.address if self._source else "the model"

    @property
    def engine(self) -> Engine:
        """What encodes and scores, opened on first use: torch if the model has no graphs, or if torch was asked for."""
        with self._lock:
            if self._torch is not None or self._source is None or not self._source.has_graphs:
                return self.torch_engine
            if self._graphs is None:
                self._graphs = self._source.open_graphs()
            return self._graphs

    @property
    def tokeniser(self) -> Tokeniser:
        """The tokeniser that the model was trained with."""
        return self.engine.tokeniser

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that the model was trained with; RunError for a model that reads pieces of words."""
        return require_words(self.tokeniser, f"{self._name}: has no vocabulary, it reads pieces of words")

    @property
    def embedding_dim(self) -> int:
        """The size of an embedding, or of each vector in a set of them."""
        return self.engine.embedding_dim

    @property
    def is_inner_product(self) -> bool:
        """Whether the inner products of embeddings rank as `score` does."""
        return self.engine.is_inner_product

    @property
    def localises(self) -> bool:
        """Whether the model can find a phrase in an image."""
        return self.engine.localises

    def check_reads_pictures(self) -> None:
        """Refuse a model that reads features instead of pictures."""
        if not self.engine.reads_pictures:
            raise DataError(
                f"{self._name}: the run reads features that came with its data, and cannot see photos; "
                "take one that was trained on photos"
            )

    def with_quality(self, quality: Quality) -> Model:
        """The same model with another quality, see `load`; a model in memory stays as it is."""
        is_same = self._source is None or self._source.quality == quality
        return self if is_same else Model(replace(self.loaded("files"), quality=quality))

    # Images and texts

    @overload
    def encode_images(
        self,
        images: Iterable[ImageSource],
        *,
        as_tensor: Literal[False] = False,
        errors: Literal["raise"] = "raise",
        **options: Unpack[ImageOptions],
    ) -> Floats: ...
    @overload
    def encode_images(
        self,
        images: Iterable[ImageSource],
        *,
        as_tensor: Literal[True],
        errors: Literal["raise"] = "raise",
        **options: Unpack[ImageOptions],
    ) -> torch.Tensor: ...
    @overload
    def encode_images(
        self,
        images: Iterable[ImageSource],
        *,
        as_tensor: Literal[False] = False,
        errors: Literal["skip"],
        **options: Unpack[ImageOptions],
    ) -> EncodedImages[Floats]: ...
    @overload
    def encode_images(
        self,
        images: Iterable[ImageSource],
        *,
        as_tensor: Literal[True],
        errors: Literal["skip"],
        **options: Unpack[ImageOptions],
    ) -> EncodedImages[torch.Tensor]: ...

    def encode_images(
        self,
        images: Iterable[ImageSource],
        *,
        batch_size: int | None = None,
        progress: bool | ProgressCallback | None = None,
        as_tensor: bool = False,
        normalize: bool = False,
        errors: OnError = "raise",
        workers: int | None = None,
    ) -> Embeddings | EncodedImages[Any]:
        """Encode images: paths, PIL images of any mode, or uint8 arrays, (height, width, 3) or (height, width).

        Returns float32, one row per image: (images, size), or (images, places, size) padded with zeros for models that
        encode an image as a set of vectors. An image that cannot be read raises ImageError with its name, or with its
        position in the list; `errors="skip"` leaves it out, like entries such as None, and returns `EncodedImages`.

        `batch_size` is the largest number of images in one forward pass. `progress` is True for a bar, or a function
        of the number of images done and the total. `as_tensor` returns a torch tensor on the model's device;
        `normalize` scales all vectors to length one. `workers` threads read and decode ahead, by default one per core.
        """
        self.check_reads_pictures()
        pictures = as_pictures(images, defer_errors=errors == "skip")
        workers = available_cores() if workers is None else workers
        with open_progress(progress, "encoding images") as report:
            array, skipped = encode_pictures(
                self.engine, pictures, batch_size=batch_size, workers=workers, errors=errors, progress=report
            )
        embeddings = self._finished(array, as_tensor, normalize)
        if errors == "raise":
            return embeddings
        kept = [position for position in range(len(pictures)) if position not in skipped]
        return EncodedImages(embeddings, kept, skipped)

    @overload
    def encode_texts(
        self, texts: Iterable[str], *, as_tensor: Literal[False] = False, **options: Unpack[TextOptions]
    ) -> Floats: ...
    @overload
    def encode_texts(
        self, texts: Iterable[str], *, as_tensor: Literal[True], **options: Unpack[TextOptions]
    ) -> torch.Tensor: ...

    def encode_texts(
        self,
        texts: Iterable[str],
        *,
        batch_size: int | None = None,
        progress: bool | ProgressCallback | None = None,
        as_tensor: bool = False,
        normalize: bool = False,
    ) -> Embeddings:
        """Encode texts: float32, (texts, size) or, padded with zeros, (texts, places, size).

        The options are those of `encode_images`. Words that the model does not know are ignored or share one embedding;
        `unknown_words` lists those of a text.
        """
        with open_progress(progress, "encoding texts") as report:
            array = encode_texts(self.engine, check_texts(texts), batch_size=batch_size, progress=report)
        return self._finished(array, as_tensor, normalize)

    def score(self, images: Iterable[ImageSource] | Embeddings, texts: Iterable[str] | Embeddings) -> Floats:
        """Score all images against all texts with the model's own score: float32, (images, texts), higher is better.

        Both are embeddings from `encode_images` and `encode_texts`, or images and texts, which are encoded first.
        """
        check_devices(images, texts)
        engine = self.engine
        # Texts first: they take less time, so that a mistake in them is reported sooner.
        right = check_embeddings(texts, "texts", engine) if are_embeddings(texts) else self.encode_texts(texts)
        left = check_embeddings(images, "images", engine) if are_embeddings(images) else self.encode_images(images)
        return score_blocks(engine, left, right)

    def explain(self, image: ImageSource | Embeddings, text: str) -> Explanation:
        """How important each word of a text is for its score with an image: the drop of the score without the word.

        The image may also be given as its embedding, such as `model.encode_images(images)[0]`.
        """
        if not isinstance(text, str):
            raise DataError(f"text: {text!r:.40} is not a string")
        if are_embeddings(image):
            embedding = check_one_image(image, self.engine)
        else:
            self.check_reads_pictures()
            embedding, _ = encode_pictures(self.engine, [as_picture(image)])
        return explain(self.engine, from_array(embedding), text)

    def localize(self, image: ImageSource, phrases: Iterable[str], top: int = 1) -> list[list[LocatedRegion]]:
        """The `top` best regions of an image for each phrase, best first, with boxes in pixels of the image.

        Only models that were trained on phrases can do this (see `localises`).
        """
        from diptych.models.explain.localise import check_can_localise, localise_in_picture

        engine = self.torch_engine
        try:
            check_can_localise(engine.matcher)
        except RunError as reason:
            raise RunError(f"{self._name}: {reason}") from None
        return localise_in_picture(engine, as_picture(image), check_texts(phrases, "phrases"), top)

    def _finished(self, array: Floats, as_tensor: bool, normalize: bool) -> Embeddings:
        array = normalized(array) if normalize else array
        return to_tensor(array, self.engine) if as_tensor else array

    def known_words(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which of these words, as the tokeniser splits them, the model knows: (words,)."""
        return self.engine.known_words(words)

    def unknown_words(self, text: str) -> list[str]:
        """The words of a text that the model does not know, each once."""
        words = list(dict.fromkeys(self.tokeniser.split(text)))
        return [word for word, known in zip(words, self.known_words(words), strict=True) if not known]

    def known_texts(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have a word that the model knows: (texts,). All others look the same to it."""
        return self.engine.known_texts(texts)

    def save(self, folder: str | Path) -> None:
        """Write a new folder that `load` opens.

        It is a copy of an export, or of a run with graphs that torch has not been asked for; for any other model it has
        the weights in memory, with a new identity.
        """
        with new_folder(Path(folder)) as temporary:
            if self._source is not None and self._torch is None and self._source.has_graphs:
                self._source.files.copy(temporary)
            else:
                from diptych.models.storage import save_matcher

                save_matcher(temporary / "best" / "weights.safetensors", self.matcher, self.tokeniser, {})
                self.tokeniser.save(temporary)

    # For torch users: training, evaluation, mining and reports

    @property
    def torch_engine(self) -> TorchEngine:
        """The torch engine, which an export has not; from then on it encodes, because its weights may be changed."""
        with self._lock:
            if self._torch is None:
                self._torch = self.loaded("weights").open_torch()
            return self._torch

    @property
    def matcher(self) -> Matcher:
        """The torch module."""
        return self.torch_engine.matcher

    @property
    def device(self) -> torch.device:
        """The matcher's device."""
        return self.torch_engine.device

    @property
    def stores(self) -> Path | None:
        """The folder of feature stores, if any."""
        return self.torch_engine.stores

    def encode_corpus(
        self,
        corpus: Corpus,
        workers: int = 2,
        progress: ProgressCallback | None = None,
        reader: ImageReader | None = None,
    ) -> EncodedCorpus:
        """Encode the images and texts of a corpus that share a group with the other side."""
        return self.torch_engine.encode_corpus(corpus, workers, progress, reader)
