"""VSRN: an image's regions reason about each other, a GRU gathers them into one vector, and a decoder captions them.

    v_i = normalise(W_f f_i + b_f),   v* = blocks of region reasoning,   f(i) = normalise(GRU(normalise(v*)))
    g(c) = normalise(GRU(words)),   s(i, c) = f(i) . g(c)

Reference: Li et al., Visual Semantic Reasoning for Image-Text Matching (VSRN), ICCV 2019.
Needs: images as regions; texts as tokens.
When to use it: as a stronger image side than a mean of regions, with embeddings that can be indexed like any other; a
host model and the teacher of AOQ.
Relation to others: without reasoning blocks and decoder it is VSE with a GRU over regions. As in the authors' public
code, the maps of a block have biases and a batch norm that starts at zero, and the decoder's loss
(`generation.weight`) is a sum over words and a mean over captions, beside a ranking loss that is a sum over pairs.
Unlike there, vectors are normalised region by region (there, component by component across regions), missing regions
never count, and captions are computed to their own length. A GRU that begins as torch's sees little but the last two or
three regions, in a grid the lower right corner, until it has learned to remember: with `memory`, it begins with a state
that holds all of them (`layers.gru_memory`), and learns faster. `normalise_regions = false` omits the first
normalisation, as that code does for Flickr30K; its extra batch norm of f(i) for that data is omitted here.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout
from typing_extensions import Self

from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.layers.captioner import Captioner, Generation
from diptych.models.layers.gru_memory import remember
from diptych.models.layers.precision import normalize
from diptych.models.layers.region_reasoning import Layout, RegionGraph
from diptych.models.matcher import EncodedBatch, Matcher, ModelSettings
from diptych.models.tower import NamedRegionTower, NamedTextTower, Tokens
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.settings import Count, Dropout, Flag


class VSRNSettings(ModelSettings):
    """Sizes and options; the defaults are the paper's sizes.

    `dropout` applies to the region tower's vectors in training; the paper has none. `memory` is the number of regions
    that the GRU over regions remembers when training begins; by default it begins as torch's, which forgets half of
    its state with each region.
    """

    name: Literal["vsrn"] = "vsrn"
    joint: Count = 2048
    dropout: Dropout = 0.0
    image: NamedRegionTower = RegionFeatureSettings()
    normalise_regions: Flag = True
    memory: Annotated[int, Field(ge=2, strict=True)] | None = None
    blocks: Annotated[int, Field(ge=0, strict=True)] = 4
    text: NamedTextTower = GRUSettings(hidden=2048)
    generation: Generation = Generation()
    words: int = 0

    def for_data(self, vocabulary_size: int, feature_shape: tuple[int, ...] | None) -> Self:
        """These settings with the vocabulary's size and the shape of stored regions, if any."""
        towers = {"image": self.image.for_data(feature_shape), "text": self.text.completed()}
        return self.model_copy(update={"words": vocabulary_size, **towers})

    def build(self) -> VSRN:
        """A matcher with random weights."""
        return VSRN(self)


class VSRN(Matcher):
    """See the module docstring.

    Its parts are `image`, `project`, `reason`, `gather`, `text` and, with a decoder, `captioner`.
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
        if settings.memory is not None:
            remember(self.gather, settings.memory)
        self.text = settings.text.build(settings.words)
        self.captioner = Captioner(generation, joint, settings.words) if generation.weight else None
        if self.text.size != joint:
            raise RecipeError(
                f"the text tower's vectors have size {self.text.size} and model.joint is {joint}: make them equal"
            )

    @property
    def image_input(self) -> ImageInput:
        """The image tower's input."""
        return self.image.input

    @property
    def embedding_dim(self) -> int:
        """The size of the joint space."""
        return self.settings.joint

    @property
    def extra_terms(self) -> tuple[str, ...]:
        """The decoder's loss, if there is a decoder."""
        return ("generation",) if self.captioner is not None else ()

    @property
    def pretrained(self) -> Backbone | None:
        """The image tower's backbone, if any."""
        return self.image.pretrained

    @property
    def offers_unnormalised(self) -> bool:
        """Always: they are the states of the two GRUs."""
        return True

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images: (images, joint)."""
        return normalize(self.unnormalised_images(images), dim=1)

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts: (texts, joint)."""
        return normalize(self.unnormalised_texts(tokens), dim=1)

    def unnormalised_images(self, images: Tensor) -> Tensor:
        """The state after each image's last region: (images, joint)."""
        return self._gather(*self._reason(images))

    def unnormalised_texts(self, tokens: Tokens) -> Tensor:
        """The state after each text's last word: (texts, joint)."""
        states: Tensor = self.text(tokens)
        return states

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The inner product: (images, texts)."""
        return torch.mm(images, texts.t())

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The inner product of image k and text k: (pairs,)."""
        return (images * texts).sum(1)

    def encode_batch(self, images: Tensor, tokens: Tokens, image_of: Tensor) -> EncodedBatch:
        """Encode a training batch, and compute the decoder's loss of each pair's text for its image."""
        rows, layout = self._reason(images)
        terms = {}
        if self.captioner is not None:
            pairs = len(image_of)
            captions = Tokens(tokens.ids[:pairs], tokens.lengths[:pairs])
            captioned = layout.first(rows, int(image_of.max()) + 1)  # the images after them belong to negatives
            lost = self.captioner(*captioned, captions, image_of)
            terms["generation"] = self.settings.generation.weight * lost
        states = self._gather(rows, layout), self.unnormalised_texts(tokens)
        return EncodedBatch(normalize(states[0], dim=1), normalize(states[1], dim=1), terms, unnormalised=states)

    def load_pretrained(self) -> None:
        """Load the towers' pretrained weights, if any."""
        self.image.load_pretrained()
        self.text.load_pretrained()

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words of the text tower with these vectors."""
        self.text.load_word_vectors(vectors, found)

    def _reason(self, images: Tensor) -> tuple[Tensor, Layout]:
        """The regions after reasoning as unit vectors, (rows, joint), and their layout."""
        rows, layout = Layout.from_regions(self.image(images))
        rows = self.project(dropout(rows, self.settings.dropout, self.training))
        if self.settings.normalise_regions:
            rows = normalize(rows, dim=1)
        for block in self.reason:
            rows = block(rows, layout)
        return normalize(rows, dim=1), layout

    def _gather(self, rows: Tensor, layout: Layout) -> Tensor:
        """The GRU's state after each image's last region: (images, joint)."""
        return layout.last(self.gather(layout.pad(rows))[0])
