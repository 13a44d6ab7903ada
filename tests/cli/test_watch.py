"""`diptych watch` as people use it; what it does is tested in tests/index/test_watch.py."""

from diptych.cli.watch import report
from diptych.index.sources.accounting import FileCounts
from diptych.index.sync import SyncResult


def test_an_update_is_one_line_and_none_if_nothing_has_changed(capsys):
    report(SyncResult(2, 5, 1, 3, 0, 0, files=FileCounts(1008)))
    report(SyncResult(0, 8, 0, 0, 0, 0, files=FileCounts(1008)))
    report("photos: cannot be read;\nis its disk connected?")
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    assert line[8:] == " encoded 2, renamed 1, removed 3; 1,008 images"
    assert printed.err == "diptych: photos: cannot be read; is its disk connected?\n"
