"""/explain and /localize: which words of a text an image is found by, and where in the image they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import FastAPI, Request
from numpy.typing import NDArray

from diptych.data.images import DecodedPicture, decode_bytes
from diptych.errors import DataError, RunError
from diptych.evaluation.analyses.word_importance import leave_one_out
from diptych.index.encoder import Encoder
from diptych.index.search import Searcher
from diptych.serve.asked import asked, parameters
from diptych.serve.errors import RefusedError
from diptych.serve.pictures import photo_of, shown, thumbnail
from diptych.serve.schemas import AboutEntry, Explained, Localized, errors
from diptych.serve.service import Service
from diptych.serve.stored import stored
from diptych.text.noun_phrases import noun_phrases

if TYPE_CHECKING:
    from PIL import Image

    from diptych.models.trained import Trained

PHRASES = 8  # of a text that are looked for, at most
PLACES = 1


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes that explain a hit."""

    @app.get(
        "/explain", response_model=Explained, responses=errors(404, 422, 503), openapi_extra=parameters(AboutEntry)
    )
    async def explain(request: Request) -> Any:
        """What each word of a text is worth to its score with an image."""
        wanted = asked(request, AboutEntry)
        return await service.in_thread(explained, service.searchers[service.named(wanted.index)], wanted)

    @app.get(
        "/localize",
        response_model=Localized,
        responses=errors(404, 409, 422, 503),
        openapi_extra=parameters(AboutEntry),
    )
    async def localize(request: Request) -> Any:
        """Where the phrases of a text are in an image."""
        wanted = asked(request, AboutEntry)
        return await service.in_thread(localized, service.searchers[service.named(wanted.index)], wanted)


def explained(searcher: Searcher, wanted: AboutEntry) -> dict[str, Any]:
    """Each word's importance, from the stored image: its file need not be there any more."""
    image, _ = stored(searcher, shown(searcher, wanted.id).id)

    def scores(texts: list[list[str]]) -> NDArray[np.float64]:
        return np.asarray(searcher.encoder.score(image, searcher.encoder.words(texts))[0], np.float64)

    found = leave_one_out(wanted.text, searcher.encoder.known, scores)
    words = [word.to_json() for word in found.words]
    return {"id": wanted.id, "text": wanted.text, "score": found.score, "words": words}


def localized(searcher: Searcher, wanted: AboutEntry) -> dict[str, Any]:
    """The best place of each phrase of the text, relative to the image; one that the model does not know has none."""
    trained = localizing(searcher.encoder)
    if trained is None:
        raise RefusedError(409, "the model of this index scores whole images and cannot say where in them something is")
    from diptych.evaluation.localisation.localise import localise_in_picture

    photo = _photo(searcher, wanted.id)
    phrases = list(dict.fromkeys(noun_phrases(wanted.text) or [wanted.text]))[:PHRASES]
    known = [phrase for phrase, known in zip(phrases, trained.known(phrases).tolist(), strict=True) if known]
    if not known:
        raise DataError(f"{wanted.text!r}: the model knows none of its words; use others")
    found = dict(zip(known, localise_in_picture(trained, DecodedPicture(photo), known, PLACES), strict=True))
    scale = np.array([photo.width, photo.height] * 2)
    told = [
        {
            "phrase": phrase,
            "places": [
                {"box": (np.array(own.box) / scale).tolist(), "score": own.score} for own in found.get(phrase, ())
            ],
        }
        for phrase in phrases
    ]
    return {"id": wanted.id, "phrases": told}


def localizing(encoder: Encoder) -> Trained | None:
    """The run behind an encoder, if it can say where a phrase is; an export has none, and is not asked for torch."""
    trained: Trained | None = getattr(encoder, "trained", None)
    if trained is None:
        return None
    from diptych.evaluation.localisation.localise import check_can_localise

    try:
        check_can_localise(trained.matcher)
    except RunError:
        return None
    return trained


def _photo(searcher: Searcher, number: int) -> Image.Image:
    entry = shown(searcher, number)
    if entry.path is None:  # a drawn picture, of which the index has all there is
        return decode_bytes(thumbnail(searcher, entry.id), entry.key)
    return photo_of(searcher, entry)
