"""Patterns ignore what git ignores with the same lines in a .gitignore."""

import os
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import DataError
from diptych.index.sources.selection import Selection, check_patterns, is_hidden


@pytest.mark.parametrize(
    ("pattern", "ignored", "kept"),
    [
        ("*.gif", ["a.gif", "b/c/A.GIF"], ["a.gif.png", "gif"]),
        ("private", ["private", "a/private", "private/x.jpg"], ["a/privately.jpg", "not private"]),
        ("private/", ["private/x.jpg", "a/private/x.jpg"], ["private"]),
        ("/raw", ["raw/a.jpg", "raw"], ["b/raw/a.jpg"]),
        ("2019/*.jpg", ["2019/a.jpg"], ["2019/b/a.jpg", "x/2019/a.jpg"]),
        ("2019/**/edited", ["2019/edited/a.jpg", "2019/a/b/edited"], ["edited/a.jpg"]),
        ("**/edited/*", ["edited/a.jpg", "a/edited/b.jpg"], ["edited.jpg"]),
        ("trash/**", ["trash/a.jpg", "trash/b/a.jpg"], ["b/trash/a.jpg"]),
        ("IMG_[0-4]?.jpg", ["img_01.jpg", "a/IMG_4x.jpg"], ["img_51.jpg", "img_1.jpg"]),
        ("[!a]*.png", ["b.png"], ["a.png", "ab.png"]),
        (r"\[x].jpg", ["[x].jpg"], ["x.jpg"]),
        ("a[b.jpg", ["a[b.jpg"], ["ab.jpg"]),
    ],
)
def test_what_a_pattern_ignores(pattern, ignored, kept):
    selection = Selection((pattern,))
    assert [path for path in ignored if not selection.leaves_out(path)] == []
    assert [path for path in kept if selection.leaves_out(path)] == []


def test_a_later_pattern_takes_back_what_an_earlier_one_ignores():
    selection = Selection(("*.png", "!keep.png", "cut", "!cut/keep.png"))
    assert not selection.leaves_out("a/keep.png")
    assert selection.leaves_out("a/other.png")
    assert selection.leaves_out("cut/keep.png")  # the folder is not entered


def test_hidden_files_and_those_of_a_system():
    assert all(is_hidden(name, folder=True) for name in (".git", "@eaDir", ".thumbnails", "$RECYCLE.BIN"))
    assert all(is_hidden(name, folder=False) for name in (".a.jpg", "Thumbs.db", "desktop.ini"))
    assert not is_hidden("@eaDir", folder=False)
    assert Selection().leaves_out("a/@eaDir/b.jpg")
    assert not Selection().leaves_out("a/b.jpg")
    assert Selection().ignores is None


@pytest.mark.parametrize("pattern", ["", "/", "!", "a//b"])
def test_a_pattern_that_matches_nothing_is_refused(pattern):
    with pytest.raises(DataError, match="matches nothing; write a pattern such as"):
        check_patterns([pattern])


NAMES = st.sampled_from(["a", "b", "ab", "a.b", "B"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
PARTS = st.sampled_from(["a", "b", "*", "a*", "?", "[ab]", "[!a]", "**", "*.b", "ab"])
PATTERNS = st.builds(
    lambda start, parts, end: start + "/".join(parts) + end,
    st.sampled_from(["", "", "/", "!"]),
    st.lists(PARTS, min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_patterns_ignore_what_git_ignores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("git")
    quiet = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    git = ["git", "-C", str(folder), "-c", "core.ignoreCase=true"]
    subprocess.run([*git, "init", "-q"], check=True, env=quiet)

    @settings(max_examples=25)
    @given(st.lists(PATTERNS, min_size=1, max_size=3), st.lists(PATHS, min_size=1, max_size=8, unique=True))
    def agree(patterns, paths):
        (folder / ".gitignore").write_text("\n".join(patterns) + "\n")
        command = [*git, "check-ignore", "--no-index", "--stdin", "-z"]
        found = subprocess.run(command, input="\0".join(paths), capture_output=True, text=True, env=quiet, check=False)
        assert found.returncode in (0, 1), found.stderr
        selection = Selection(check_patterns(patterns))
        assert {path for path in paths if selection.leaves_out(path)} == set(found.stdout.split("\0")) - {""}

    agree()
