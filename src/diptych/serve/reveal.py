"""Shows a file in the file manager of this machine, selected in its folder.

Programs are started with a list of arguments, never through a shell, and the name of a file is always an absolute path
or a file:// URL, so that it cannot be taken for an option.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from diptych.errors import DataError

SECONDS = 5.0  # to wait for a program; one that is still running has probably opened a window

_MANAGER = ("org.freedesktop.FileManager1", "/org/freedesktop/FileManager1")


def reveal(file: Path) -> None:
    """Show a file in its folder; a DataError if no program can do that."""
    for command in commands(file, sys.platform, os.environ):
        if _run(command):
            return
    raise DataError(f"no file manager could be opened on this machine; the file is in {file.parent}")


def commands(file: Path, platform: str, environment: Mapping[str, str]) -> list[list[str]]:
    """The commands that show a file on a platform; the first one that succeeds is enough."""
    if platform == "darwin":
        return [["open", "-R", str(file)]]
    if platform == "win32":
        return [["explorer", f"/select,{file}"]]
    if not environment.get("DISPLAY") and not environment.get("WAYLAND_DISPLAY"):
        return []
    name, path = _MANAGER
    show = f"{name}.ShowItems"
    address = file.as_uri()  # in which commas and quotes are encoded
    return [
        ["gdbus", "call", "--session", "--dest", name, "--object-path", path, "--method", show, f"['{address}']", ""],
        [
            *("dbus-send", "--session", "--print-reply", f"--dest={name}", "--type=method_call"),
            *(path, show, f"array:string:{address}", "string:"),
        ],
        ["xdg-open", str(file.parent)],
    ]


def _run(command: list[str]) -> bool:
    """Whether a program could be started and did not fail; Explorer fails even if it has opened a window."""
    program = shutil.which(command[0])
    if program is None:
        return False
    silent = subprocess.DEVNULL
    try:
        process = subprocess.Popen([program, *command[1:]], stdin=silent, stdout=silent, stderr=silent)
    except OSError:
        return False
    try:
        return process.wait(SECONDS) == 0 or command[0] == "explorer"
    except subprocess.TimeoutExpired:
        threading.Thread(target=process.wait, daemon=True).start()  # which removes it from the process table
        return True
