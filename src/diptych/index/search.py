"""Searches an index: by text or by image, for images or for texts.

What an answer says about itself (words that the model does not know, whether anything stands out) is decided here, so
that Python, the command line and the HTTP service agree.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from diptych.data.images import decode
from diptych.errors import DataError, IndexFileError, ScoreError
from diptych.features.hashes import pixels_hash
from diptych.index import ivf as ivf_cache
from diptych.index import vector_cache
from diptych.index.backend import IndexStore, locate
from diptych.index.decoding import photo_options
from diptych.index.entries import EMPTY_QUERY, Answer, Filters, SearchRequest
from diptych.index.examples import EncodedPhrases, choose_examples
from diptych.index.feedback import with_feedback
from diptych.index.loaded import LoadedIndex
from diptych.index.preselection import Codes, Preselection, UseIvf
from diptych.index.query import Query
from diptych.index.query_encoding import add_text, encode_query_texts
from diptych.index.query_plan import QueryPlan
from diptych.index.query_reader import QueryReader
from diptych.index.query_text import has_words, parse
from diptych.index.ranking import Ranking
from diptych.index.relevance import calibration_of
from diptych.index.word_plan import WordPlan, resolved_mode, word_store
from diptych.index.words import WordStore
from diptych.model import Model
from diptych.models.address import names_pair, run_folder
from diptych.models.calibration.calibration import Calibration
from diptych.models.engines.engine import Encodings

RERANK = 1000
CALIBRATE = "to make one: diptych calibrate RUN DATA"
NOT_JUDGED = "hits are not judged, because the model has no calibration"


class Searcher:
    """Searches an index with the model that made it; threads may share it, and it sees changes by other processes.

    `ivf` is whether candidates come from a FAISS cache: "auto" uses one for more than `ivf_above` entries. With
    `build_ivf`, a missing or stale cache is built in the background, and search is exact until it is ready; with
    "always", search waits for it. With `codes` "int8" or "pq", candidates are selected by smaller codes, whatever the
    number of entries (see `preselection`). Vectors of more than `map_above` entries, and of all with such codes, are
    mapped from a file beside the index that processes share. Models whose score is not an inner product re-rank the
    best `rerank` candidates.
    """

    def __init__(
        self,
        store: IndexStore,
        model: Model,
        *,
        ivf: UseIvf = "auto",
        ivf_above: int = ivf_cache.ABOVE,
        build_ivf: bool = True,
        rerank: int = RERANK,
        map_above: int = vector_cache.ABOVE,
        codes: Codes = "auto",
    ) -> None:
        check_model(store, model)
        self._preselection = Preselection(
            store, model.identity, ivf=ivf, ivf_above=ivf_above, build=build_ivf, codes=codes
        )
        self.store = store
        self.model = model
        self._rerank = rerank
        self._lock, self._examples_lock = threading.Lock(), threading.Lock()
        self._phrases: EncodedPhrases | None = None
        self._map_above = map_above if codes == "auto" else 0
        self._loaded = LoadedIndex(store, self._map_above)
        self._reader = QueryReader(store, model)

    @property
    def model_matches(self) -> bool:
        """Whether the index still belongs to this model; another process may have rebuilt it with another one."""
        return self.store.spec.identity == self.model.identity

    @functools.cached_property
    def calibration(self) -> Calibration | None:
        """What hits are judged by, if the model has it; see `notes`."""
        return calibration_of(self.model)

    def examples(self) -> tuple[str, ...]:
        """Examples of queries that several photos of the index fit, made from the index; none without a calibration."""
        if self.calibration is None:
            return ()
        self.refresh()
        loaded = self._loaded
        with self._examples_lock:
            if self._phrases is None:
                self._phrases = EncodedPhrases.of(self.model, self.calibration)
            if loaded.examples is None:
                loaded.examples = choose_examples(loaded.pool("image"), self._phrases, self.calibration)
        return loaded.examples

    def refresh(self) -> None:
        """Drop what is in memory if the index has changed; it is loaded again when needed."""
        with self._lock:
            if not self._loaded.is_current:
                check_model(self.store, self.model)
                self._loaded = LoadedIndex(self.store, self._map_above)

    def search_texts(self, texts: Sequence[str], request: SearchRequest) -> list[Answer]:
        """One answer per text.

        `answer.hits` are the hits, best first, each with a `score` and an `entry` (`entry.key`, `entry.path`, ...);
        `answer.unknown_words` are the words that the model does not know, `answer.suggestion` is the text with mistyped
        words corrected, or None, and `answer.message` is a sentence for people, or None. A text may exclude words:
        `dog -snow -"red ball"`.
        """
        if any(not text.strip() for text in texts):
            raise DataError(f"the query {EMPTY_QUERY}")
        if not len(texts):
            return []
        if request.mode == "words":
            return self.search([Query(None, "text", request, text) for text in texts])
        encoded = encode_query_texts(self.model, texts)
        return self.search([Query(encoded.take([row]), "text", request, text) for row, text in enumerate(texts)])

    def search_image(self, photo: Image.Image, request: SearchRequest) -> Answer:
        """The answer for an upright RGB photo, which need not be in the index; `request.added` may add words to it."""
        engine = self.model.engine
        encoded, digest = engine.encode_preprocessed([engine.preprocess(photo)]), bytes.fromhex(pixels_hash(photo))
        return self.search([Query(encoded, "image", request, picture=digest)])[0]

    def search_file(self, path: str | Path, request: SearchRequest) -> Answer:
        """The answer for an image file, decoded as for indexing: an indexed file finds itself with a cosine of 1."""
        return self.search_image(decode(Path(path), photo_options(self.model.engine).decode_size), request)

    def search_similar(self, id: int, request: SearchRequest) -> Answer:
        """Entries similar to an entry of the index, without the entry itself and its exact copies."""
        kind, encoded = self.store.encoded(id)
        return self.search([Query(encoded, kind, replace(request, without=id))])[0]

    def search_more(self, request: SearchRequest) -> Answer:
        """Images like those in `request.more`, and unlike those in `request.less`, without a text."""
        if not request.more:
            raise DataError("more: name an image of the index to find more like it")
        return self.search([Query(None, "image", request)])[0]

    def unknown_words(self, text: str) -> tuple[str, ...]:
        """The words of a text that the model does not know, each once, in the order of the text."""
        return self._unknown_words(self._words(text))

    def _words(self, text: str) -> list[str]:
        return list(dict.fromkeys(self.model.tokeniser.split(text)))

    def _unknown_words(self, words: Sequence[str]) -> tuple[str, ...]:
        return tuple(word for word, known in zip(words, self.model.known_words(words), strict=True) if not known)

    def notes(self) -> list[str]:
        """What a person should know about how this index is searched."""
        if self.calibration is not None:
            return self._speed_notes()
        return [*self._speed_notes(), NOT_JUDGED if self.store.spec.rescores else f"{NOT_JUDGED}; {CALIBRATE}"]

    def _speed_notes(self) -> list[str]:
        if self._loaded.failure is not None:
            return [self._loaded.failure]
        return self._preselection.notes()

    def search(self, queries: Sequence[Query]) -> list[Answer]:
        """One answer per encoded query; queries of one kind with equal kind and filters requested share a product."""
        queries = [self._checked(query) for query in queries]
        groups: dict[tuple[object, ...], list[int]] = {}
        for position, query in enumerate(queries):
            request = query.request
            later_page = None if request.cursor is None else position  # read from a ranking of its own
            groups.setdefault((query.kind, request.to, request.filters, request.mode, later_page), []).append(position)
        answers: dict[int, Answer] = {}
        for positions in groups.values():
            found = self._answer_consistently([queries[position] for position in positions])
            answers.update(zip(positions, found, strict=True))
        return [self._with_message(query, answers[position]) for position, query in enumerate(queries)]

    def _checked(self, query: Query) -> Query:
        """The query with the words that its text excludes; by words alone if the model knows none of them."""
        if query.request.k < 1:
            raise DataError(f"k = {query.request.k}: ask for at least one hit")
        if query.encoding is not None and not np.isfinite(query.encoding.vectors).all():
            raise ScoreError("the model's encoding of the query is not finite; is the model damaged?")
        request = _with_exclusions(query)
        request = replace(request, mode=resolved_mode(self.store, request, query.text))
        if request.mode != "meaning":
            word_store(self.store, request, query.text)
        by_words = request.mode == "words" or (request.mode == "both" and not self._is_searchable(query))
        encoding = None if by_words else query.encoding
        if request.added is not None:
            if encoding is None:
                raise DataError("words can be added to a picture only; search for the text itself")
            encoding = add_text(self.model, encoding, request.added)
        checked = replace(query, request=request, encoding=encoding, asked=query.digest)
        checked.cursor()
        return with_feedback(checked, self.store, self.model)

    def _is_searchable(self, query: Query) -> bool:
        """Whether the words of a query, if any, have one that the model knows and that is not merely mistyped."""
        text = _text(query)
        if text is None or query.request.more:
            return True
        wanted = parse(text).wanted
        words = self._words(wanted)
        is_known = has_words(wanted) and len(self._unknown_words(words)) < len(words)
        return is_known and self._reader.read(text).is_searchable

    def _with_message(self, query: Query, answer: Answer) -> Answer:
        """The answer with its message, and for a text with its unknown words and the suggestion.

        A text without a known word has no hits, because those that the model would find are arbitrary.
        """
        text = _text(query)
        if text is None:
            return replace(answer, message=_message(query, answer))
        answer = replace(answer, suggestion=self._reader.read(text).suggestion)
        if query.request.mode != "words":
            parts = parse(text)
            answer = replace(answer, unknown_words=self.unknown_words(" ".join([parts.wanted, *parts.excluded])))
            if query.encoding is not None and not self._is_searchable(query):
                answer = replace(answer, hits=(), found=False, next=None)
                message = _message(query, answer, is_searchable=False)
                return replace(answer, message=message, words_exist=self._would_words_find(query))
        words_exist = not answer.found and answer.searched > 0 and self._would_words_find(query)
        return replace(answer, message=_message(query, answer), words_exist=words_exist)

    def _would_words_find(self, query: Query) -> bool:
        """Whether the text of a query that was searched by meaning would find images by their words."""
        is_by_meaning = query.text is not None and query.request.mode == "meaning" and query.request.to == "image"
        if not is_by_meaning or not isinstance(self.store, WordStore):
            return False
        return len(self.store.with_words(parse(query.text or "").wanted)) > 0

    def _answer_consistently(self, group: Sequence[Query]) -> list[Answer]:
        """Answers to queries of one kind, for one kind with the same filters and mode, from one state of the index.

        If another process changes it meanwhile, they are answered again.
        """
        to, filters = group[0].request.to, group[0].request.filters
        while True:
            self.refresh()
            loaded = self._loaded
            try:
                pool, preselector = loaded.pool(to, filters), self._preselection.of(loaded, to)
                plan = QueryPlan(
                    self.store,
                    self.model,
                    pool,
                    preselector=preselector,
                    rerank=self._rerank,
                    calibration=self.calibration,
                )
                answers = self._answers(loaded, plan, group) if len(pool) else [Answer((), False, 0) for _ in group]
                if loaded.instance == self.store.instance:  # ids start again in an index that replaces this one
                    return answers
            except DataError:  # an entry that was found has been removed since
                if loaded.is_current:
                    raise

    def _answers(self, loaded: LoadedIndex, plan: QueryPlan, group: Sequence[Query]) -> list[Answer]:
        """One answer per query; the ranking of a later page is kept for the page after it."""
        if group[0].request.cursor is None:
            rankings = self._rankings(plan, group)
            return [plan.answer(query, ranking) for query, ranking in zip(group, rankings, strict=True)]
        (query,) = group
        encoding = b"" if query.encoding is None else query.encoding.vectors.tobytes()
        request = query.request
        key = query.digest, request.mode, request.k, encoding, plan.pool  # a changed album is another pool
        ranking = loaded.take_ranking(key) or self._rankings(plan, group)[0]
        answer = plan.answer(query, ranking)
        loaded.keep_ranking(key, ranking)
        return [answer]

    def _rankings(self, plan: QueryPlan, group: Sequence[Query]) -> list[Ranking]:
        encodings = [query.encoding for query in group if query.encoding is not None]
        if group[0].request.mode == "meaning":
            return plan.rankings(group, Encodings.concatenate(encodings))
        words = WordPlan(self.store, plan)
        return [words.ranking(query) for query in group]


def _text(query: Query) -> str | None:
    """The text of a query, or the words that are added to a picture."""
    return query.text or query.request.added


def _with_exclusions(query: Query) -> SearchRequest:
    """The request, with the words that the text of the query excludes."""
    text = _text(query)
    excluded = () if text is None else parse(text).excluded
    return replace(query.request, excluded=query.request.excluded + excluded) if excluded else query.request


def _message(query: Query, answer: Answer, *, is_searchable: bool = True) -> str | None:
    """A sentence for people: nothing to search, unknown words, or nothing that stands out."""
    kind = query.request.to
    if query.request.cursor is not None:  # said with the first page
        return None
    if not answer.searched:
        if query.request.filters != Filters():
            return f"No {kind} passes the filters; widen them."
        return f"The index has no {kind}s yet; `diptych index` adds some."
    text = _text(query)
    if text is not None and not answer.hits and not has_words(parse(text).wanted):
        return "There are no words in the query; describe what to look for."
    if not is_searchable:
        return "The model knows none of these words; try other words."
    sentences = []
    if answer.unknown_words:
        sentences.append(f"The model does not know {_enumerate(answer.unknown_words)}.")
    if not answer.hits:
        sentences.append(_why_no_hits(query))
    elif not answer.found:
        sentences.append("Nothing stands out; these are the nearest.")
    return " ".join(sentences) or None


def _why_no_hits(query: Query) -> str:
    if query.encoding is None:
        return "No image has all of these words in its captions, its name, its folder or the picture."
    if query.request.excluded:
        return "All hits have an excluded word in their captions or in the picture."
    if query.request.less:
        return "There is nothing else: every image is one that you want less of."
    return "There is nothing else: every entry is a copy of this one."


def _enumerate(words: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(f"“{word}”" for word in words[:most])
    return f"{shown} and {len(words) - most} more words" if len(words) > most else shown


def open_index(
    path: str | Path,
    run: str | None = None,
    device: str = "auto",
    *,
    ivf: UseIvf = "auto",
    build_ivf: bool = True,
    rerank: int = RERANK,
    codes: Codes = "auto",
) -> Searcher:
    """The index at an address, ready to be searched with the model that made it, or with that of `run` if it moved."""
    store = open_store(path)
    try:
        return Searcher(store, model_of(store, run, device), ivf=ivf, build_ivf=build_ivf, rerank=rerank, codes=codes)
    except BaseException:
        store.close()
        raise


def check_model(store: IndexStore, model: Model) -> None:
    """Refuse a model that did not make the index: vectors of two models cannot be compared."""
    spec = store.spec
    if spec.identity != model.identity:
        raise IndexFileError(
            f"{store.address}: made by another model than {model.address}; name that model with --run, or make the "
            f"index again: diptych index {model.address} {spec.source} --into {store.address} --fresh"
        )


def open_store(path: str | Path) -> IndexStore:
    """The index at an address: the path of a file, or what a plug-in stores, such as milvus://host/photos."""
    return locate(path).open()


def model_of(store: IndexStore, run: str | None = None, device: str = "auto") -> Model:
    """The model that made an index, or the one at `run`."""
    address = run or store.spec.model
    if run is None and not run_folder(address).is_dir() and not names_pair(address):
        raise IndexFileError(f"{store.address}: its model is no longer at {address}; name its new place with --run")
    return Model.load(address, device, quality=store.spec.quality)
