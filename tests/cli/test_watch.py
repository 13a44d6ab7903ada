"""`diptych watch` as people use it; that no change is lost is tested in tests/index/test_watch.py."""

import signal
import subprocess
import sys

from PIL import Image

from diptych.cli.watch import report
from diptych.index.sources.accounting import FileCounts
from diptych.index.sync import SyncResult
from support.served_model import MODEL


def test_an_update_is_one_line_and_none_if_nothing_has_changed(capsys):
    report(SyncResult(2, 5, 1, 3, 0, 0, files=FileCounts(1008)))
    report(SyncResult(0, 8, 0, 0, 0, 0, files=FileCounts(1008)))
    report("photos: cannot be read;\nis its disk connected?")
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    assert line[8:] == " encoded 2, renamed 1, removed 3; 1,008 images"
    assert printed.err == "diptych: photos: cannot be read; is its disk connected?\n"


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
        assert process.stderr.readline() == f"watching {folder} for {index}, every 0.2 seconds; Ctrl-C ends it\n"
        Image.new("RGB", (20, 20), "blue").save(folder / "blue.png")
        assert process.stdout.readline()[8:] == " encoded 1, renamed 0, removed 0; 2 images\n"
        folder.rename(tmp_path / "pocket")
        assert "is its disk connected? Nothing was changed" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, "", "ended\n")
