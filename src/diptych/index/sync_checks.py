"""What a sync refuses: to mix models, sources or ways of storing, to lose images, and to make an index of nothing."""

from __future__ import annotations

from shlex import join, quote

from diptych.errors import DataError, IndexFileError
from diptych.features.choices import Quality
from diptych.index.backend import IndexLocation, IndexStore
from diptych.index.sources.accounting import FileCounts
from diptych.index.sources.listing import Listing, Source
from diptych.index.spec import IndexSpec
from diptych.index.vectors import Storage
from diptych.model import Model

_EXAMPLES = 3


def check_spec(
    spec: IndexSpec,
    model: Model,
    source: Source,
    into: IndexLocation,
    storage: Storage | None,
    quality: Quality | None = None,
) -> None:
    """Refuse to mix models, sources or ways of storing in one index; the error names the command that may be meant."""
    file = quote(str(into))
    command = sync_command(model, source, into)
    if not _is_extended_by(spec, source):
        known = [path for _, path in spec.folders] or ([spec.source] if spec.root == spec.source else [])
        is_folder = bool(known) and (bool(source.folders) or source.root == source.address)
        add = f", add to it: diptych index {join([model.address, *known[:1], *_paths(source)])} --into {file}"
        raise IndexFileError(
            f"{into}: an index of {spec.source}; name another file with --into{add if is_folder else ''}, "
            f"or replace it: {command} --fresh"
        )
    if spec.identity != model.identity:
        raise IndexFileError(
            f"{into}: made by another model ({spec.model}, {spec.identity[:8]}); vectors of two models cannot be "
            f"compared; rebuild it: diptych index rebuild {file} --run {quote(model.address)}"
        )
    if quality not in (None, spec.quality) and model.engine.quality == quality:
        raise IndexFileError(
            f"{into}: has the quality {spec.quality!r}; to change that: {command} --quality {quality} --fresh"
        )
    if storage is not None and storage != spec.storage:
        raise IndexFileError(
            f"{into}: stores vectors as {spec.storage}; to change that: {command} --storage {storage} --fresh"
        )


def check_listing(listing: Listing, store: IndexStore | None, source: Source) -> None:
    """Refuse to make an index of nothing, and to remove all known images because a disk is not connected.

    If one of several folders has no images left, those that are known are kept, with a problem that says so.
    """
    known = 0 if store is None else store.counts()["image"]
    if not listing.files and not listing.unlisted and not known:
        raise DataError(_nothing_found(listing, source))
    if store is None:
        return
    if not listing.files and not listing.unlisted:
        patterns = source.selection.ignored
        cause = (
            f"do the patterns {', '.join(map(repr, patterns))} ignore all?" if patterns else "is its disk connected?"
        )
        raise DataError(
            f"{source.address}: contains no image, but the index has {known:,}; {cause} Nothing was changed; to give "
            f"them up, delete {store.address}"
        )
    for name, path in source.folders:
        prefix = f"{name}/"
        if prefix in listing.unlisted or any(key.startswith(prefix) for key in listing.files):
            continue
        kept = sum(key.startswith(prefix) for key in store.image_stamps())
        if kept:
            listing.unlisted.append(prefix)
            listing.problems[prefix] = (
                f"contains no image now, but the index has {kept:,}, which are kept; is its disk connected? "
                f"To remove them: --remove-folder {quote(path)}"
            )


def nothing_readable(store: IndexStore, source: Source) -> DataError:
    """The error for a source with images, none of which could be read."""
    problems = store.problems()
    first = "; ".join(f"{key}: {reason}" for key, reason in problems[:_EXAMPLES])
    more = f"; and {len(problems) - _EXAMPLES:,} more" if len(problems) > _EXAMPLES else ""
    return DataError(f"{source.address}: none of its images can be read, so there is nothing to index ({first}{more})")


def sync_command(model: Model, source: Source, into: IndexLocation) -> str:
    """The command that brings an index up to date, with what a new index in its place has to be told again."""
    selection = source.selection
    words = ["diptych", "index", model.address, *(_paths(source)), "--into", str(into)]
    for pattern in selection.ignored:
        words += ["--ignore", pattern]
    return join([*words, *(["--follow-links"] if selection.follow_links else [])])


def _is_extended_by(spec: IndexSpec, source: Source) -> bool:
    """Whether an index of `spec` may become one of a source: the same one, or with more or fewer folders."""
    if spec.folders:
        return bool({*spec.folders} & {*source.folders})
    return spec.source == source.address or spec.source in [path for _, path in source.folders]


def _paths(source: Source) -> list[str]:
    return [path for _, path in source.folders] or [source.address]


def _nothing_found(listing: Listing, source: Source) -> str:
    counts = FileCounts.count(listing, ())
    if listing.problems:
        key, reason = min(listing.problems.items())
        return f"{source.address}: no image can be read ({key}: {reason}); no index was made"
    if not counts.found:
        folders = f"; ignored folders: {', '.join(counts.folders)}" if counts.folders else ""
        return f"{source.address}: contains no files, so there is nothing to index{folders}"
    return f"{source.address}: contains no image that can be indexed; ignored {counts.ignored_text()}"
