"""A pretrained pair of towers, such as CLIP or SigLIP, as a matcher: the cosine of its own two embeddings.

    f(i) = v(i) / |v(i)|,  g(c) = w(c) / |w(c)|,  s(i, c) = f(i) . g(c)
    p(c | i) = softmax over texts of exp(t) s(i, c)    (CLIP);    p(i, c) = sigmoid(exp(t) s(i, c) + b)    (SigLIP)

t is the logarithm of the inverse temperature and b the bias. Both are kept with the weights (`logits`), but the score
is the cosine: each probability grows with it, so that rankings are those of the library.

Reference: Radford et al. 2021, Learning Transferable Visual Models From Natural Language Supervision, Fig. 3; Zhai et
al. 2023, Sigmoid Loss for Language Image Pre-Training, Eq. 1; Tschannen et al. 2025, SigLIP 2.
Needs: the extra `open-clip` or `transformers`, and the files of a pair; no training and no data. Photos are prepared
and texts are split as the library does. A run made of a pair has everything in it and opens without those files.
When to use it: it has seen hundreds of millions of captioned photos. Measure it before anything is trained, search with
it, and start from it (`stage.1.start`) if your photos or texts are of a field of their own.
Relation to others: `projected` adds heads to it. The image tower alone is the backbone `open-clip:NAME` of any other
model.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from typing_extensions import Self

from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.layers.precision import normalize
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.pretrained_pairs import open_clip_networks, transformers_networks
from diptych.models.pretrained_pairs.architecture import PairArchitecture
from diptych.models.pretrained_pairs.find import find_pair, pair_name
from diptych.models.pretrained_pairs.source import PairSource
from diptych.models.pretrained_pairs.towers import PairBackbone, PairImageTower, PairTextTower
from diptych.models.pretrained_pairs.weights import load_into, read_tensors
from diptych.models.tower import Tokens
from diptych.text.tokenisers.prompt import Prompt
from diptych.text.tokenisers.tokeniser import Tokeniser

_NETWORKS = {"open_clip": open_clip_networks, "transformers": transformers_networks}


class PairSettings(ModelSettings):
    """Which pair, and a sentence around every text, if any, such as "a photo of {}".

    `model` is the address of a pair: `open_clip:NAME/TAG`, `open_clip:NAME/FOLDER`, or a folder in the layout of
    open_clip, CLIP or transformers. `architecture` is read from its files.
    """

    name: Literal["pair"] = "pair"
    model: str
    prompt: Prompt | None = None
    architecture: PairArchitecture | None = None

    def completed(self) -> Self:
        """These settings with the architecture of the files."""
        if self.architecture is not None:
            return self
        return self.model_copy(update={"architecture": find_pair(self.model).architecture})

    def tokeniser(self) -> Tokeniser | None:
        """The tokeniser of the pair; None in a run, which has its tokeniser beside its weights."""
        return None if self.architecture is not None else find_pair(self.model).tokeniser(self.prompt)

    def for_data(self, vocabulary_size: int, feature_shape: tuple[int, ...] | None) -> Self:
        """These settings with the architecture; the data must have photos, and the tokeniser fit the weights."""
        if feature_shape is not None:
            raise RecipeError("model: 'pair' reads photos through its image tower, and the data has features instead")
        completed = self.completed()
        assert completed.architecture is not None
        if vocabulary_size > completed.architecture.ids:
            raise RecipeError(
                f"model.model = {self.model!r}: its tokeniser has {vocabulary_size:,} ids and its network "
                f"{completed.architecture.ids:,}; they do not belong together"
            )
        return completed

    def build(self) -> Pair:
        """A matcher with random weights."""
        return Pair(self.completed())


class Pair(Matcher):
    """See the module docstring. Its parts are `image` and `text`."""

    logit_scale: Tensor  # t, ()
    logit_bias: Tensor  # b, (); zero for pairs without a bias

    def __init__(self, settings: PairSettings) -> None:
        super().__init__()
        architecture = settings.architecture
        assert architecture is not None, "completed by PairSettings.build"
        self.settings: PairSettings = settings
        images, texts = _NETWORKS[architecture.library].build(architecture.config)
        self.image = PairImageTower(
            PairBackbone(f"pair-{pair_name(settings.model)}", images, architecture), architecture
        )
        self.text = PairTextTower(texts, architecture)
        self.register_buffer("logit_scale", torch.zeros(()))
        self.register_buffer("logit_bias", torch.zeros(()))

    @property
    def image_input(self) -> ImageInput:
        """The image tower's input."""
        return self.image.input

    @property
    def pretrained(self) -> Backbone:
        """The image network."""
        return self.image.pretrained

    @property
    def embedding_dim(self) -> int:
        """The size of the pair's embeddings."""
        return self.image.size

    @property
    def needs_training(self) -> bool:
        """Never."""
        return False

    @property
    def offers_unnormalised(self) -> bool:
        """Always."""
        return True

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images: (images, size)."""
        return normalize(self.unnormalised_images(images), dim=1)

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts: (texts, size)."""
        return normalize(self.unnormalised_texts(tokens), dim=1)

    def unnormalised_images(self, images: Tensor) -> Tensor:
        """The image network's output: (images, size)."""
        vectors: Tensor = self.image(images)
        return vectors

    def unnormalised_texts(self, tokens: Tokens) -> Tensor:
        """The text network's output: (texts, size)."""
        vectors: Tensor = self.text(tokens)
        return vectors

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The cosine: (images, texts)."""
        return torch.mm(images, texts.t())

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The same score for image k and text k: (pairs,)."""
        return (images * texts).sum(1)

    def logits(self, images: Tensor, texts: Tensor) -> Tensor:
        """What the library's softmax or sigmoid is taken of: (images, texts)."""
        return self.logit_scale.exp() * self.score(images, texts) + self.logit_bias

    def load_pretrained(self) -> None:
        """Load the weights from the files that the settings name."""
        self.load_weights(find_pair(self.settings.model))

    def load_weights(self, source: PairSource) -> None:
        """Load the weights of a pair that was found already; RecipeError if they do not fit the architecture."""
        assert self.settings.architecture is not None
        parts = _NETWORKS[self.settings.architecture.library].network_weights(read_tensors(source.weights))
        file = source.weights[0]
        load_into(self.image.backbone.network, parts["image"], file)
        load_into(self.text.network, parts["text"], file)
        for name, tensor in parts["score"].items():
            if name not in ("logit_scale", "logit_bias") or tensor.numel() != 1:
                raise RecipeError(f"{file}: has weights {name} that a pair does not have; name the folder of a pair")
            getattr(self, name).copy_(tensor.reshape(()))

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """A pair has its own tokens: RecipeError."""
        self.text.load_word_vectors(vectors, found)
