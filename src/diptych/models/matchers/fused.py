"""Several embedding models as one: their embeddings side by side, so that the score is the weighted sum of theirs.

    f(i) = [sqrt(w_1) f_1(i), ..., sqrt(w_n) f_n(i)],  g(c) likewise,  s(i, c) = f(i) . g(c) = sum_k w_k s_k(i, c)
    w_k = (a_k / d_k) / sum_l (a_l / d_l)

a_k is the share of part k, and d_k the spread of its scores, such as their standard deviation on val. One model's
scores may spread ten times as far as another's: divided by their spreads, equal shares are equal influence.

Needs: embedding models whose score is an inner product, with the same image input, backbone and tokeniser.
When to use it: models that know different things, such as one trained on captions and `classes`. `diptych fuse` chooses
the shares on val.
Relation to others: `diptych evaluate RUN RUN` averages the scores of any models, which is not a model to index or
export. Here the backbone runs once for all parts, and everything that takes a model takes this one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator
from pydantic_core import PydanticCustomError
from torch import Tensor, nn
from typing_extensions import Self

from diptych import registry
from diptych.errors import RecipeError
from diptych.features.backbone import Backbone, weights_digest
from diptych.features.crops import Crops
from diptych.features.image_input import ImageInput
from diptych.models.matcher import Matcher, ModelSettings, TextShifts
from diptych.models.tower import FittedTextTower, ImageTower, TextTower, Tokens
from diptych.settings import Flag, Number
from diptych.text.tokenisers.tokeniser import Tokeniser


def _named_parts(values: Any) -> Any:
    if not isinstance(values, list | tuple):
        return values
    return [
        value
        if isinstance(value, ModelSettings)
        else registry.resolve("models.matchers", value, f"model.parts.{number}", ModelSettings)
        for number, value in enumerate(values, 1)
    ]


class FusedSettings(ModelSettings):
    """The settings of the parts, the share of each, which sum to one, and the spread of each one's scores.

    Without `spreads`, the shares weight the scores as they are. With `one_encoder`, all parts begin with the same
    frozen text encoder, which then runs once.
    """

    name: Literal["fused"] = "fused"
    parts: Annotated[tuple[SerializeAsAny[ModelSettings], ...], BeforeValidator(_named_parts), Field(min_length=2)]
    shares: tuple[Annotated[Number, Field(ge=0, le=1)], ...]
    spreads: tuple[Annotated[Number, Field(gt=0)], ...] = ()
    one_encoder: Flag = False

    @model_validator(mode="after")
    def _one_share_per_part(self) -> Self:
        for name, values in (("shares", self.shares), ("spreads", self.spreads or self.shares)):
            if len(values) != len(self.parts):
                raise PydanticCustomError("number", f"{len(values)} {name} of {len(self.parts)} parts; give one each")
        if not math.isclose(sum(self.shares), 1, abs_tol=1e-6):
            raise PydanticCustomError("sum", f"the shares sum to {sum(self.shares):g}; they must sum to 1")
        return self

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights of the parts' scores, w_k; they sum to one."""
        return score_weights(self.shares, self.spreads or [1.0] * len(self.shares))

    def tokeniser(self) -> Tokeniser | None:
        """The tokeniser of the parts, which must be the same."""
        tokenisers = [part.tokeniser() for part in self.parts]
        if len({None if one is None else one.digest for one in tokenisers}) > 1:
            raise RecipeError("fused: the parts have different tokenisers; all must have the same")
        return tokenisers[0]

    def for_data(self, vocabulary_size: int, feature_shape: tuple[int, ...] | None) -> Self:
        """These settings with every part completed by the data."""
        return self.model_copy(
            update={"parts": tuple(part.for_data(vocabulary_size, feature_shape) for part in self.parts)}
        )

    def build(self) -> Fused:
        """A matcher with random weights."""
        return Fused([part.build() for part in self.parts], self.shares, self.spreads, one_encoder=self.one_encoder)


