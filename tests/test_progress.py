import io
import re

from rich.console import Console

from diptych.progress import no_progress, open_progress, progress_bar


def test_no_progress_accepts_updates_and_shows_nothing(capsys):
    with no_progress("encoding") as progress:
        progress(1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal():
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80)
    with progress_bar("encoding", terminal) as progress:
        progress(3, 7)
    assert "encoding" in terminal.file.getvalue()
    assert "3/7" in terminal.file.getvalue()


def test_a_bar_with_a_unit_shows_the_rate_and_the_time_left():
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80)
    with progress_bar("indexing", terminal, "photos") as progress:
        for done in (1, 2, 3):
            progress(done, 7)
    assert re.search(r"3/7 [\d,.]+ photos/s [\d-]:", re.sub(r"\x1b\[[\d;]*m", "", terminal.file.getvalue()))


def test_no_bar_in_a_file():
    file = Console(file=io.StringIO(), force_terminal=False)
    with progress_bar("encoding", file) as progress:
        progress(3, 7)
    assert not file.file.getvalue()


def test_the_progress_that_a_user_asked_for(capsys):
    def own(done, total):
        pass

    with open_progress(own, "encoding") as progress:
        assert progress is own
    for nothing in (None, False):
        with open_progress(nothing, "encoding") as progress:
            assert progress is None
    with open_progress(True, "encoding") as progress:
        progress(1, 2)
    assert capsys.readouterr() == ("", "")
