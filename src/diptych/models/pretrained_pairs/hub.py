"""Files of the Hugging Face hub: from the user's cache and, only if the user has allowed downloads, from the hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from diptych.errors import DiptychError, one_line
from diptych.optional import import_optional, quiet

_allowed: ContextVar[bool] = ContextVar("downloads_allowed", default=False)


def allow_downloads() -> None:
    """Allow downloads from now on, as --download does."""
    _allowed.set(True)


@contextmanager
def downloads(allowed: bool) -> Iterator[None]:
    """Allow downloads within a block; with False, what was allowed before stays allowed."""
    token = _allowed.set(allowed or _allowed.get())
    try:
        yield
    finally:
        _allowed.reset(token)


@contextmanager
def only_from_cache() -> Iterator[None]:
    """Look into the cache only within a block."""
    token = _allowed.set(False)
    try:
        yield
    finally:
        _allowed.reset(token)


def are_downloads_allowed() -> bool:
    """Whether files that are not in the cache may be downloaded."""
    return _allowed.get()


def hub_file(address: str, repository: str, name: str) -> Path | None:
    """A file of a repository; None if the cache (or, if downloads are allowed, the repository) does not have it.

    `address` is what the user asked for, for the error if the hub cannot be reached.
    """
    hub = _hub()
    cached = hub.try_to_load_from_cache(repository, name)
    if isinstance(cached, str):
        return Path(cached)
    if not are_downloads_allowed():
        return None
    errors = import_optional("huggingface_hub.errors", "pip install huggingface_hub")
    try:
        with quiet():
            return Path(hub.hf_hub_download(repository, name))
    except errors.LocalEntryNotFoundError as reason:  # a kind of EntryNotFoundError: the hub was not reached
        raise _unreachable(address, repository, reason) from None
    except errors.EntryNotFoundError:
        return None
    except Exception as reason:  # a proxy, a full disk or a missing permission may raise anything
        raise _unreachable(address, repository, reason) from None


def not_in_cache(address: str, what: str, repository: str) -> DiptychError:
    """The error for a file that the cache does not have, or that the repository does not have."""
    if are_downloads_allowed():
        return DiptychError(f"{address}: {repository} on the hub has no {what}; name a folder that has it")
    folder = import_optional("huggingface_hub.constants", "pip install huggingface_hub").HF_HUB_CACHE
    return DiptychError(
        f"{address}: the {what} of {repository} is not in the cache ({folder}); add --download to fetch it from the "
        "hub (download=True in Python), or name a folder"
    )


def _unreachable(address: str, repository: str, reason: Exception) -> DiptychError:
    return DiptychError(
        f"{address}: {repository} cannot be downloaded from the hub ({one_line(reason)[:120]}); check the connection, "
        "or copy the model from another machine and name its folder"
    )


def _hub() -> Any:
    return import_optional("huggingface_hub", "pip install 'diptych[open-clip]'", instead="a folder")
