"""VSRN: an image's regions reason about each other, a GRU gathers them into one vector, and a decoder captions them.

    v_i = normalise(W_f f_i + b_f),   v* = blocks of region reasoning,   f(i) = normalise(GRU(normalise(v*)))
    g(c) = normalise(GRU(words)),   s(i, c) = f(i) . g(c)

Reference: Li et al., Visual Semantic Reasoning for Image-Text Matching (VSRN), ICCV 2019.
Needs: images as regions; texts as tokens.
When to use it: a stronger image side than a mean of regions, with embeddings that can be indexed like any other; the
host model and the teacher of AOQ.
Relation to others: without blocks of reasoning and decoder it is VSE with a GRU over regions. As in the authors' public
code, the maps of a block have biases and a batch norm that begins at zero, and the loss of the decoder
(`generation.weight`) is a sum over words and a mean over captions, beside a ranking loss that is a sum over pairs.
Other than there, vectors are normalised region by region (there, number by number across regions), regions that an
image does not have count nowhere, and captions are computed to their own length. `normalise_regions = false` leaves
out the first normalisation, as that code does for Flickr30K; its extra batch norm of f(i) there is left out.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize
from typing_extensions import Self

from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.layers.captioner import Captioner, Generation
from diptych.models.layers.region_reasoning import Layout, RegionGraph
from diptych.models.matcher import EncodedBatch, Matcher, ModelSettings
from diptych.models.tower import NamedRegionTower, NamedTextTower, Tokens
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.settings import Count, Flag


class VSRNSettings(ModelSettings):
    """Sizes and options of a VSRN matcher: the paper's sizes."""

    name: Literal["vsrn"] = "vsrn"
    joint: Count = 2048
    image: NamedRegionTower = RegionFeatureSettings()
    normalise_regions: Flag = True
    blocks: Annotated[int, Field(ge=0, strict=True)] = 4
    text: NamedTextTower = GRUSettings(hidden=2048)
    generation: Generation = Generation()
    words: int = 0

    def for_data(self, words: int, features: tuple[int, ...] | None) -> Self:
        """These settings for a vocabulary and, if the corpus brings stored regions, their shape."""
        return self.model_copy(update={"words": words, "image": self.image.for_data(features)})

    def build(self) -> VSRN:
        """A fresh matcher."""
        return VSRN(self)


class VSRN(Matcher):
    """See the module's description.

    A stage can name its parts `image`, `project`, `reason`, `gather`, `text` and, where there is a decoder,
    `captioner`.
    """

    def __init__(self, settings: VSRNSettings) -> None:
        super().__init__()
        self.settings: VSRNSettings = settings
        joint, generation = settings.joint, settings.generation
        self.image = settings.image.build()
        self.project = nn.Linear(self.image.size, joint)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        self.reason = nn.ModuleList(RegionGraph(joint) for _ in range(settings.blocks))
        self.gather = nn.GRU(joint, joint, batch_first=True)
        self.text = settings.text.build(settings.words)
        self.captioner = Captioner(generation, joint, settings.words) if generation.weight else None
        if self.text.size != joint:
            raise RecipeError(
                f"model.text makes vectors of size {self.text.size} and model.joint is {joint}: make them equal"
            )

    @property
    def image_input(self) -> ImageInput:
        """What the image tower reads."""
        return self.image.input

    @property
    def embedding_dim(self) -> int:
        """The size of the joint space."""
        return self.settings.joint

    @property
    def extra_terms(self) -> tuple[str, ...]:
        """The loss of the decoder, where there is one."""
        return ("generation",) if self.captioner is not None else ()

    @property
    def pretrained(self) -> Backbone | None:
        """The image tower's backbone, where it has one."""
        return self.image.pretrained

    def encode_images(self, images: Tensor) -> Tensor:
        """What the image tower reads to (images, joint)."""
        return self._gather(*self._reason(images))

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Tokens to (texts, joint)."""
        return normalize(self.text(tokens), dim=1)

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The inner product: (images, texts)."""
        return torch.mm(images, texts.t())

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The inner products of image k and text k: (pairs,)."""
        return (images * texts).sum(1)

    def encode_batch(self, images: Tensor, tokens: Tokens, image_of: Tensor) -> EncodedBatch:
        """Encode a batch to train on, and let the decoder caption each pair's image with the pair's text."""
        rows, layout = self._reason(images)
        terms = {}
        if self.captioner is not None:
            pairs = len(image_of)
            captions = Tokens(tokens.ids[:pairs], tokens.lengths[:pairs])
            captioned = layout.first(rows, int(image_of.max()) + 1)  # behind them stand those of negatives
            lost = self.captioner(*captioned, captions, image_of)
            terms["generation"] = self.settings.generation.weight * lost
        return EncodedBatch(self._gather(rows, layout), self.encode_texts(tokens), terms)

    def start_images(self) -> None:
        """Load the image tower's pretrained weights, where it has some."""
        self.image.start()

    def start_words(self, vectors: Tensor, found: Tensor) -> None:
        """Start the found words of the text tower from given vectors."""
        self.text.start_words(vectors, found)

    def _reason(self, images: Tensor) -> tuple[Tensor, Layout]:
        """The regions after reasoning, (rows, joint), each of length 1, and which image has which."""
        rows, layout = Layout.of(self.image(images))
        rows = self.project(rows)
        if self.settings.normalise_regions:
            rows = normalize(rows, dim=1)
        for block in self.reason:
            rows = block(rows, layout)
        return normalize(rows, dim=1), layout

    def _gather(self, rows: Tensor, layout: Layout) -> Tensor:
        """The GRU's state after each image's last region, of length 1: (images, joint)."""
        return normalize(layout.last(self.gather(layout.pad(rows))[0]), dim=1)
