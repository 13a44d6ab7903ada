"""The calibration of a model: the probability that a text describes a photo, from their score.

    P = sigmoid(w · (score, q16, q50, q84, q99, q100, log(1 + min(words, 8))) + b)

There are two pairs of w and b. Those of `hits` are fitted on queries as often as people use their words, and give the
probability of a hit. Those of `answers` are fitted on queries by a root of that, so that they expect less that there
are photos of what is usual; they judge the best hit, that is whether a query has an answer at all.

The quantiles q are those of the text's scores with reference photos, which come with the calibration. They tell how
high this text scores anywhere ("dog" scores lower than a long caption), and do not depend on the photos that are
searched: a photo is not less likely to fit because many others fit as well.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import PositiveInt, ValidationError

import diptych
from diptych.data.corpus import Floats
from diptych.errors import RunError
from diptych.files import read_json, write_json
from diptych.settings import Settings, first_error

FILE = "calibration.json"
FORMAT = 1
QUANTILES = (0.16, 0.5, 0.84, 0.99, 1.0)
FEATURES = 1 + len(QUANTILES) + 1
LONGEST = 8  # words that are counted; calibrations of before count all of them

_WORD = re.compile(r"[^\W_]+")
_AGAIN = "fit it again: diptych calibrate RUN DATA"


class _StoredFit(Settings):
    """The weights of the features, and the bias."""

    weights: tuple[float, ...]
    bias: float


class _Stored(Settings):
    """The file: references are int8 in base64, one row of `size` per photo, in units of `step`."""

    format: int
    version: str
    identity: str
    hits: _StoredFit
    answers: _StoredFit
    size: int
    step: float
    references: str
    figures: dict[str, float]
    longest: PositiveInt | None = None


@dataclass(frozen=True)
class LogisticFit:
    """The weights of the features, (FEATURES,), and the bias."""

    weights: Floats
    bias: float

    def probabilities(self, scores: Floats, about: Floats) -> Floats:
        """The probabilities of some scores, (hits,); `about` describes one text, (1, ...), or one text per score."""
        logits = scores * self.weights[0] + about @ self.weights[1:] + self.bias
        result: Floats = (1 / (1 + np.exp(-np.clip(logits, -60, 60)))).astype(np.float32)
        return result


@dataclass(frozen=True)
class Calibration:
    """What was fitted, the vectors of the reference photos, (photos, size), and figures of the fit.

    `identity` is that of the model whose scores it reads; `longest` is how many words of a text are counted.
    """

    identity: str
    hits: LogisticFit
    answers: LogisticFit
    references: Floats
    figures: dict[str, float]
    longest: int | None = LONGEST

    def describe_texts(self, vectors: Floats, texts: Sequence[str]) -> Floats:
        """What the probability depends on besides the score: (texts, FEATURES - 1)."""
        return describe_texts(vectors @ self.references.T, texts, self.longest)

    def save(self, folder: Path) -> None:
        """Write the file into the folder of the model."""
        step = float(np.abs(self.references).max()) / 127 or 1.0
        rounded = np.rint(self.references / step).astype(np.int8)
        stored = _Stored(
            format=FORMAT,
            version=diptych.__version__,
            identity=self.identity,
            hits=_stored(self.hits),
            answers=_stored(self.answers),
            size=rounded.shape[1],
            step=step,
            references=base64.b64encode(rounded.tobytes()).decode("ascii"),
            figures=self.figures,
            longest=self.longest,
        )
        write_json(folder / FILE, stored.model_dump(mode="json"))

    @classmethod
    def load(cls, folder: Path) -> Calibration | None:
        """The calibration in the folder of a model, if there is one; a RunError if the file is damaged."""
        path = folder / FILE
        if not path.is_file():
            return None
        content = read_json(path, RunError)
        given = content.get("format") if isinstance(content, dict) else None
        if given != FORMAT:
            raise RunError(f"{path}: format {given!r}; this version of Diptych reads format {FORMAT}; {_AGAIN}")
        try:
            stored = _Stored.model_validate(content)
            rounded = np.frombuffer(base64.b64decode(stored.references, validate=True), np.int8)
            references = rounded.reshape(-1, stored.size).astype(np.float32) * np.float32(stored.step)
            hits, answers = _read(stored.hits), _read(stored.answers)
        except ValidationError as error:
            raise RunError(f"{path}: {first_error(error, _Stored)}; {_AGAIN}") from None
        except ValueError:
            raise RunError(f"{path}: damaged; {_AGAIN}") from None
        if not len(references) or not (_is_whole(hits) and _is_whole(answers)):
            raise RunError(f"{path}: damaged; {_AGAIN}")
        return cls(stored.identity, hits, answers, references, stored.figures, stored.longest)


def _stored(fit: LogisticFit) -> _StoredFit:
    return _StoredFit(weights=tuple(fit.weights.tolist()), bias=fit.bias)


def _read(stored: _StoredFit) -> LogisticFit:
    return LogisticFit(np.array(stored.weights, np.float32), stored.bias)


def _is_whole(fit: LogisticFit) -> bool:
    return len(fit.weights) == FEATURES and bool(np.isfinite([*fit.weights, fit.bias]).all())


def describe_texts(background: Floats, texts: Sequence[str], longest: int | None = LONGEST) -> Floats:
    """The features of texts from their scores with the reference photos, (texts, photos)."""
    quantiles = np.quantile(background, QUANTILES, axis=1).T  # (texts, quantiles)
    words = np.array([len(_WORD.findall(text)) for text in texts], np.float32)
    return np.column_stack([quantiles, np.log1p(np.minimum(words, longest or np.inf))]).astype(np.float32)


def copy_calibration(source: Path, target: Path, identity: str) -> None:
    """Copy the calibration of a model, if it has one, to a conversion of the model with another identity."""
    found = Calibration.load(source)
    if found is not None:
        replace(found, identity=identity).save(target)
