"""`diptych open` as a separate process, with a fake model."""

import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from PIL import Image

from diptych.cli.open import has_display
from support.served_model import MODEL

OPEN = (
    MODEL
    + """
import webbrowser
webbrowser.open = lambda url: print("browser", url, flush=True)
Model.load = load
from diptych.cli.main import main
main()
"""
)


def start(tmp_path, *arguments):
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "HOME": str(tmp_path), "DISPLAY": ":0"}
    command = [sys.executable, "-c", OPEN, "open", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def ended(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.skipif(sys.platform != "linux", reason="the data folder is that of Linux")
def test_one_command_indexes_serves_and_opens_the_browser_and_a_second_one_only_opens_it(tmp_path):
    (tmp_path / "Pictures").mkdir()
    Image.new("RGB", (20, 20), "red").save(tmp_path / "Pictures" / "red.png")
    Image.new("RGB", (20, 20), "blue").save(tmp_path / "Pictures" / "blue.gif")
    first = start(tmp_path, tmp_path / "Pictures", "--port", 0, "--ignore", "*.gif", "--quality", "best")
    try:
        url = re.fullmatch(r"searching Pictures at (http://127\.0\.0\.1:\d+)\n", _after_report(first)).group(1)
        assert first.stdout.readline() == f"browser {url}\n"
        with urllib.request.urlopen(f"{url}/search?text=red", timeout=30) as answer:
            assert b'"red.png"' in answer.read()
        code, out, err = ended(start(tmp_path, tmp_path / "Pictures"))
        assert (code, out, err) == (0, f"already running at {url}\nbrowser {url}\n", "")
        code, out, err = ended(start(tmp_path, tmp_path / "Pictures", tmp_path, "--no-browser"))
        assert (code, out) == (0, f"already running at {url}\n")
        assert err.startswith("it goes on unchanged; to add folders or to change options, end it")
        assert err == ended(start(tmp_path, tmp_path / "Pictures", "--no-browser", "--no-ocr"))[2]
        (index,) = (tmp_path / "data" / "diptych").glob("*.diptych")
        assert re.fullmatch(r"Pictures-[0-9a-f]{6}\.diptych", index.name)
        code, out, _ = ended(start(tmp_path, index, "--no-browser"))
        assert out == f"already running at {url}\n"
        first.send_signal(signal.SIGINT)
        code, _, err = ended(first)
    finally:
        first.kill()
    assert (code, err) == (0, f"index: {index}\nindexed 1 of 2 files; ignored 1: 1 by a pattern\nended\n")
    assert [path.name for path in index.parent.iterdir()] == [index.name]


def _after_report(process):
    """The line after that of the first update, which says how many images were encoded."""
    for line in process.stdout:
        if not line[0].isdigit():
            return line
    return process.stderr.read()


def test_a_folder_without_photos_is_one_line(tmp_path):
    (tmp_path / "nothing").mkdir()
    code, out, err = ended(start(tmp_path, tmp_path / "nothing", "--into", tmp_path / "x.diptych"))
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].endswith("nothing: contains no files, so there is nothing to index")
    assert not (tmp_path / "x.diptych").exists()


@pytest.mark.long
def test_a_folder_that_has_vanished_is_waited_for_and_no_log_is_left(tmp_path):
    pytest.importorskip("watchfiles")
    folder, pocket, index = (tmp_path / name for name in ("Pictures", "pocket", "x.diptych"))
    folder.mkdir()
    Image.new("RGB", (20, 20), "red").save(folder / "red.png")
    command = tmp_path, folder, "--into", index, "--port", 0, "--no-browser"
    process = start(*command)
    try:
        assert _after_report(process).startswith("searching Pictures at ")
        process.send_signal(signal.SIGINT)
        ended(process)
    finally:
        process.kill()
    folder.rename(pocket)
    process = start(*command)
    try:
        assert process.stdout.readline().startswith("searching Pictures at ")
        pocket.rename(folder)
        assert process.stdout.readline()[8:] == " up to date again; 1 image\n"
        Image.new("RGB", (20, 20), "blue").save(folder / "blue.png")  # the service reads the index meanwhile
        assert process.stdout.readline()[8:] == " encoded 1, renamed 0, removed 0; 2 images\n"
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)
    finally:
        process.kill()
    assert code == 0
    assert err.count("is its disk connected?") == 1
    assert [path.name for path in tmp_path.glob("*x.diptych*")] == [index.name]


def test_a_browser_needs_a_display():
    assert has_display("linux", {"WAYLAND_DISPLAY": "wayland-0"})
    assert has_display("darwin", {})
    assert not has_display("linux", {"HOME": "/home/ada"})
