"""The texts of a stage: token ids, the features of a frozen text encoder, and fits of text towers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.errors import DataError, RunError
from diptych.model import Model
from diptych.models.layers.standardise import Standardised, Statistics
from diptych.models.storage import load_tensors, save_tensors
from diptych.models.text_inputs import TextInputs
from diptych.models.tower import FittedTextTower, TextTowerSettings, Tokens
from diptych.progress import ProgressCallback
from diptych.text.features.bags import DistinctTexts
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.tokenisers.tokeniser import known_texts as tokeniser_knows
from diptych.text.word_vectors import WordVectors
from diptych.training.inputs.text_features import TextFeatures, text_features

TEXTS_AT_ONCE = 4096  # large batches, because each distinct word is computed once per batch
MEASURED_AT_ONCE = 1024  # texts whose vectors are measured in one batch
FIT_VERSION = 1  # increase it when fitting changes, so that no older fit is reused


def fit_texts(
    tower: FittedTextTower,
    settings: TextTowerSettings,
    texts: TokenTable,
    vectors: WordVectors | None,
    tokeniser_digest: str,
    stores: Path,
    *,
    progress: ProgressCallback | None = None,
) -> bool:
    """Fit a tower to the training texts, or load the same fit from the folder of stores; returns whether it was fitted.

    A fit is identified by the tower's settings, the texts, the tokeniser and the word vectors.
    """
    digest = _digest(settings, texts, vectors, tokeniser_digest)
    path = stores / "texts" / f"{settings.name}-{digest[:16]}.safetensors"
    if path.exists():
        _load(tower, path, digest)
        return False
    tower.fit(texts, vectors, progress)
    save_tensors(path, tower.state_dict(), {"tower": settings.model_dump(mode="json"), "digest": digest})
    return True


def _digest(settings: TextTowerSettings, texts: TokenTable, vectors: WordVectors | None, vocabulary: str) -> str:
    shape = None if vectors is None else vectors.vectors.shape
    tower = settings.model_dump(mode="json")
    about = {"fitting": FIT_VERSION, "tower": tower, "vocabulary": vocabulary, "vectors": shape}
    arrays: list[NDArray[Any]] = [texts.offsets, texts.flat]
    if vectors is not None:
        arrays += [vectors.vectors, vectors.found]
    digest = hashlib.sha256(json.dumps({**about, "texts": len(texts)}, sort_keys=True).encode())
    for values in arrays:
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def _load(tower: FittedTextTower, path: Path, digest: str) -> None:
    try:
        tensors, about = load_tensors(path)
    except RunError as reason:
        raise RunError(f"{reason}; or delete it to fit again") from None
    shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in tower.state_dict().items()}
    if about.get("digest") != digest or shapes != {name: (each.shape, each.dtype) for name, each in tensors.items()}:
        raise RunError(f"{path}: not the fit that its name says; delete it to fit again")
    tower.load_state_dict(tensors)


@torch.inference_mode()
def known_texts(tower: FittedTextTower, table: TokenTable, device: torch.device) -> NDArray[np.bool_]:
    """Whether each text of a table has a word that the tower knows: (texts,)."""
    distinct = DistinctTexts.from_table(table)
    known = [
        tower.known(Tokens(ids.to(device), lengths.to(device))).cpu().numpy()
        for ids, lengths in distinct.padded_batches(table, TEXTS_AT_ONCE)
    ]
    return np.asarray(np.concatenate(known)[distinct.inverse])


@dataclass(frozen=True)
class StageTexts:
    """The texts of a stage: their token ids, and their features if a text encoder is frozen.

    Create it after the stage has set which parameters are trainable.
    """

    model: Model
    stores: Path  # the folder that holds fits and features
    progress: ProgressCallback  # of computing text features
    report: Callable[[str], None]

    def known(self, texts: list[str]) -> Integers:
        """The rows of the texts with a word that the model knows; the others are reported."""
        tower = self.model.matcher.fitted_text_tower
        if tower is None:
            return np.arange(len(texts))
        known = known_texts(tower, self.model.tokeniser.encode_all(texts), self.model.device)
        if not known.all():
            rows = np.flatnonzero(~known)
            self.report(f"left out {_counted(rows)} without a known word; the first is {texts[rows[0]]!r}")
        if not known.any():
            raise DataError("none of the training texts has a known word; use word vectors of their language")
        return np.flatnonzero(known)

    def table(self, texts: Sequence[str]) -> TokenTable:
        """The token ids of the texts; those without a known word are reported and stay in the table."""
        table = self.model.tokeniser.encode_all(texts)
        known = tokeniser_knows(self.model.tokeniser, texts)
        if not known.all():
            rows = np.flatnonzero(~known)
            self.report(
                f"kept {_counted(rows)} without a known word, as good as empty to the model; the first is "
                f"{texts[rows[0]]!r}"
            )
        return table

    def features(self, table: TokenTable) -> TextFeatures | None:
        """The features of all texts; None if the model has no features to store, or what computes them is trained."""
        tower = self.model.matcher.cached_text_tower
        if tower is None or any(parameter.requires_grad for parameter in tower.feature_part.parameters()):
            return None
        return text_features(tower, table, self.model.device, self.stores, self.progress)

    def inputs(self, texts: Sequence[str]) -> TextInputs:
        """The ids of texts, and their features if there are any to store."""
        table = self.model.tokeniser.encode_all(texts)
        return TextInputs(table, self.features(table))

    def standardise(self, texts: Sequence[str]) -> None:
        """Measure the training texts for a tower that standardises its features, or for a layer after the tower."""
        tower, standardised = self.model.matcher.cached_text_tower, self.model.matcher.standardised_texts
        if tower is not None and tower.standardises:
            table = self.model.tokeniser.encode_all(texts)
            features = text_features(tower, table, self.model.device, self.stores, self.progress)
            tower.standardise(*(value.to(self.model.device) for value in features.statistics()))
        if standardised is not None:
            self._measure(standardised, self.inputs(texts))

    @torch.inference_mode()
    def _measure(self, standardised: Standardised, texts: TextInputs) -> None:
        """Measure the vectors of texts; they must not be standardised yet."""
        self.model.matcher.eval()
        statistics = Statistics(len(standardised.layer.mean), self.model.device)
        for rows in np.split(np.arange(len(texts.table)), range(MEASURED_AT_ONCE, len(texts.table), MEASURED_AT_ONCE)):
            statistics.add(standardised.encode(texts.tokens(rows, self.model.device)))
        standardised.layer.measured(*statistics.result())


def _counted(rows: Integers) -> str:
    return "1 training text" if len(rows) == 1 else f"{len(rows):,} training texts"
