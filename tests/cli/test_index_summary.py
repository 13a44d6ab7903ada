from diptych.cli.index_summary import describe_files, print_status, print_summary
from diptych.index.sources.accounting import FileCounts
from diptych.index.sync import SyncResult

FILES = FileCounts(1204, 31, 3, 2, {".mov": 31, ".pdf": 20, "without an ending": 6}, {"@eaDir": 2})


def test_every_file_in_one_line():
    assert describe_files(FILES, "see below") == (
        "indexed 1,204 of 1,297 files; 31 with captions; skipped 3 (see below); 2 still to do; "
        "ignored 57: 31 .mov, 20 .pdf, 6 without an ending; ignored folders: 2 @eaDir"
    )
    assert describe_files(FileCounts(5), "") == "indexed 5 of 5 files"


def test_problems_that_are_no_files_are_counted_apart(capsys):
    print_summary(SyncResult(1, 0, 0, 0, 4, 0, files=FileCounts(1, skipped=3)), "a b.diptych", "")
    assert "skipped 3 (`diptych index status 'a b.diptych'` lists them); other problems: 1" in capsys.readouterr().out


def test_files_that_need_a_package_say_which(capsys):
    needed = {"*.heic": "2 files: pip install 'diptych[heic]'"}
    print_summary(SyncResult(1, 0, 0, 0, 1, 0, files=FileCounts(1, skipped=2), needs_packages=needed), "x", "")
    assert capsys.readouterr().err.startswith("*.heic: 2 files: pip install 'diptych[heic]'\nnext: ")


def test_the_status_of_an_index_of_several_folders(capsys):
    print_status(
        {
            "file": "x.diptych",
            "bytes": 5,
            "model": "starter",
            "quality": "fast",
            "reads_words": True,
            "identity": "f" * 64,
            "size": 4,
            "rescores": False,
            "source": "/a, /b",
            "folders": [{"name": "a", "path": "/a"}, {"name": "b", "path": "/b"}],
            "ignored_patterns": ["*.gif", "raw/"],
            "follows_links": True,
            "files": FILES.to_json(),
            "images": 1204,
            "texts": 0,
            "synced": None,
            "complete": True,
            "storage": "float16",
            "storage_cost": {},
            "measured_with": 0,
            "caches": [],
            "problems": [{"key": "c.jpg", "reason": "an empty file"}],
        }
    )
    shown = capsys.readouterr().out
    for part in ("a: /a", "b: /b", "*.gif, raw/", "are followed", "indexed 1,204 of", "c.jpg: an empty file"):
        assert part in shown
