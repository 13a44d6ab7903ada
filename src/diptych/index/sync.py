"""Bringing an index up to date with its source: only what is new or changed is encoded.

A file whose size and time are as they were is not opened; one whose bytes are known is not decoded. Work is written in
transactions of a few seconds, so that whatever ends it leaves an index that is valid and goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

import diptych
from diptych.errors import DataError, IndexFileError
from diptych.files import locked_file
from diptych.index.encoder import Encoder, open_encoder
from diptych.index.source import Listing, Source, open_source
from diptych.index.sqlite.database import remove_logs
from diptych.index.sqlite.store import IndexSpec, Store
from diptych.index.sqlite.vectors import Storage
from diptych.index.update import Update
from diptych.machine import available_cores, interrupt_event
from diptych.models.address import run_folder, run_identity
from diptych.progress import ProgressCallback

PATIENCE = 3.0  # seconds to wait for another writer


@dataclass(frozen=True)
class Model:
    """A model by what tells it from others; it is opened only when something must be encoded."""

    address: str
    identity: str
    open: Callable[[], Encoder]


@dataclass(frozen=True)
class SyncResult:
    """What a sync did, in images: encoded, kept with the vectors they had, renamed and removed; problems are left out.

    `interrupted` says that it was asked to stop before everything was done.
    """

    encoded: int
    kept: int
    renamed: int
    removed: int
    problems: int
    texts_encoded: int
    interrupted: bool = False


def model_at(address: str, device: str = "auto") -> Model:
    """The model of a run or an export, which is not opened yet."""
    folder = Path(address)
    if (folder / "export.json").is_file():
        from diptych.models.export.exported import Exported

        identity = Exported.read(folder).identity
    else:
        identity = _identity_of_run(address, device)
    where = _absolute(address)
    return Model(where, identity, lambda: open_encoder(where, device))


def _absolute(address: str) -> str:
    """An address that is understood from any folder; who asks the index may stand in another one."""
    return str(Path(address).absolute()) if Path(address).is_dir() else address


def _identity_of_run(address: str, device: str) -> str:
    try:
        return run_identity(run_folder(address))
    except OSError:  # no run, or half of one: who opens it says what is missing
        return open_encoder(address, device).identity


def sync(
    model: Encoder | Model,
    source: str,
    into: str | Path,
    *,
    storage: Storage | None = None,
    fresh: bool = False,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
) -> SyncResult:
    """Make the index in a file equal to what is at a source's address now, and say what was done.

    An index that another model made, or of another source or storage than the one asked for, is refused; with `fresh`
    it is made anew, and the file replaced when that is complete.
    """
    if not isinstance(model, Model):
        encoder = model
        model = Model(_absolute(encoder.address), encoder.identity, lambda: encoder)
    into = Path(into)
    _check_target(into, fresh)
    with locked_file(into, IndexFileError, PATIENCE):
        opened = open_source(source)
        if fresh and into.exists():
            return _anew(model, opened, into, storage or "float16", workers, progress)
        return _into(model, opened, into, storage, workers, progress)


def rebuild(
    path: str | Path,
    model: Model | None = None,
    *,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
) -> SyncResult:
    """Make an index anew from its source, by its own model or another; the old file stays until that is complete."""
    path = Path(path)
    with locked_file(path, IndexFileError, PATIENCE):
        try:
            store = Store.open(path)
        except IndexFileError as reason:
            if not path.exists():
                raise
            run = "RUN" if model is None else quote(model.address)
            raise IndexFileError(
                f"{path}: too damaged to say what it was made from ({_without(path, reason)}); make it anew: "
                f"diptych index {run} SOURCE --into {quote(str(path))} --fresh"
            ) from None
        spec, known = store.spec, store.counts()["image"]
        store.close()
        model, source = model or model_at(spec.model), open_source(spec.source)
        listing = source.listing()
        _check_listing(listing, known, path, source, model)
        if listing.unlisted:
            folder = sorted(listing.unlisted)[0]
            raise DataError(
                f"{source.address}: {folder} cannot be read, and what is in it would be forgotten; check its "
                "permissions, nothing was changed"
            )
        return _anew(model, source, path, spec.storage, workers, progress)


def _into(
    model: Model,
    source: Source,
    into: Path,
    storage: Storage | None,
    workers: int | None,
    progress: ProgressCallback | None,
) -> SyncResult:
    """Sync into a file, which is made if there is none; the caller holds it."""
    listing = source.listing()
    store = Store.open(into, write=True) if into.exists() else _create(model, source, into, storage or "float16")
    try:
        _check_spec(store.spec, model, source, into, storage)
        _check_listing(listing, store.counts()["image"], into, source, model)
        with interrupt_event() as interrupted:
            spec = replace(store.spec, model=model.address, root=source.root)
            update = Update(store, spec, source, listing, model.open, available_cores() if workers is None else workers)
            update.run(interrupted, progress)
        return _result(store, update)
    finally:
        store.close()


def _create(model: Model, source: Source, into: Path, storage: Storage) -> Store:
    encoder = model.open()
    size, rescores = encoder.size, encoder.rescores
    spec = IndexSpec(
        model.address, model.identity, size, rescores, storage, source.address, source.root, diptych.__version__
    )
    return Store.create(into, spec)


def _anew(
    model: Model, source: Source, into: Path, storage: Storage, workers: int | None, progress: ProgressCallback | None
) -> SyncResult:
    """Make an index beside a file and put it in its place; one that was left unfinished goes on."""
    beside = into.parent / f".{into.name}.new"
    if beside.exists():
        try:
            left = Store.open(beside)
            same = left.spec.identity == model.identity and left.spec.source == source.address
            same = same and left.spec.storage == storage
            left.close()
        except IndexFileError:
            same = False
        if not same:
            _remove(beside)
    result = _into(model, source, beside, storage, workers, progress)
    if not result.interrupted:
        with suppress(IndexFileError):  # what is still in its log goes where it belongs, for who reads it now
            Store.open(into, write=True).close()
        beside.replace(into)
        remove_logs(into)  # they belong to the old file, and would be taken for the new one's
    return result


def _result(store: Store, update: Update) -> SyncResult:
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


def _check_target(into: Path, fresh: bool) -> None:
    if into.is_dir():
        raise IndexFileError(f"{into}: is a folder; name a file")
    if fresh and into.exists() and into.suffix != ".diptych":
        try:
            Store.open(into).close()
        except IndexFileError as reason:
            raise IndexFileError(
                f"{into}: not replaced, for it may be something else ({_without(into, reason)})"
            ) from None


def _check_spec(spec: IndexSpec, model: Model, source: Source, into: Path, storage: Storage | None) -> None:
    """Refuse what would mix two things in one index, with the command that does what may have been meant."""
    file = quote(str(into))
    anew = f"diptych index {quote(model.address)} {quote(source.address)} --into {file}"
    if spec.source != source.address:
        raise IndexFileError(
            f"{into}: an index of {spec.source}; name another file with --into, or replace it: {anew} --fresh"
        )
    if spec.identity != model.identity:
        raise IndexFileError(
            f"{into}: made by another model ({spec.model}, {spec.identity[:8]}), and vectors of two models cannot "
            f"be compared; rebuild it: diptych index rebuild {file} --run {quote(model.address)}"
        )
    if storage is not None and storage != spec.storage:
        raise IndexFileError(
            f"{into}: keeps its vectors as {spec.storage}; to change that: {anew} --storage {storage} --fresh"
        )


def _check_listing(listing: Listing, known: int, into: Path, source: Source, model: Model) -> None:
    """Refuse to forget all images that are known because a disk is not there."""
    if known and not listing.files and not listing.unlisted:
        raise DataError(
            f"{source.address}: no image in it, the index has {known:,}; is its disk there? If all are meant to go: "
            f"diptych index {quote(model.address)} {quote(source.address)} --into {quote(str(into))} --fresh"
        )


def _without(path: Path, reason: IndexFileError) -> str:
    return str(reason).removeprefix(f"{path}: ").partition(";")[0]


def _remove(file: Path) -> None:
    file.unlink(missing_ok=True)
    remove_logs(file)
