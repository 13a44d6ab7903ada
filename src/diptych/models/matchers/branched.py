"""What the embedding network and the similarity network share: two towers with a branch after each."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from diptych.errors import RecipeError
from diptych.models.layers.branch import Branch
from diptych.models.layers.standardise import Standardised
from diptych.models.matchers.two_towers import TwoTowers, TwoTowerSettings
from diptych.models.tower import Tokens
from diptych.settings import Count, Flag, Number

Layers = Annotated[tuple[Count, ...], Field(min_length=1)]


class BranchSettings(TwoTowerSettings):
    """Towers and the sizes of the layers after them; the defaults are those of the paper's section 5.

    The last of `image_layers` and of `text_layers` is the size of the joint space. `dropout` follows each ReLU,
    `batch_norm` the last layer. `standardise` centres and scales each entry of what a branch reads, by its mean and
    standard deviation over the training set. They are measured before training, so the towers should not be trained.
    """

    image_layers: Layers = (2048, 512)
    text_layers: Layers = (2048, 512)
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.5
    batch_norm: Flag = True
    standardise: Flag = False


class Branched(TwoTowers):
    """Two towers with a branch after each; its parts are `image`, `image_branch`, `text` and `text_branch`."""

    def __init__(self, settings: BranchSettings) -> None:
        super().__init__(settings)
        if settings.image_layers[-1] != settings.text_layers[-1]:
            raise RecipeError(
                f"model.image_layers ends in {settings.image_layers[-1]} and model.text_layers in "
                f"{settings.text_layers[-1]}: both must end in the size of the joint space"
            )
        options = settings.dropout, settings.batch_norm, settings.standardise
        self.image_branch = Branch(self.image.size, settings.image_layers, *options)
        self.text_branch = Branch(self.text.size, settings.text_layers, *options)

    @property
    def standardised_images(self) -> Standardised | None:
        """What the branch of the images standardises, or else the image tower."""
        layer = self.image_branch.standardise
        return super().standardised_images if layer is None else Standardised(layer, self.image)

    @property
    def standardised_texts(self) -> Standardised | None:
        """What the branch of the texts standardises."""
        layer = self.text_branch.standardise
        return None if layer is None else Standardised(layer, self.text)

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images: (images, joint), or (images, regions, joint) with zeros for missing regions."""
        joint: Tensor = self.image_branch(self.image(images))
        return joint

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts: (texts, joint)."""
        joint: Tensor = self.text_branch(self.text(tokens))
        return joint
