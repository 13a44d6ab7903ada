"""Brings an index up to date with its source: only what is new or changed is encoded.

A file whose size and time are unchanged is not opened, and one whose bytes are known is not decoded. Work is written in
transactions of a few seconds, so that an interrupted sync leaves a valid index, and the next sync continues.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote

import diptych
from diptych.data.corpus import Corpus
from diptych.errors import DataError, IndexFileError
from diptych.features.choices import Quality
from diptych.index.backend import IndexLocation, IndexStore, locate
from diptych.index.encoding_pool import image_encoder
from diptych.index.sources.accounting import FileCounts
from diptych.index.sources.listing import Source
from diptych.index.sources.resolve import SourceRequest
from diptych.index.spec import IndexSpec
from diptych.index.sync_checks import check_listing, check_spec, nothing_readable
from diptych.index.update import Update
from diptych.index.vectors import Storage
from diptych.index.word_reading import word_reading
from diptych.machine import available_cores, interrupt_event
from diptych.model import Model
from diptych.models.address import names_pair
from diptych.progress import ProgressCallback


@dataclass(frozen=True)
class SyncResult:
    """The number of images that a sync encoded, left unchanged (`kept`), renamed and removed.

    `copies` are new images whose content the index had already, and `failed` images that were read in vain this time.
    `problems` counts what was skipped, `interrupted` is whether the sync was stopped before it was complete, and
    `files` accounts for every file of the source. `words_read` counts pictures. `needs_packages` says by ending, such
    as `*.heic`, how many files an optional package would read, and how to install it.
    """

    encoded: int
    kept: int
    renamed: int
    removed: int
    problems: int
    texts_encoded: int
    interrupted: bool = False
    words_read: int = 0
    files: FileCounts = field(default_factory=FileCounts)
    copies: int = 0
    failed: int = 0
    needs_packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SyncOptions:
    """How a sync works: threads that read, processes that encode, how it reports its progress, and what stops it.

    Without an event, Ctrl-C stops it. `quality` is that of the images' vectors, as in `diptych.load`; by default, an
    index keeps its own, and a new one is "fast".
    """

    workers: int | None = None
    progress: ProgressCallback | None = None
    stop: threading.Event | None = None
    quality: Quality | None = None
    ocr: bool | None = None
    processes: int = 1


_DEFAULT = SyncOptions()


def sync(  # noqa: PLR0913 (each is an option of the command)
    model: Model,
    source: str | Corpus | Sequence[str] | SourceRequest,
    into: str | Path,
    *,
    storage: Storage | None = None,
    fresh: bool = False,
    quality: Quality | None = None,
    ocr: bool | None = None,
    workers: int | None = None,
    processes: int = 1,
    progress: ProgressCallback | None = None,
) -> SyncResult:
    """Bring the index at an address up to date with a source, and return what was done.

    An index of another model, source, storage or quality is refused; with `fresh` a new index replaces it when it is
    complete. By default, an index keeps its storage and its quality; a new one is "float16" and "fast".
    Several folders of photos are one source; those that the index does not have are added to it. A `SourceRequest` also
    says what to ignore, and which folders to remove. `ocr` is whether the words in pictures are read, which the index
    remembers; None leaves that as it is. Photos are read by `workers` threads, and encoded by as many `processes`.
    """
    if not isinstance(source, SourceRequest):
        source = SourceRequest((source,) if isinstance(source, str | Corpus) else tuple(source))
    options = SyncOptions(workers, progress, quality=quality, ocr=ocr, processes=processes)
    return sync_sources(model, source, into, storage, fresh=fresh, options=options)


def sync_sources(
    model: Model | None,
    request: SourceRequest,
    into: str | Path,
    storage: Storage | None = None,
    *,
    fresh: bool = False,
    options: SyncOptions = _DEFAULT,
) -> SyncResult:
    """Bring an index up to date with what is requested; without a model, an existing index is synced with its own."""
    target = locate(into)
    target.check_target(fresh=fresh)
    with target.locked():
        is_new = model is not None and bool(request.sources) and not target.exists()
        before = None if fresh or is_new else _spec_at(target)
        if model is None:
            assert before is not None
            model = Model.load(before.model)
        source = request.resolve(before)
        if fresh and target.exists():
            return _replace(model, source, target, storage or "float16", options)
        return _sync_into(model, source, target, storage, options)


def rebuild(
    path: str | Path,
    model: Model | None = None,
    *,
    workers: int | None = None,
    processes: int = 1,
    progress: ProgressCallback | None = None,
) -> SyncResult:
    """Rebuild an index from its source, with its own model or another; the old one stays until that is complete.

    `workers` and `processes` are those of `sync`.
    """
    target = locate(path)
    with target.locked():
        try:
            store = target.open()
        except IndexFileError as reason:
            if not target.exists():
                raise
            run = "RUN" if model is None else quote(model.address)
            raise IndexFileError(
                f"{target}: too damaged to read its model and source ({_without(target, reason)}); make it again: "
                f"diptych index {run} SOURCE --into {quote(str(target))} --fresh"
            ) from None
        spec = store.spec
        model, source = model or Model.load(spec.model), SourceRequest().resolve(spec)
        listing = source.listing()
        try:
            check_listing(listing, store, source)
        finally:
            store.close()
        if listing.unlisted:
            folder = sorted(listing.unlisted)[0]
            raise DataError(
                f"{source.address}: {folder} cannot be read, and its images would be lost; check its permissions. "
                "Nothing was changed"
            )
        options = SyncOptions(workers, progress, quality=spec.quality, processes=processes)
        return _replace(model, source, target, spec.storage, options)


def _spec_at(target: IndexLocation) -> IndexSpec:
    store = target.open()
    try:
        return store.spec
    finally:
        store.close()


def _sync_into(
    model: Model, source: Source, into: IndexLocation, storage: Storage | None, options: SyncOptions
) -> SyncResult:
    """Sync into an index, which is created if missing; the caller holds its lock."""
    listing = source.listing()
    if is_new := not into.exists():
        check_listing(listing, None, source)
        model = model.with_quality(options.quality or "fast")
        store = _create(model, source, into, storage or "float16")
    else:
        store = into.open(write=True)
    try:
        model = model.with_quality(options.quality or store.spec.quality)
        check_spec(store.spec, model, source, into, storage, options.quality)
        spec = replace(
            store.spec,
            model=_absolute(model.address),
            source=source.address,
            root=source.root,
            folders=source.folders,
            selection=source.selection,
        )
        _name_first_folder(store, spec)
        check_listing(listing, store, source)
        with interrupt_event() if options.stop is None else nullcontext(options.stop) as interrupted:
            workers = available_cores() if options.workers is None else options.workers
            reading = word_reading(store, source, workers, options.ocr)
            with image_encoder(model, options.processes) as encoder:
                update = Update(store, spec, source, listing, model, workers, encoder=encoder)
                update.run(interrupted, options.progress)
            if reading is not None and not update.interrupted:
                update.interrupted = not reading.run(interrupted, options.progress)
        result = replace(_result(store, update), words_read=0 if reading is None else reading.read)
        failure = (
            nothing_readable(store, source) if is_new and not update.interrupted and not _has_images(store) else None
        )
    finally:
        store.close()
    if failure is not None:
        into.remove()
        raise failure
    return result


def _name_first_folder(store: IndexStore, spec: IndexSpec) -> None:
    """If an index of one folder becomes one of several, put what it has into that folder's name."""
    name = next((name for name, path in spec.folders if path == store.spec.source), None)
    if name is not None and not store.spec.folders:
        writer = store.writer(())
        with writer.transaction():
            writer.move_into(name)
            writer.begin(spec)


