"""Files that are never half-written: everything goes to a temporary name and is renamed when complete."""

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
    """Give a temporary path beside `path`; on success it is synced and renamed to `path`, else removed."""
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
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that a killed process left in a folder and below it."""
    for pattern in (".*.tmp", ".tmp*"):  # ours, and those of safetensors
        for leftover in folder.rglob(pattern):
            leftover.unlink(missing_ok=True)


@contextmanager
def locked_folder(folder: Path, error: type[DiptychError]) -> Iterator[None]:
    """Hold a folder for one process, as long as the block runs; a second one is refused with who holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+", encoding="utf-8") as lock:
        if not _locked(lock):
            raise error(_held_by(folder, lock))
        yield


@contextmanager
def locked_file(file: Path, error: type[DiptychError], patience: float = 0.0) -> Iterator[None]:
    """Hold a file for one process by a lock beside it, which is gone afterwards.

    A second process waits as long as its `patience` lasts, in seconds, and is then refused with who holds it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    path = file.parent / f".{file.name}.lock"
    until = time.monotonic() + patience
    while True:
        with _opened_lock(path, file, error) as lock:
            if not _locked(lock):
                if time.monotonic() >= until:
                    raise error(_held_by(file, lock))
                time.sleep(0.1)
            elif _is_open_at(path, lock):  # else who held it before has removed it: begin again with a new one
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return


def _opened_lock(path: Path, file: Path, error: type[DiptychError]) -> TextIO:
    try:
        return path.open("a+", encoding="utf-8")
    except PermissionError as reason:
        raise error(
            f"{file}: its folder cannot be written to ({reason.strerror}); check its permissions, or name another place"
        ) from None


def _locked(lock: TextIO) -> bool:
    """Try to hold an open file, and say in it who does."""
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return True


def _held_by(what: Path, lock: TextIO) -> str:
    lock.seek(0)
    return f"{what}: process {lock.read().strip()} is writing here; wait for it or end it"


def _is_open_at(path: Path, file: TextIO) -> bool:
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
    """Write a whole text file or nothing."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a whole JSON file or nothing."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path, error: type[DiptychError]) -> Any:
    """Read a JSON file; what is wrong with it becomes one line of the given error."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except UnicodeDecodeError as reason:
        raise error(f"{path}: not UTF-8 text ({reason.reason} at byte {reason.start}); save it as UTF-8") from None
    except json.JSONDecodeError as reason:
        raise error(f"{path}:{reason.lineno}: not valid JSON ({reason.msg}); is the file complete?") from None
    except (ValueError, RecursionError):
        raise error(f"{path}: JSON with absurd numbers or nesting; it cannot be read") from None
    except OSError as reason:
        raise error(f"{path}: cannot be read ({reason.strerror})") from None
