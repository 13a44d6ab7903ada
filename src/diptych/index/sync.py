"""Brings an index up to date with its source: only what is new or changed is encoded.

A file whose size and time are unchanged is not opened, and one whose bytes are known is not decoded. Work is written in
transactions of a few seconds, so that an interrupted sync leaves a valid index, and the next sync continues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

import diptych
from diptych.errors import DataError, IndexFileError
from diptych.index.backend import IndexLocation, IndexSpec, IndexStore, locate
from diptych.index.sources.listing import Listing, Source
from diptych.index.sources.open import open_source
from diptych.index.update import Update
from diptych.index.vectors import Storage
from diptych.machine import available_cores, interrupt_event
from diptych.model import Model
from diptych.models.address import names_pair
from diptych.progress import ProgressCallback


@dataclass(frozen=True)
class SyncResult:
    """The number of images that a sync encoded, left unchanged (`kept`), renamed and removed.

    `problems` counts what was skipped, and `interrupted` is whether the sync was stopped before it was complete.
    """

    encoded: int
    kept: int
    renamed: int
    removed: int
    problems: int
    texts_encoded: int
    interrupted: bool = False


def sync(
    model: Model,
    source: str,
    into: str | Path,
    *,
    storage: Storage | None = None,
    fresh: bool = False,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
) -> SyncResult:
    """Bring the index at an address up to date with a source, and return what was done.

    An index of another model, source or storage is refused; with `fresh` a new index replaces it when it is complete.
    """
    target = locate(into)
    target.check_target(fresh=fresh)
    with target.locked():
        opened = open_source(source)
        if fresh and target.exists():
            return _replace(model, opened, target, storage or "float16", workers, progress)
        return _sync_into(model, opened, target, storage, workers, progress)


def rebuild(
    path: str | Path,
    model: Model | None = None,
    *,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
) -> SyncResult:
    """Rebuild an index from its source, with its own model or another; the old one stays until that is complete."""
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
        spec, known = store.spec, store.counts()["image"]
        store.close()
        model, source = model or Model.load(spec.model), open_source(spec.source)
        listing = source.listing()
        _check_listing(listing, known, target, source, model)
        if listing.unlisted:
            folder = sorted(listing.unlisted)[0]
            raise DataError(
                f"{source.address}: {folder} cannot be read, and its images would be lost; check its permissions. "
                "Nothing was changed"
            )
        return _replace(model, source, target, spec.storage, workers, progress)


def _sync_into(
    model: Model,
    source: Source,
    into: IndexLocation,
    storage: Storage | None,
    workers: int | None,
    progress: ProgressCallback | None,
) -> SyncResult:
    """Sync into an index, which is created if missing; the caller holds its lock."""
    listing = source.listing()
    store = into.open(write=True) if into.exists() else _create(model, source, into, storage or "float16")
    try:
        _check_spec(store.spec, model, source, into, storage)
        _check_listing(listing, store.counts()["image"], into, source, model)
        with interrupt_event() as interrupted:
            spec = replace(store.spec, model=_absolute(model.address), root=source.root)
            update = Update(store, spec, source, listing, model, available_cores() if workers is None else workers)
            update.run(interrupted, progress)
        return _result(store, update)
    finally:
        store.close()


def _create(model: Model, source: Source, into: IndexLocation, storage: Storage) -> IndexStore:
    model.check_reads_pictures()
    address, size, rescores = _absolute(model.address), model.embedding_dim, not model.is_inner_product
    spec = IndexSpec(address, model.identity, size, rescores, storage, source.address, source.root, diptych.__version__)
    return into.create(spec)


def _replace(
    model: Model,
    source: Source,
    into: IndexLocation,
    storage: Storage,
    workers: int | None,
    progress: ProgressCallback | None,
) -> SyncResult:
    """Make an index beside another and replace that one; an unfinished one is continued."""
    beside = into.replacement()
    if beside.exists():
        try:
            left = beside.open()
            same = left.spec.identity == model.identity and left.spec.source == source.address
            same = same and left.spec.storage == storage
            left.close()
        except IndexFileError:
            same = False
        if not same:
            beside.remove()
    result = _sync_into(model, source, beside, storage, workers, progress)
    if not result.interrupted:
        into.replace(beside)
    return result


def _result(store: IndexStore, update: Update) -> SyncResult:
    problems = len(store.problems())
    images = store.counts()["image"]
    return SyncResult(
        encoded=update.encoded,
        kept=max(0, images - update.encoded - update.writer.renamed),
        renamed=update.writer.renamed,
        removed=update.removed,
        problems=problems,
        texts_encoded=update.texts_encoded,
        interrupted=update.interrupted,
    )


def _absolute(address: str) -> str:
    """The address from any working directory: an index may be searched from another one."""
    name, _, folder = address.partition("/")
    if names_pair(address) and Path(folder).is_dir() and not Path(address).is_dir():
        return f"{name}/{Path(folder).absolute()}"
    return str(Path(address).absolute()) if Path(address).is_dir() else address


def _check_spec(spec: IndexSpec, model: Model, source: Source, into: IndexLocation, storage: Storage | None) -> None:
    """Refuse to mix models, sources or storage types in one index; the error names the command that may be meant."""
    file = quote(str(into))
    command = f"diptych index {quote(model.address)} {quote(source.address)} --into {file}"
    if spec.source != source.address:
        raise IndexFileError(
            f"{into}: an index of {spec.source}; name another file with --into, or replace it: {command} --fresh"
        )
    if spec.identity != model.identity:
        raise IndexFileError(
            f"{into}: made by another model ({spec.model}, {spec.identity[:8]}); vectors of two models cannot be "
            f"compared; rebuild it: diptych index rebuild {file} --run {quote(model.address)}"
        )
    if storage is not None and storage != spec.storage:
        raise IndexFileError(
            f"{into}: stores vectors as {spec.storage}; to change that: {command} --storage {storage} --fresh"
        )


def _check_listing(listing: Listing, known: int, into: IndexLocation, source: Source, model: Model) -> None:
    """Refuse to remove all known images because a disk is not connected."""
    if known and not listing.files and not listing.unlisted:
        raise DataError(
            f"{source.address}: contains no image, but the index has {known:,}; is its disk connected? To remove all: "
            f"diptych index {quote(model.address)} {quote(source.address)} --into {quote(str(into))} --fresh"
        )


def _without(path: IndexLocation, reason: IndexFileError) -> str:
    return str(reason).removeprefix(f"{path}: ").partition(";")[0]
