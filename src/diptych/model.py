"""Model: what a user loads. A matcher with its tokeniser and image reader, on torch or from an ONNX export.

    model = Model.load("runs/mine")
    images = model.encode_images([photo])
    texts = model.encode_texts(["two dogs on a beach"])
    model.score(images, texts)  # (images, texts), higher is better

Loading reads no weights; the engine is opened when something is first encoded. Importing this module does not import
torch, and a model from an export never does.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.corpus import Corpus, Floats
from diptych.data.image_reader import ImageReader
from diptych.errors import DataError, RunError
from diptych.models.address import ModelFiles
from diptych.models.engines.engine import Encodings, Engine
from diptych.models.export.exported import new_folder
from diptych.progress import ProgressCallback
from diptych.text.tokenisers.treebank import tokenise
from diptych.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    import torch

    from diptych.models.encoded_corpus import EncodedCorpus
    from diptych.models.engines.torch_engine import TorchEngine
    from diptych.models.matcher import Matcher


class Model:
    """A model that encodes images and texts and scores them; safe to share between threads.

    Models come from `Model.load` (a run, an export or the starter) and from `Model.from_matcher` (a matcher in memory).
    """

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        address: str | None = None,
        identify: Callable[[], str] | None = None,
        files: ModelFiles | None = None,
    ) -> None:
        self._open_engine, self._address, self._identify, self._files = open_engine, address, identify, files
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._identity: str | None = None

    @classmethod
    def load(
        cls, address: str | Path, device: str = "auto", *, snapshot: str = "best", stores: Path | None = None
    ) -> Model:
        """The model of a run's or an export's folder, or `starter`, the one that comes with the package.

        `stores` is a folder of feature stores to read the features of a corpus from.
        """
        files = ModelFiles.find(address, snapshot)

        def open_engine() -> Engine:
            files.check_unchanged()
            if files.is_export:
                from diptych.models.engines.onnx_engine import OnnxEngine

                return OnnxEngine.open(files.folder)
            from diptych.models.engines.torch_engine import TorchEngine

            return TorchEngine.open(files.folder, device, snapshot, stores)

        return cls(open_engine, str(address), files.identity, files)

    @classmethod
    def from_matcher(
        cls,
        matcher: Matcher,
        vocabulary: Vocabulary,
        device: torch.device | str = "cpu",
        *,
        stores: Path | None = None,
    ) -> Model:
        """A model around a matcher in memory, which must be on the device already."""
        import torch

        from diptych.models.engines.torch_engine import TorchEngine

        engine = TorchEngine(matcher, vocabulary, torch.device(device), stores)
        return cls(lambda: engine)

    @property
    def address(self) -> str:
        """Where the model was loaded from, as it was given to `load`."""
        if self._address is None:
            raise _in_memory("address")
        return self._address

    @property
    def identity(self) -> str:
        """A digest of weights, settings and words, equal for a run and its export and for no other model."""
        with self._lock:
            if self._identity is None:
                if self._identify is None:
                    raise _in_memory("identity")
                self._identity = self._identify()
            return self._identity

    @property
    def engine(self) -> Engine:
        """What encodes and scores; it is opened on first use."""
        with self._lock:
            if self._engine is None:
                self._engine = self._open_engine()
            return self._engine

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that the model was trained with."""
        return self.engine.vocabulary

    @property
    def embedding_dim(self) -> int:
        """The size of `Encodings.vectors`."""
        return self.engine.embedding_dim

    @property
    def is_inner_product(self) -> bool:
        """Whether inner products of `Encodings.vectors` rank as the score does; if not, `score` re-ranks them."""
        return self.engine.is_inner_product

    @property
    def localises(self) -> bool:
        """Whether the model can find a phrase in an image."""
        return self.engine.localises

    def check_reads_pictures(self) -> None:
        """Refuse a model that reads features instead of pictures."""
        if not self.engine.reads_pictures:
            raise DataError(
                f"{self.address}: the run reads features that came with its data, and cannot see photos; "
                "take one that was trained on photos"
            )

    # Images and texts

    def preprocess(self, image: Image.Image) -> NDArray[Any]:
        """Turn an upright RGB image into the array that `encode_preprocessed` takes; work for many threads."""
        return self.engine.preprocess(image)

    def encode_preprocessed(self, preprocessed: Sequence[NDArray[Any]]) -> Encodings:
        """Encode preprocessed images."""
        return self.engine.encode_preprocessed(preprocessed)

    def encode_images(self, images: Sequence[Image.Image]) -> Encodings:
        """Encode upright RGB images."""
        return self.encode_preprocessed([self.preprocess(image) for image in images])

    def encode_texts(self, texts: Sequence[str]) -> Encodings:
        """Encode texts."""
        return self.engine.encode_texts(texts)

    def encode_tokens(self, texts: Sequence[Sequence[str]]) -> Encodings:
        """Encode texts that are already split into tokens."""
        return self.engine.encode_tokens(texts)

    def score(self, images: Encodings, texts: Encodings) -> Floats:
        """Score all images against all texts: (images, texts), higher is better."""
        return self.engine.score(images, texts)

    def known_words(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which of these words, one token each, the model knows: (words,)."""
        return self.engine.known_words(words)

    def unknown_words(self, text: str) -> list[str]:
        """The words of a text that the model does not know, each once."""
        words = list(dict.fromkeys(tokenise(text)))
        return [word for word, known in zip(words, self.known_words(words), strict=True) if not known]

    def known_texts(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have a word that the model knows: (texts,). All others look the same to it."""
        return self.engine.known_texts(texts)

    def save(self, folder: str | Path) -> None:
        """Write a new folder that `load` opens: a copy of an export, or the weights and words of any other model."""
        with new_folder(Path(folder)) as temporary:
            if self._files is not None and self._files.is_export:
                for file in self._files.paths:
                    shutil.copyfile(file, temporary / file.name)
            else:
                from diptych.models.storage import save_matcher

                save_matcher(temporary / "best" / "weights.safetensors", self.matcher, self.vocabulary, {})
                self.vocabulary.save(temporary / "vocabulary.json")

    # For torch users: training, evaluation, mining and reports

    @property
    def torch_engine(self) -> TorchEngine:
        """The torch engine, which also returns tensors; an ONNX export has none."""
        if self._files is not None:
            self._files.check_is_run()
        return cast("TorchEngine", self.engine)

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
        """Encode the images and texts of a corpus that share a group with the other side.

        `progress` receives the number of items done and the total.
        """
        return self.torch_engine.encode_corpus(corpus, workers, progress, reader)


def _in_memory(what: str) -> RunError:
    return RunError(f"a model in memory has no {what}; save it with model.save(FOLDER) and load that with Model.load")
