"""Search an index: with words or with an image, for images or for texts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from diptych.errors import DataError, DiptychError, IndexFileError, ScoreError
from diptych.index import ivf as ivf_cache
from diptych.index.encoder import Encoder, Encodings, open_encoder
from diptych.index.entries import Answer, Filters, Kind, SearchRequest
from diptych.index.ivf import Ivf
from diptych.index.loaded import LoadedIndex
from diptych.index.query_plan import QueryPlan
from diptych.index.sqlite.store import Store
from diptych.models.address import run_folder
from diptych.text.tokenisers.treebank import tokenise

RERANKED = 1000

UseIvf = Literal["auto", "always", "never"]


class Searcher:
    """An index that can be asked; threads may share it, and it sees what others change in the index.

    `ivf` says whether candidates come from a FAISS cache: in an index of more than `ivf_above` entries, always, or
    never. Where it `builds`, a cache that is missing or stale is made beside the search, which is exact until then; if
    it is always wanted, the search waits for it. Models whose score is no product put the first `reranked` in order.
    """

    def __init__(
        self,
        store: Store,
        encoder: Encoder,
        *,
        ivf: UseIvf = "auto",
        ivf_above: int = ivf_cache.ABOVE,
        builds: bool = True,
        reranked: int = RERANKED,
    ) -> None:
        check_model(store, encoder)
        if ivf == "always" and not ivf_cache.available():
            raise DiptychError(f"--ivf always {ivf_cache.NEEDED}")
        self.store = store
        self.encoder = encoder
        self._ivf = ivf
        self._ivf_above = ivf_above
        self._builds = builds
        self._reranked = reranked
        self._lock = threading.Lock()
        self._held = LoadedIndex(store)
        self._unbuilt: str | None = None

    def refresh(self) -> None:
        """Let go of what has changed in the index; it is loaded when it is asked for."""
        with self._lock:
            if not self._held.current:
                check_model(self.store, self.encoder)  # somebody may have rebuilt it
                self._held = LoadedIndex(self.store)

    def search_texts(self, texts: Sequence[str], ask: SearchRequest) -> list[Answer]:
        """An answer to each of several texts."""
        if any(not text.strip() for text in texts):
            raise DataError("the question is empty; ask in words, such as 'two dogs on a beach'")
        return self.search(self.encoder.texts(texts), [ask] * len(texts), "text") if len(texts) else []

    def search_image(self, photo: Image.Image, ask: SearchRequest) -> Answer:
        """The answer to an upright RGB photo, which need not be in the index."""
        return self.search(self.encoder.images([self.encoder.prepare(photo)]), [ask], "image")[0]

    def search_similar(self, id: int, ask: SearchRequest) -> Answer:
        """What is like an entry of the index, without the entry itself and its equals."""
        kind, encoded = self.store.encoded(id)
        return self.search(encoded, [replace(ask, without=id)], kind)[0]

    def unknown_words(self, text: str) -> list[str]:
        """The words of a question that the model cannot tell from others, each once."""
        words = list(dict.fromkeys(tokenise(text)))
        return [word for word, known in zip(words, self.encoder.known(words), strict=True) if not known]

    def notes(self) -> list[str]:
        """What a person should know of how this index is searched."""
        large = max(self.store.counts().values()) > self._ivf_above
        if self._ivf == "auto" and large and not ivf_cache.available():
            return [f"searching all entries exactly; a quicker search of so many {ivf_cache.NEEDED}"]
        return [] if self._unbuilt is None else [f"searching all entries exactly: {self._unbuilt}"]

    def search(self, queries: Encodings, asks: Sequence[SearchRequest], of: Kind | Sequence[Kind]) -> list[Answer]:
        """Answer each encoded query; `of` says what they are. Those with the same aim share one product."""
        kinds = [of] * len(asks) if isinstance(of, str) else list(of)
        for ask in asks:
            if ask.k < 1:
                raise DataError(f"k = {ask.k}: ask for at least one hit")
        if not np.isfinite(queries.vectors).all():
            raise ScoreError("the model makes no finite numbers of the query; is the model whole?")
        aims: dict[tuple[Kind, Kind, Filters], list[int]] = {}
        for place, (ask, kind) in enumerate(zip(asks, kinds, strict=True)):
            aims.setdefault((kind, ask.to, ask.filters), []).append(place)
        answers: dict[int, Answer] = {}
        for (kind, _, _), places in aims.items():
            found = self._answer_now(queries.take(places), [asks[place] for place in places], kind)
            answers.update(zip(places, found, strict=True))
        return [answers[place] for place in range(len(asks))]

    def _answer_now(self, queries: Encodings, asks: Sequence[SearchRequest], of: Kind) -> list[Answer]:
        """Answer from the index of one moment: when another process changes it meanwhile, answer again."""
        while True:
            self.refresh()
            held = self._held
            try:
                pool, ivf = held.pool(asks[0].to, asks[0].filters), self._ivf_of(held, asks[0].to)
                whole = held.pool(asks[0].to)
                answers = QueryPlan(self.store, self.encoder, pool, whole, ivf, of, self._reranked).answers(
                    queries, asks
                )
                if held.file == self.store.database.file:  # the numbers of entries begin anew in another file
                    return answers
            except DataError:  # an entry that was found has gone since
                if held.current:
                    raise

    def _ivf_of(self, held: LoadedIndex, kind: Kind) -> Ivf | None:
        """The FAISS cache of a kind, where one is wanted and there."""
        pool = held.pool(kind)
        wanted = self._ivf == "always" or (self._ivf == "auto" and len(pool.ids) > self._ivf_above)
        if not wanted or not len(pool.ids) or not ivf_cache.available():
            return None
        with self._lock:
            if kind in held.ivfs:
                return held.ivfs[kind]
            file = ivf_cache.cache_file(Path(self.store.path), kind)
            held.ivfs[kind] = ivf_cache.load(file, pool, self.encoder.identity, held.generation)
            missing = held.ivfs[kind] is None
        if missing and self._ivf == "always":
            self._build(held, kind)
        elif missing and self._builds:
            threading.Thread(target=self._build, args=(held, kind), daemon=True).start()
        return held.ivfs[kind]

    def _build(self, held: LoadedIndex, kind: Kind) -> None:
        other: Kind = "text" if kind == "image" else "image"
        file = ivf_cache.cache_file(Path(self.store.path), kind)
        pools = held.pool(kind), held.pool(other).vectors
        try:
            held.ivfs[kind] = ivf_cache.build(file, *pools, self.encoder.identity, held.generation)
        except OSError as reason:
            self._unbuilt = f"{file}: the cache cannot be written ({reason.strerror})"
        except RuntimeError as reason:  # of FAISS
            self._unbuilt = f"{file}: the cache cannot be made ({' '.join(str(reason).split())[:200]})"


def open_index(
    path: str | Path,
    run: str | None = None,
    device: str = "auto",
    *,
    ivf: UseIvf = "auto",
    builds: bool = True,
    reranked: int = RERANKED,
) -> Searcher:
    """The index in a file with the model that made it, or with the same model at another place, ready to be asked."""
    store = open_store(path)
    try:
        return Searcher(store, encoder_of(store, run, device), ivf=ivf, builds=builds, reranked=reranked)
    except BaseException:
        store.close()
        raise


def check_model(store: Store, encoder: Encoder) -> None:
    """Refuse a model that did not make the index: nothing of the two can be compared."""
    spec = store.spec
    if spec.identity != encoder.identity:
        raise IndexFileError(
            f"{store.path}: made by another model than {encoder.address}; name that with --run, or make the index "
            f"anew: diptych index {encoder.address} {spec.source} --into {store.path} --fresh"
        )


def open_store(path: str | Path) -> Store:
    """The index in a file; who names what an index is made of is told how."""
    path = Path(path)
    if (path / "vocabulary.json").is_file():
        raise IndexFileError(f"{path}: a run, not an index; make one of your photos: diptych index {path} FOLDER")
    if path.is_dir():
        raise IndexFileError(f"{path}: a folder, not an index; make one of it: diptych index RUN {path}")
    return Store.open(path)


def encoder_of(store: Store, run: str | None = None, device: str = "auto") -> Encoder:
    """The model that made an index, or the one at `run`."""
    address = run or store.spec.model
    if run is None and not run_folder(address).is_dir():
        raise IndexFileError(f"{store.path}: its model is no longer at {address}; name where it is with --run")
    return open_encoder(address, device)
