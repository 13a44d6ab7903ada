"""Showing a file in its folder: which commands, and what happens if they fail. No window is opened."""

import subprocess
from pathlib import Path

import pytest

from diptych.errors import DataError
from diptych.serve import reveal as module
from diptych.serve.reveal import commands, reveal

FILE = Path("/photos/a, 'b' \"c\" $(d)\n-e.jpg")
DESKTOP = {"DISPLAY": ":0"}


def test_each_platform_has_its_commands():
    assert commands(FILE, "darwin", {}) == [["open", "-R", str(FILE)]]
    assert commands(FILE, "win32", {}) == [["explorer", f"/select,{FILE}"]]
    assert [command[0] for command in commands(FILE, "linux", DESKTOP)] == ["gdbus", "dbus-send", "xdg-open"]
    assert commands(FILE, "linux", {"WAYLAND_DISPLAY": "wayland-0"}) == commands(FILE, "linux", DESKTOP)
    assert commands(FILE, "linux", {}) == []


def test_names_cannot_break_out_of_their_argument():
    gdbus, send, opened = commands(FILE, "linux", DESKTOP)
    assert "['file:///photos/a%2C%20%27b%27%20%22c%22%20%24%28d%29%0A-e.jpg']" in gdbus
    assert "array:string:file:///photos/a%2C%20%27b%27%20%22c%22%20%24%28d%29%0A-e.jpg" in send
    assert opened == ["xdg-open", "/photos"]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder of programs, the only one that is searched; each notes that it was started."""

    def add(name, script):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{name} $@" >> {tmp_path}/log\n{script}\n')
        program.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(module.sys, "platform", "linux")
    add.log = tmp_path / "log"
    return add


def test_the_first_that_succeeds_is_enough(programs):
    programs("gdbus", "exit 1")
    programs("dbus-send", "exit 0")
    programs("xdg-open", "exit 0")
    reveal(Path("/photos/a.jpg"))
    assert [line.split()[0] for line in programs.log.read_text().splitlines()] == ["gdbus", "dbus-send"]


def test_without_a_file_manager_it_says_where_the_file_is(programs):
    programs("xdg-open", "exit 3")
    with pytest.raises(DataError, match="no file manager could be opened on this machine; the file is in /photos"):
        reveal(Path("/photos/a.jpg"))


def test_a_program_that_goes_on_is_left_alone(programs, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.05)
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(module.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    programs("xdg-open", "exec /bin/sleep 30")
    try:
        reveal(Path("/photos/a.jpg"))
        assert started[0].poll() is None
    finally:
        started[0].terminate()
        started[0].wait()


def test_a_program_that_cannot_be_started_counts_as_missing(programs, tmp_path):
    programs("xdg-open", "")
    (tmp_path / "xdg-open").write_bytes(b"\x7fELF")
    with pytest.raises(DataError, match="no file manager"):
        reveal(Path("/photos/a.jpg"))
