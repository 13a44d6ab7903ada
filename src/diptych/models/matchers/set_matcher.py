"""The base of SCAN and BFAN: regions and words in one joint space, scored by attention between them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import dropout
from typing_extensions import Self

from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.layers.attention import Attention, Direction
from diptych.models.layers.precision import normalize
from diptych.models.layers.sets import present
from diptych.models.layers.word_states import WordSettings, WordStates
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.tower import NamedRegionTower, Tokens
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.settings import Count, Dropout


class SetSettings(ModelSettings):
    """The size of the joint space, the region tower and the word states.

    `dropout` applies to the region tower's vectors in training; the papers have none.
    """

    joint: Count = 1024
    dropout: Dropout = 0.0
    image: NamedRegionTower = RegionFeatureSettings()
    text: WordSettings = WordSettings()
    words: int = 0

    def for_data(self, vocabulary_size: int, feature_shape: tuple[int, ...] | None) -> Self:
        """These settings with the vocabulary's size and the shape of stored regions, if any."""
        return self.model_copy(update={"words": vocabulary_size, "image": self.image.for_data(feature_shape)})


class SetMatcher(Matcher):
    """Regions and words as unit vectors in the joint space, scored by attention.

    `directions` says who attends: words to regions, regions to words, or both, whose scores are then added. Its parts
    are `image`, `project` and `text`.
    """

    def __init__(self, settings: SetSettings, rule: Attention, *directions: Direction) -> None:
        super().__init__()
        self.rule, self.directions = rule, directions
        self.dropout = settings.dropout
        self.image = settings.image.build()
        self.project = nn.Linear(self.image.size, settings.joint)
        self.text = WordStates(settings.words, settings.text.word, settings.joint, settings.text.dropout)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)

    @property
    def is_inner_product(self) -> bool:
        """Never: sets are scored against sets."""
        return False

    @property
    def attention_direction(self) -> Direction:
        """Words attend to regions, unless only regions attend."""
        return "t2i" if "t2i" in self.directions else "i2t"

    @property
    def image_input(self) -> ImageInput:
        """The image tower's input."""
        return self.image.input

    @property
    def pretrained(self) -> Backbone | None:
        """The image tower's backbone, if any."""
        return self.image.pretrained

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images: (images, regions, joint), with zeros for missing regions."""
        regions: Tensor = self.image(images)
        joint = normalize(self.project(dropout(regions, self.dropout, self.training)), dim=2)
        return joint * present(regions)[:, :, None]  # the bias would turn a missing region into a vector

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts: (texts, words, joint), with zeros after the last word."""
        words: Tensor = self.text(tokens)
        return words

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The pooled cosines of the attending side: (images, texts)."""
        return self.rule.score(images, texts, *self.directions)

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The same score for image k and text k: (pairs,)."""
        return self.rule.score_pairs(images, texts, *self.directions)

    def attention(self, image: Tensor, text: Tensor) -> Tensor:
        """How much each word of an encoded text attends to each region of an encoded image: (words, regions).

        If only regions attend, how much each region attends to each word.
        """
        if self.attention_direction == "t2i":
            return self.rule.weights(image, text, "t2i")
        return self.rule.weights(image, text, "i2t").t()

    def load_pretrained(self) -> None:
        """Load the image tower's pretrained weights, if any."""
        self.image.load_pretrained()

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words with these vectors."""
        self.text.load_word_vectors(vectors, found)
