"""Encodings of a corpus, in memory and as a file that says which model and which corpus they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from diptych import registry
from diptych.data.corpus import Corpus, Integers
from diptych.errors import RecipeError, RunError
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.storage import load_tensors, save_tensors


@dataclass(frozen=True, eq=False)
class EncodedCorpus:
    """Row i of `images` belongs to image i, row j of `texts` to text j; the groups say which belong together.

    Images that could not be read are not in it, nor are texts left without an image: `skipped` says why, by image.
    `corpus` is what was encoded; encodings read from a file have none.
    """

    settings: ModelSettings
    images: Tensor
    texts: Tensor
    image_groups: Integers
    text_groups: Integers
    digest: str
    corpus: Corpus | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    encoded_by: Matcher | None = None

    @classmethod
    def from_matcher(
        cls, matcher: Matcher, corpus: Corpus, images: Tensor, texts: Tensor, skipped: dict[str, str]
    ) -> EncodedCorpus:
        """The encodings that a matcher made of a corpus."""
        groups = corpus.image_groups, corpus.text_groups
        return cls(matcher.settings, images, texts, *groups, corpus.digest(), corpus, skipped, matcher)

    def matcher(self) -> Matcher:
        """A matcher that can score these encodings: the one that made them, or one of its settings without weights."""
        if self.encoded_by is not None:
            return self.encoded_by
        with torch.device("meta"):
            return self.settings.build()

    def save(self, path: Path) -> None:
        """Write the encodings, whole or not at all."""
        tensors = {
            "images": self.images,
            "texts": self.texts,
            "image_groups": torch.from_numpy(self.image_groups),
            "text_groups": torch.from_numpy(self.text_groups),
        }
        save_tensors(path, tensors, {"model": self.settings.model_dump(mode="json"), "corpus": self.digest})

    @classmethod
    def load(cls, path: Path) -> EncodedCorpus:
        """Read such a file; anything else is refused."""
        tensors, about = load_tensors(path)
        names = ("images", "texts", "image_groups", "text_groups")
        if any(name not in tensors for name in names):
            raise RunError(f"{path}: not a file of encodings; make one with `diptych encode RUN DATA --into FILE`")
        images, texts, image_groups, text_groups = (tensors[name] for name in names)
        if len(images) != len(image_groups) or len(texts) != len(text_groups):
            raise RunError(f"{path}: encodings and groups differ in number; make it again with `diptych encode`")
        try:
            settings = registry.resolve("models.matchers", about.get("model"), "model", ModelSettings)
        except RecipeError as reason:
            raise RunError(f"{path}: {reason}") from None
        return cls(settings, images, texts, image_groups.numpy(), text_groups.numpy(), str(about.get("corpus")))