def _create(model: Model, source: Source, into: IndexLocation, storage: Storage) -> IndexStore:
    model.check_reads_pictures()
    address, size, rescores = _absolute(model.address), model.embedding_dim, not model.is_inner_product
    made_of = source.address, source.root, diptych.__version__, source.folders, source.selection
    quality = model.engine.quality
    return into.create(IndexSpec(address, model.identity, size, rescores, storage, *made_of, quality=quality))


def _replace(model: Model, source: Source, into: IndexLocation, storage: Storage, options: SyncOptions) -> SyncResult:
    """Make an index beside another and replace that one; an unfinished one is continued."""
    beside = into.replacement()
    if options.ocr is None:
        options = replace(options, ocr=_reads_words(into) or None)
    if beside.exists():
        try:
            left = _spec_at(beside)
            same = left.identity == model.identity and left.source == source.address
            same = same and left.storage == storage and left.folders == source.folders
            same = same and left.quality == model.with_quality(options.quality or "fast").engine.quality
        except IndexFileError:
            same = False
        if not same:
            beside.remove()
    result = _sync_into(model, source, beside, storage, options)
    if not result.interrupted:
        into.replace(beside)
    return result


def _reads_words(target: IndexLocation) -> bool:
    """Whether an index wants the words in pictures read; not if it cannot be opened."""
    try:
        store = target.open()
    except IndexFileError:
        return False
    wanted = bool(store.meta("ocr"))
    store.close()
    return wanted


def _has_images(store: IndexStore) -> bool:
    return store.counts()["image"] > 0


def _result(store: IndexStore, update: Update) -> SyncResult:
    problems = len(store.problems())
    images = store.counts()["image"]
    return SyncResult(
        encoded=update.encoded,
        kept=max(0, images - update.encoded - update.copies - update.writer.renamed),
        renamed=update.writer.renamed,
        removed=update.removed,
        problems=problems,
        texts_encoded=update.texts_encoded,
        interrupted=update.interrupted,
        files=update.files,
        copies=update.copies,
        failed=update.failed,
        needs_packages=update.needs_packages,
    )


def _absolute(address: str) -> str:
    """The address from any working directory: an index may be searched from another one."""
    name, _, folder = address.partition("/")
    if names_pair(address) and Path(folder).is_dir() and not Path(address).is_dir():
        return f"{name}/{Path(folder).absolute()}"
    return str(Path(address).absolute()) if Path(address).is_dir() else address


def _without(path: IndexLocation, reason: IndexFileError) -> str:
    return str(reason).removeprefix(f"{path}: ").partition(";")[0]
