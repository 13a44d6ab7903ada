"""Class names as language: a backbone's own classifier says what is in a photo, a sentence encoder what that means.

    p = softmax((W f + b) / t),  f the backbone's vector of the photo
    v(i) = sum of p_k e_k over the T most likely classes / sum of their p_k,  e_k the sentence vector of name k
    s(i, c) = cos(v(i) - m, g(c) - m),  g(c) the sentence vector of the text

Without `centre`, m is zero and this is ConSE. With it, m is the mean of all e_k: the vectors of short names have much
in common with each other and little with those of captions, and what all names share says nothing about a photo.

Reference: Norouzi et al. 2014, Zero-Shot Learning by Convex Combination of Semantic Embeddings (ConSE), section 3, with
T = 20 and t = 1 as there. The centre is Diptych's.
Needs: a backbone with a linear classifier and the names of its classes; a sentence encoder. No training and no data.
When to use it: to search photos without any captions, in every language of the encoder, as far as the classes go; as a
part of a `fused` model, to which it adds things that the captions never named.
Relation to others: `pair` has learnt images and texts together, from far more classes than any classifier has.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize, softmax
from typing_extensions import Self

from diptych.errors import RecipeError
from diptych.features.backbones.registry import load_classifier
from diptych.models.matchers.two_towers import TwoTowers, TwoTowerSettings
from diptych.models.tower import NamedImageTower, NamedTextTower, Tokens
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.text.sentence import SentenceSettings
from diptych.settings import Count, Flag, Number
from diptych.text.class_names import IMAGENET, ClassNames, parse_class_names, read_class_names
from diptych.text.tokenisers.prompt import Prompt
from diptych.text.tokenisers.tokeniser import Tokeniser

NAMES_AT_ONCE = 256


class ClassesSettings(TwoTowerSettings):
    """The towers, the names of the classes, and how their vectors are combined; the defaults are those of the paper.

    `names` is `"imagenet"`, a text file with one class per line, or a list; further names of a class follow after
    tabs, and with `synonyms` its vector is the mean over all of them. `prompt` is a sentence around each name, such as
    "a photo of {}". The `top` most likely classes are combined, or all, if there are fewer; `temperature` divides the
    logits.
    """

    name: Literal["classes"] = "classes"
    image: NamedImageTower = BackboneSettings(normalise=False)
    text: NamedTextTower = SentenceSettings(hidden=0)
    names: str | tuple[str, ...] = IMAGENET
    synonyms: Flag = False
    prompt: Prompt | None = None
    top: Count = 20
    temperature: Annotated[Number, Field(gt=0)] = 1.0
    centre: Flag = False

    def for_data(self, vocabulary_size: int, feature_shape: tuple[int, ...] | None) -> Self:
        """These settings for the tokeniser, with the names of a file, so that a run does not depend on it."""
        if feature_shape is not None:
            raise RecipeError("model: 'classes' reads photos through its backbone, and the data has features instead")
        names = self.names
        if isinstance(names, str) and names != IMAGENET:
            names = tuple("\t".join(each) for each in read_class_names(names))
        return super().for_data(vocabulary_size, None).model_copy(update={"names": names})

    def class_names(self) -> ClassNames:
        """The names of each class."""
        return read_class_names(self.names) if isinstance(self.names, str) else parse_class_names(self.names, "names")

    def build(self) -> Classes:
        """A matcher with random weights."""
        return Classes(self)


class Classes(TwoTowers):
    """See the module docstring. Its parts are `image`, `classifier` and `text`."""

    class_vectors: Tensor  # (classes, size), each of length one
    centre: Tensor  # (size,)

    def __init__(self, settings: ClassesSettings) -> None:
        _check_towers(settings)
        super().__init__(settings)
        self.settings: ClassesSettings = settings
        classes = len(settings.class_names())
        self.classifier = nn.Linear(self.image.size, classes)
        self.register_buffer("class_vectors", torch.zeros(classes, self.text.size))
        self.register_buffer("centre", torch.zeros(self.text.size))

    @property
    def embedding_dim(self) -> int:
        """The size of a sentence vector."""
        return self.text.size

    @property
    def needs_training(self) -> bool:
        """Never."""
        return False

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images: (images, size)."""
        probabilities = softmax(self.classifier(self.image(images)) / self.settings.temperature, dim=1)
        top = min(self.settings.top, probabilities.shape[1])
        likely, classes = probabilities.topk(top, dim=1)  # (images, top)
        shares = torch.zeros_like(probabilities).scatter(1, classes, likely / likely.sum(1, keepdim=True))
        return normalize(shares @ self.class_vectors - self.centre, dim=1)

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts: (texts, size)."""
        return normalize(normalize(self.text(tokens), dim=1) - self.centre, dim=1)

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The cosine: (images, texts)."""
        return torch.mm(images, texts.t())

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The same score for image k and text k: (pairs,)."""
        return (images * texts).sum(1)

    def load_pretrained(self) -> None:
        """Load the weights of both towers and of the backbone's classifier, which must have a name for each class."""
        super().load_pretrained()
        assert isinstance(self.settings.image, BackboneSettings)
        backbone = self.settings.image.backbone
        layer = load_classifier(backbone, self.image.pretrained_weights)
        if layer.weight.shape != self.classifier.weight.shape:
            raise RecipeError(
                f"model.names: {self.classifier.out_features:,} names, and the backbone {backbone!r} tells "
                f"{layer.out_features:,} classes apart; give a name for each"
            )
        self.classifier.load_state_dict(layer.state_dict())

    @torch.no_grad()
    def encode_own_texts(self, tokeniser: Tokeniser) -> None:
        """Set the vectors of the class names, and their mean."""
        names = [some if self.settings.synonyms else some[:1] for some in self.settings.class_names()]
        prompt = self.settings.prompt or "{}"
        table = tokeniser.encode_all([prompt.replace("{}", name) for some in names for name in some])
        device = self.class_vectors.device
        vectors = []
        for rows in torch.arange(len(table)).split(NAMES_AT_ONCE):
            ids, lengths = (torch.from_numpy(values).to(device) for values in table.batch(rows.numpy()))
            vectors.append(normalize(self.text(Tokens(ids, lengths)), dim=1))
        of_classes = torch.cat(vectors).split([len(some) for some in names])
        self.class_vectors.copy_(normalize(torch.stack([some.mean(0) for some in of_classes]), dim=1))
        if self.settings.centre:
            self.centre.copy_(self.class_vectors.mean(0))


def _check_towers(settings: ClassesSettings) -> None:
    """Refuse towers that do not give what a classifier and names are compared by."""
    image, text = settings.image, settings.text
    if not isinstance(image, BackboneSettings):
        raise RecipeError(f"model.image: 'classes' reads the vector of a 'backbone', not {image.name!r}")
    if image.normalise:
        raise RecipeError("model.image.normalise: a classifier reads the backbone's vector as it is; set it to false")
    if not isinstance(text, SentenceSettings) or text.hidden:
        raise RecipeError("model.text: 'classes' compares with a sentence encoder's own vectors; set hidden = 0")
