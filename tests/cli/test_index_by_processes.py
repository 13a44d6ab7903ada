"""`diptych index --devices`: two real processes without torch make the index of one."""

import os
import subprocess
import sys

import pytest

from diptych.index.sqlite.store import Store
from support.photo_folders import draw


@pytest.mark.long
def test_two_processes_make_the_index_of_one_without_torch(tmp_path):
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "torch.py").write_text("raise ImportError('torch is not installed')")
    (tmp_path / "photos").mkdir()
    for number in range(40):
        draw(number, (60, 45)).save(tmp_path / "photos" / f"{number:02}.png")
    (tmp_path / "photos" / "broken.jpg").write_bytes(b"nothing")
    (tmp_path / "photos" / "07.txt").write_text("a red square")
    found = []
    for number, words in enumerate(
        (
            ("starter", "photos", "--into", "1.diptych"),
            ("starter", "photos", "--into", "2.diptych", "--devices", "2"),
            ("rebuild", "2.diptych", "--devices", "2"),
        )
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "diptych", "index", *words],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path / "blocked")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert "indexed 40 of 42 files" in ended.stdout
        store = Store.open(tmp_path / f"{min(number + 1, 2)}.diptych")
        ids, vectors = store.vectors("image")
        found.append(([(entry.id, entry.key) for entry in store.entries(ids)], vectors.tobytes(), ended.stdout))
        store.close()
    (entries, vectors, report), *others = found
    for theirs, their_vectors, _ in others:
        assert entries == theirs
        assert vectors == their_vectors
    assert report.replace("1.diptych", "2.diptych") == others[0][2]
