"""`diptych watch` as people use it; that no change is lost is tested in tests/index/test_watch.py."""

import signal
import subprocess
import sys

import pytest
from PIL import Image

from diptych.cli.watch import UpdateReports, command
from diptych.errors import IndexFileError
from diptych.index.sources.accounting import FileCounts
from diptych.index.sync import SyncResult
from support.served_model import MODEL


def test_an_update_is_one_line_and_none_if_nothing_has_changed(capsys):
    report = UpdateReports()
    report(SyncResult(2, 5, 1, 3, 0, 0, files=FileCounts(1008)))
    report(SyncResult(0, 8, 0, 0, 0, 0, files=FileCounts(1008)))
    report(SyncResult(0, 8, 0, 0, 1, 0, files=FileCounts(1009), copies=1, failed=2))
    report(SyncResult(0, 8, 0, 0, 0, 2, files=FileCounts(1)))
    printed = capsys.readouterr()
    first, second, third = printed.out.splitlines()
    assert first[8:] == " encoded 2, renamed 1, removed 3; 1,008 images"
    assert second[8:] == " encoded 0, renamed 0, removed 0, 1 copy, 2 unreadable; 1,009 images"
    assert third[8:] == " encoded 0, renamed 0, removed 0, 2 new texts; 1 image"
    assert printed.err == ""


def test_an_error_is_one_line_and_so_is_its_end(capsys):
    report, unchanged = UpdateReports(), SyncResult(0, 8, 0, 0, 0, 0, files=FileCounts(8))
    for _ in range(2):
        report("photos: cannot be read;\nis its disk connected?")
    assert capsys.readouterr().err == "diptych: photos: cannot be read; is its disk connected?\n"
    for _ in range(2):
        report(unchanged)
    (line,) = capsys.readouterr().out.splitlines()
    assert line[8:] == " up to date again; 8 images"


def test_a_folder_that_is_not_indexed_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with pytest.raises(IndexFileError, match=f"a folder, not an index; make one of it: diptych open {tmp_path}, or"):
        command(str(tmp_path))


WATCH = (
    MODEL
    + """
from diptych.index.sync import sync
sync(FakeModel(), sys.argv[2], sys.argv[3])
sys.argv[1:] = ["watch", sys.argv[3], *sys.argv[4:]]
Model.load = load
from diptych.cli.main import main
main()
"""
)


def test_a_watch_prints_one_line_per_update_and_ends_with_ctrl_c(tmp_path):
    folder, index = tmp_path / "photos", tmp_path / "x.diptych"
    folder.mkdir()
    Image.new("RGB", (20, 20), "red").save(folder / "red.png")
    command = [sys.executable, "-c", WATCH, "-", str(folder), str(index), "--poll", "0.2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr.readline() == f"watching {folder} for {index}, every 0.2 s; Ctrl-C ends it\n"
        Image.new("RGB", (20, 20), "blue").save(folder / "blue.png")
        assert process.stdout.readline()[8:] == " encoded 1, renamed 0, removed 0; 2 images\n"
        folder.rename(tmp_path / "pocket")
        assert "is its disk connected? Nothing was changed" in process.stderr.readline()
        (tmp_path / "pocket").rename(folder)
        assert process.stdout.readline()[8:] == " up to date again; 2 images\n"
        index.unlink()
        assert f"{index}: no such index" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, "", "ended\n")
