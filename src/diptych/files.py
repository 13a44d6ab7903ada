"""Files that are never half-written, and locks that keep two processes from writing the same thing."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from diptych.errors import DiptychError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; after the block it replaces `path`, or is removed if the block raised."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; name a file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        with temporary.open("r+b") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except BaseException as reason:
        temporary.unlink(missing_ok=True)
        if isinstance(reason, OSError) and reason.errno == errno.ENOSPC and reason.filename is None:
            reason.filename = str(path)  # a write does not know the name of its file
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files that a killed process left in or below a folder."""
    for pattern in (".*.tmp", ".tmp*"):  # those of `atomic_write`, and those of safetensors
        for leftover in folder.rglob(pattern):
            leftover.unlink(missing_ok=True)


@contextmanager
def locked_folder(folder: Path, error: type[DiptychError]) -> Iterator[None]:
    """Lock a folder while the block runs; if another process has locked it, raise `error` with its process id."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+", encoding="utf-8") as lock:
        if not _try_lock(lock):
            raise error(_locked_message(folder, lock))
        yield


@contextmanager
def locked_file(file: Path, error: type[DiptychError], timeout: float = 0.0) -> Iterator[None]:
    """Lock a file while the block runs, through a lock file beside it that is removed afterwards.

    If another process has locked it for longer than `timeout` seconds, raise `error` with its process id.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    path = file.parent / f".{file.name}.lock"
    deadline = time.monotonic() + timeout
    while True:
        with _open_lock_file(path, file, error) as lock:
            if not _try_lock(lock):
                if time.monotonic() >= deadline:
                    raise error(_locked_message(file, lock))
                time.sleep(0.1)
            elif _is_file_at(path, lock):  # otherwise its last owner has removed it: try again with a new one
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return


def _open_lock_file(path: Path, file: Path, error: type[DiptychError]) -> TextIO:
    try:
        return path.open("a+", encoding="utf-8")
    except OSError as reason:  # no permission, or a file system that is read-only or full
        raise error(
            f"{file}: its folder cannot be written to ({reason.strerror}); check its permissions or choose another"
        ) from None


def _try_lock(lock: TextIO) -> bool:
    """Try to lock an open file, and write the id of this process into it."""
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return True


def _locked_message(path: Path, lock: TextIO) -> str:
    lock.seek(0)
    return f"{path}: process {lock.read().strip()} is writing to it; wait for it or end it"


def _is_file_at(path: Path, file: TextIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def file_hash(path: Path) -> str:
    """The SHA-256 digest of a regular file's bytes; OSError if there is no such file.

    Anything but a regular file is refused, because reading a pipe could wait forever.
    """
    digest = hashlib.sha256()
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path}: not an ordinary file")
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path, error: type[DiptychError]) -> Any:
    """Read a JSON file; a file that cannot be read raises `error` with one line."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except UnicodeDecodeError as reason:
        raise error(f"{path}: not UTF-8 text ({reason.reason} at byte {reason.start}); save it as UTF-8") from None
    except json.JSONDecodeError as reason:
        raise error(f"{path}:{reason.lineno}: not valid JSON ({reason.msg}); is the file complete?") from None
    except (ValueError, RecursionError):
        raise error(f"{path}: its numbers are too long or it is nested too deeply to be read") from None
    except OSError as reason:
        raise error(f"{path}: cannot be read ({reason.strerror})") from None
