"""The encodings of a corpus, in memory or as a file that names the model and the corpus they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from diptych.data.corpus import Corpus, Integers
from diptych.errors import RunError
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.storage import load_tensors, model_settings, save_tensors


@dataclass(frozen=True, eq=False)
class EncodedCorpus:
    """Row i of `images` belongs to image i, row j of `texts` to text j; equal groups belong together.

    Unreadable images are left out, and so are texts without any image left: `skipped` has the reason by image id.
    `corpus` is what was encoded, None for encodings from a file.
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
        """The encodings of a corpus by a matcher."""
        groups = corpus.image_groups, corpus.text_groups
        return cls(matcher.settings, images, texts, *groups, corpus.digest(), corpus, skipped, matcher)

    def matcher(self) -> Matcher:
        """A matcher that can score these encodings: the one that encoded them, or one without weights."""
        if self.encoded_by is not None:
            return self.encoded_by
        with torch.device("meta"):
            return self.settings.build()

    def save(self, path: Path) -> None:
        """Write the encodings, completely or not at all."""
        tensors = {
            "images": self.images,
            "texts": self.texts,
            "image_groups": torch.from_numpy(self.image_groups),
            "text_groups": torch.from_numpy(self.text_groups),
        }
        save_tensors(path, tensors, {"model": self.settings.model_dump(mode="json"), "corpus": self.digest})

    @classmethod
    def load(cls, path: Path) -> EncodedCorpus:
        """Read a file that `save` wrote; anything else is an error."""
        tensors, about = load_tensors(path)
        names = ("images", "texts", "image_groups", "text_groups")
        if any(name not in tensors for name in names):
            raise RunError(f"{path}: not a file of encodings; make one with `diptych encode RUN DATA --into FILE`")
        images, texts, image_groups, text_groups = (tensors[name] for name in names)
        if len(images) != len(image_groups) or len(texts) != len(text_groups):
            raise RunError(f"{path}: encodings and groups differ in number; make it again with `diptych encode`")
        settings, corpus = model_settings(path, about), str(about.get("corpus"))
        return cls(settings, images, texts, image_groups.numpy(), text_groups.numpy(), corpus)