class Fused(Matcher):
    """See the module docstring. Its parts are `parts.0`, `parts.1` and so on; what they share is in the first."""

    def __init__(
        self,
        parts: Sequence[Matcher],
        shares: Sequence[float],
        spreads: Sequence[float] = (),
        *,
        one_encoder: bool = False,
    ) -> None:
        """Join matchers, whose weights stay as they are: all read the first one's backbone and, if so, text encoder."""
        super().__init__()
        self.settings: FusedSettings = FusedSettings(
            parts=tuple(part.settings for part in parts),
            shares=tuple(shares),
            spreads=tuple(spreads),
            one_encoder=one_encoder,
        )
        for part in parts[1:]:
            if reason := misfit(parts[0], part):
                raise RecipeError(f"fused: {reason}")
        self.parts = nn.ModuleList(parts)
        for part in parts[1:]:
            if parts[0].pretrained is not None:
                _share(part, part.pretrained, parts[0].pretrained)
            if one_encoder:
                _share(part, _text_encoder(part), _text_encoder(parts[0]))

    @property
    def _parts(self) -> list[Matcher]:
        return [part for part in self.parts if isinstance(part, Matcher)]

    @property
    def _first(self) -> Matcher:
        return self._parts[0]

    @property
    def embedding_dim(self) -> int:
        """The sum of the parts'."""
        return sum(part.embedding_dim or 0 for part in self._parts)

    @property
    def image_input(self) -> ImageInput:
        """That of every part."""
        return self._first.image_input

    @property
    def pretrained(self) -> Backbone | None:
        """The backbone that the parts share, if any."""
        return self._first.pretrained

    @property
    def fitted_text_tower(self) -> FittedTextTower | None:
        """That of a part, unless several have one: the output of one must not be taken for that of another."""
        fitted = [tower for part in self._parts if (tower := part.fitted_text_tower) is not None]
        return fitted[0] if len(fitted) == 1 else None

    @property
    def cached_text_tower(self) -> TextTower | None:
        """That of the first part if all parts begin with its encoder."""
        return self._first.cached_text_tower if self.settings.one_encoder else super().cached_text_tower

    @property
    def reads_views(self) -> bool:
        """If every part does."""
        return all(part.reads_views for part in self._parts)

    @property
    def needs_training(self) -> bool:
        """If a part does."""
        return any(part.needs_training for part in self._parts)

    @property
    def shifts_texts(self) -> bool:
        """If a part does."""
        return any(part.shifts_texts for part in self._parts)

    def set_text_shifts(self, shifts: TextShifts) -> None:
        """Choose how the parts that shift texts encode them from now on."""
        for part in self._parts:
            if part.shifts_texts:
                part.set_text_shifts(shifts)

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images: (images, the sum of the parts' sizes)."""
        read = images if images.is_floating_point() else self._backbone_features(images)
        return self._joined(lambda part: part.encode_images(read))

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts: (texts, the sum of the parts' sizes)."""
        tower = self.cached_text_tower
        if self.settings.one_encoder and tower is not None and tokens.features is None:
            tokens = Tokens(tokens.ids, tokens.lengths, tower.features(tokens))
        return self._joined(lambda part: part.encode_texts(tokens))

    def _backbone_features(self, images: Tensor) -> Tensor:
        """The output of the backbone, which runs once: all parts read it as well."""
        tower = next((module for module in self._first.modules() if isinstance(module, ImageTower)), None)
        return images if tower is None else tower.backbone_features(images)

    def _joined(self, encode: Callable[[Matcher], Tensor]) -> Tensor:
        weighted = zip(self._parts, self.settings.weights, strict=True)
        return torch.cat([math.sqrt(weight) * encode(part) for part, weight in weighted], 1)

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The weighted sum of the parts' scores: (images, texts)."""
        return torch.mm(images, texts.t())

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The same score for image k and text k: (pairs,)."""
        return (images * texts).sum(1)

    def load_pretrained(self) -> None:
        """Load the pretrained weights of all parts."""
        for part in self._parts:
            part.load_pretrained()

    def encode_own_texts(self, tokeniser: Tokeniser) -> None:
        """Encode those of all parts."""
        for part in self._parts:
            part.encode_own_texts(tokeniser)

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words of all parts with these vectors."""
        for part in self._parts:
            part.load_word_vectors(vectors, found)


def score_weights(shares: Sequence[float], spreads: Sequence[float]) -> tuple[float, ...]:
    """The weights of scores that have these shares and spreads; they sum to one.

    >>> score_weights([0.5, 0.5], [0.1, 0.3])
    (0.75, 0.25)
    """
    scaled = [share / spread for share, spread in zip(shares, spreads, strict=True)]
    return tuple(value / sum(scaled) for value in scaled)


def misfit(first: Matcher, other: Matcher) -> str | None:
    """Why two matchers cannot be parts of one model, in one sentence; None if they can."""
    names = [f"{part.settings.name!r}" for part in (first, other)]
    for part, name in zip((first, other), names, strict=True):
        if part.embedding_dim is None or not part.is_inner_product:
            return f"the score of {name} is not an inner product; leave it out"
    inputs = _describe(first.image_input), _describe(other.image_input)
    if inputs[0] != inputs[1]:
        return f"{names[0]} reads {inputs[0]}, {names[1]} {inputs[1]}; all parts must read the same"
    backbones = _backbone(first), _backbone(other)
    if backbones[0] != backbones[1]:
        return f"{names[0]} has {backbones[0]}, {names[1]} {backbones[1]}; all parts must have the same"
    return None


def _describe(image_input: ImageInput) -> str:
    """What a matcher reads of an image, equal only if it is the same."""
    shape = " x ".join(map(str, image_input.shape))
    crops, regions = image_input.crops, image_input.regions
    by_crops = "" if crops is None else f", {crops.name!r} after resizing by {crops.resize!r}{_decoding(crops)}"
    by_regions = "" if regions is None else f", regions {regions.model_dump(mode='json', exclude_none=True)}"
    return f"{image_input.kind} of {shape}{by_crops}{by_regions}"


def _decoding(crops: Crops) -> str:
    """What crops of a pretrained pair differ in from those of other models."""
    values = crops.model_dump(exclude_defaults=True, include={"interpolation", "full_size", "rounding", "patches"})
    return "".join(f", {key} = {value}" for key, value in values.items())


def _backbone(matcher: Matcher) -> str:
    backbone, weights = matcher.pretrained, matcher.pretrained_weights
    if backbone is None:
        return "no backbone"
    return f"the backbone {backbone.name!r}" + ("" if weights is None else f" with the weights {weights}")


def have_one_encoder(parts: Sequence[Matcher]) -> bool:
    """Whether all parts begin with the same text encoder, with equal weights, whose output may be computed once."""
    towers = [part.cached_text_tower for part in parts]
    return len({_encoder_identity(tower) for tower in towers}) == 1 and towers[0] is not None


def _encoder_identity(tower: TextTower | None) -> tuple[str, ...]:
    if tower is None:
        return ()
    encoder = tower.feature_part
    return type(encoder).__qualname__, json.dumps(tower.feature_options, sort_keys=True), weights_digest(encoder)


def _text_encoder(part: Matcher) -> nn.Module:
    tower = part.cached_text_tower
    if tower is None:
        raise RecipeError(f"fused: one_encoder needs a text encoder in each part, and {part.settings.name!r} has none")
    return tower.feature_part


def _share(part: Matcher, own: nn.Module | None, shared: nn.Module) -> None:
    """Let a part refer to a module that it does not own: it is neither in its weights nor among its parameters."""
    owners = [(module, name) for module in part.modules() for name, child in module.named_children() if child is own]
    for module, name in owners:
        delattr(module, name)
        object.__setattr__(module, name, shared)  # which does not register it as a module
