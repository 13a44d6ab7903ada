"""The encodings of a corpus, in memory or as a file that names the model and the corpus they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

import torch
from torch import Tensor
from typing_extensions import TypeVar

from diptych.data.corpus import Corpus, Integers
from diptych.errors import RunError
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.spread_rows import SpreadRows
from diptych.models.storage import load_tensors, model_settings, save_tensors
from diptych.ranks import Ranks

RowsT = TypeVar("RowsT", bound=Tensor | SpreadRows, default=Tensor)


@dataclass(frozen=True, eq=False)
class EncodedCorpus(Generic[RowsT]):
    """Row i of `images` belongs to image i, row j of `texts` to text j; equal groups belong together.

    Unreadable images are left out, and so are texts without any image left: `skipped` has the reason by image id.
    `corpus` is what was encoded, None for encodings from a file. `EncodedCorpus[SpreadRows]` has encodings that are
    spread over ranks, and everything else on all of them.
    """

    settings: ModelSettings
    images: RowsT
    texts: RowsT
    image_groups: Integers
    text_groups: Integers
    digest: str
    corpus: Corpus | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    encoded_by: Matcher | None = None

    @classmethod
    def from_matcher(
        cls, matcher: Matcher, corpus: Corpus, images: RowsT, texts: RowsT, skipped: dict[str, str]
    ) -> EncodedCorpus[RowsT]:
        """The encodings of a corpus by a matcher."""
        groups = corpus.image_groups, corpus.text_groups
        return cls(matcher.settings, images, texts, *groups, corpus.digest(), corpus, skipped, matcher)

    def matcher(self) -> Matcher:
        """A matcher that can score these encodings: the one that encoded them, or one without weights."""
        if self.encoded_by is not None:
            return self.encoded_by
        with torch.device("meta"):
            return self.settings.build()

    def on_first(self: EncodedCorpus[SpreadRows]) -> EncodedCorpus:
        """The encodings of all ranks on the first one, and none on the others."""
        images, texts = self.images.on_first(), self.texts.on_first()
        groups = self.image_groups, self.text_groups
        return EncodedCorpus(
            self.settings, images, texts, *groups, self.digest, self.corpus, self.skipped, self.encoded_by
        )

    def spread(self: EncodedCorpus[Tensor], ranks: Ranks) -> EncodedCorpus[SpreadRows]:
        """Encodings that each rank has loaded, spread over the ranks."""
        images, texts = (SpreadRows(rows[ranks.share(len(rows))].clone(), ranks) for rows in (self.images, self.texts))
        groups = self.image_groups, self.text_groups
        return EncodedCorpus(
            self.settings, images, texts, *groups, self.digest, self.corpus, self.skipped, self.encoded_by
        )

    def save(self: EncodedCorpus[Tensor], path: Path) -> None:
        """Write the encodings, completely or not at all."""
        tensors = {
            "images": self.images,
            "texts": self.texts,
            "image_groups": torch.from_numpy(self.image_groups),
            "text_groups": torch.from_numpy(self.text_groups),
        }
        save_tensors(path, tensors, {"model": self.settings.model_dump(mode="json"), "corpus": self.digest})

    @staticmethod
    def load(path: Path) -> EncodedCorpus:
        """Read a file that `save` wrote; anything else is an error."""
        tensors, about = load_tensors(path)
        names = ("images", "texts", "image_groups", "text_groups")
        if any(name not in tensors for name in names):
            raise RunError(f"{path}: not a file of encodings; make one with `diptych encode RUN DATA --into FILE`")
        images, texts, image_groups, text_groups = (tensors[name] for name in names)
        if len(images) != len(image_groups) or len(texts) != len(text_groups):
            raise RunError(f"{path}: encodings and groups differ in number; make it again with `diptych encode`")
        settings, corpus = model_settings(path, about), str(about.get("corpus"))
        return EncodedCorpus(settings, images, texts, image_groups.numpy(), text_groups.numpy(), corpus)
