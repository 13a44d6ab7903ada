from __future__ import annotations

import warnings

from diptych.cli.console import (
    print_error,
    print_note,
    print_result,
    print_skipped,
    print_unknown_texts,
    printable,
    progress_bar,
    show_warnings,
)
from diptych.model import Model
from diptych.plugins import PluginWarning


def test_control_characters_are_escaped():
    assert printable("a\x1b[2Jb\tc\nd é") == "a\\x1b[2Jb\\tc\nd é"


def test_results_go_to_stdout_and_messages_to_stderr(capsys):
    print_result("the [bold]result[/] " + 30 * "long ")
    print_note("a note")
    print_error("broken\n  file")
    printed = capsys.readouterr()
    assert printed.out == "the [bold]result[/] " + 30 * "long " + "\n"
    assert printed.err == "a note\ndiptych: broken file\n"


def test_only_the_first_skipped_images_are_printed(capsys):
    print_skipped({f"{number}.jpg": f"{number}.jpg: damaged" for number in range(7)})
    lines = capsys.readouterr().err.splitlines()
    assert lines[:5] == [f"skipped {number}.jpg: damaged" for number in range(5)]
    assert lines[5:] == ["skipped 2 more images; `diptych data check` lists them all"]
    print_skipped({})
    assert capsys.readouterr().err == ""


def test_texts_without_a_known_word_are_counted(capsys, tiny_run):
    model = Model.load(tiny_run, "cpu")
    print_unknown_texts(model, ["a red circle", "xyzzy", "qwx"])
    assert "2 of 3 texts contain no word that the run knows; the first is 'xyzzy'" in capsys.readouterr().err
    print_unknown_texts(model, ["a red circle"])
    assert capsys.readouterr().err == ""


def test_without_a_terminal_a_progress_bar_prints_nothing(capsys):
    with progress_bar("encoding") as progress:
        progress(1, 2)
        progress(2, 2)
    assert capsys.readouterr() == ("", "")


def test_a_warning_about_a_plugin_is_a_note(capsys, monkeypatch):
    others = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *place: others.append(str(message)))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        show_warnings()
        warnings.warn("the plug-in x has changed", PluginWarning, stacklevel=1)
        assert capsys.readouterr().err == "the plug-in x has changed\n"
        warnings.warn("something else", UserWarning, stacklevel=1)
    assert others == ["something else"]
    assert capsys.readouterr().err == ""
