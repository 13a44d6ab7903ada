"""Calibrates a model on an encoded corpus and writes the calibration into the model's folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from diptych.data.corpus import Floats
from diptych.errors import DataError
from diptych.models.calibration.calibration import Calibration
from diptych.models.calibration.fit import CaptionedPhotos, fit_calibration
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.engines.engine import Engine


def calibrate(engine: Engine, identity: str, encoded: EncodedCorpus, folder: Path) -> Calibration:
    """Fit the calibration of the model with this identity on an encoded corpus, and write it into its folder.

    A DataError says why a model or a corpus cannot be calibrated.
    """
    if not (engine.is_inner_product and engine.encodes_vectors):
        raise DataError("models whose score is not the inner product of two vectors have no calibration")
    if not engine.reads_pictures:
        raise DataError("a model that reads features, and no photos, does not search photos, and has no calibration")
    calibration = fit_calibration(captioned_photos(encoded), lambda texts: _encode(engine, texts), identity)
    calibration.save(folder)
    return calibration


def captioned_photos(encoded: EncodedCorpus) -> CaptionedPhotos:
    """The photos and captions of a corpus; a text that several photos share counts for the first of them."""
    if encoded.corpus is None:
        raise DataError("encodings from a file have no texts to calibrate with; encode the corpus again")
    rows = {group: row for row, group in reversed(list(enumerate(encoded.image_groups.tolist())))}
    owners = [rows.get(group, -1) for group in encoded.text_groups.tolist()]
    kept = [place for place, owner in enumerate(owners) if owner >= 0]
    captions = [encoded.corpus.texts[place] for place in kept]
    images, texts = encoded.images.cpu().float().numpy(), encoded.texts.cpu().float().numpy()
    return CaptionedPhotos(images, captions, texts[kept], np.array(owners, np.int64)[kept])


def _encode(engine: Engine, texts: list[str]) -> Floats:
    return engine.encode_texts(texts).vectors
