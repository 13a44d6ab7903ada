"""What matchers of sets share: regions and words in one joint space, and attention between them as the score."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import normalize
from typing_extensions import Self

from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.layers.attention import Attention, Direction
from diptych.models.layers.sets import present
from diptych.models.layers.word_states import WordSettings, WordStates
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.tower import NamedRegionTower, Tokens
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.settings import Count


class SetSettings(ModelSettings):
    """What matchers of sets share: the joint size, the image's regions and the words of a text."""

    joint: Count = 1024
    image: NamedRegionTower = RegionFeatureSettings()
    text: WordSettings = WordSettings()
    words: int = 0

    def for_data(self, words: int, features: tuple[int, ...] | None) -> Self:
        """These settings for a vocabulary and, if the corpus brings stored regions, their shape."""
        return self.model_copy(update={"words": words, "image": self.image.for_data(features)})


class SetMatcher(Matcher):
    """Regions and words as vectors of length one in the joint space, scored by a rule of attention.

    `directions` says who attends: words to regions, regions to words, or both, whose scores are then added. A stage can
    name the parts `image`, `project` and `text`.
    """

    def __init__(self, settings: SetSettings, rule: Attention, *directions: Direction) -> None:
        super().__init__()
        self.rule, self.directions = rule, directions
        self.image = settings.image.build()
        self.project = nn.Linear(self.image.size, settings.joint)
        self.text = WordStates(settings.words, settings.text.word, settings.joint)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)

    @property
    def is_inner_product(self) -> bool:
        """Sets are scored against sets."""
        return False

    @property
    def attention_direction(self) -> Direction:
        """Words attend to regions, unless only regions attend."""
        return "t2i" if "t2i" in self.directions else "i2t"

    @property
    def image_input(self) -> ImageInput:
        """What the image tower reads."""
        return self.image.input

    @property
    def pretrained(self) -> Backbone | None:
        """The image tower's backbone, where it has one."""
        return self.image.pretrained

    def encode_images(self, images: Tensor) -> Tensor:
        """What the image tower reads to (images, regions, joint), zeros for regions that an image does not have."""
        regions: Tensor = self.image(images)
        joint = normalize(self.project(regions), dim=2)
        return joint * present(regions)[:, :, None]  # the bias would make a vector of no region

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Tokens to (texts, words, joint), zeros beyond a text."""
        words: Tensor = self.text(tokens)
        return words

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The pooled cosines of those who attend: (images, texts)."""
        return self.rule.score(images, texts, *self.directions)

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The same of image k and text k: (pairs,)."""
        return self.rule.score_pairs(images, texts, *self.directions)

    def attention(self, image: Tensor, text: Tensor) -> Tensor:
        """How much of one encoded image's regions the words of one encoded text attend to: (words, regions).

        Where only regions attend, how much each of them attends to the word.
        """
        if self.attention_direction == "t2i":
            return self.rule.weights(image, text, "t2i")
        return self.rule.weights(image, text, "i2t").t()

    def start_images(self) -> None:
        """Load the image tower's pretrained weights, where it has some."""
        self.image.start()

    def start_words(self, vectors: Tensor, found: Tensor) -> None:
        """Start the found words from given vectors."""
        self.text.start_words(vectors, found)
