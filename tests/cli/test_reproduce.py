"""`diptych reproduce`: the list, the plan, the results, and errors of one line."""

import json

import pytest

from diptych.reproduction import claims
from support.claims import DATA, claim_files_of

COMMAND = ("reproduce",)
ALL = ("all", "--data", DATA, "--device", "cpu")


@pytest.fixture(scope="module")
def tiny_files(tmp_path_factory):
    return claim_files_of(tmp_path_factory.mktemp("claims"))


@pytest.fixture(autouse=True)
def tiny_claims(tiny_files, monkeypatch, tmp_path):
    monkeypatch.setattr(claims, "claim_files", lambda: tiny_files)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def folder(tiny_files, tmp_path_factory, invoke):
    folder = tmp_path_factory.mktemp("folder") / "claims"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "claim_files", lambda: tiny_files)
        patch.chdir(folder.parent)
        result = invoke(*ALL, "--into", folder)
    assert result.exit_code == 0, result.output
    return folder, result


def test_the_list_needs_no_data(invoke):
    result = invoke("--list")
    assert result.exit_code == 0
    assert "3 claims" in result.stdout
    for text in ("tiny.max-beats-sum", "Max beats sum.", "Table 1", "identities"):
        assert text in result.stdout
    assert "tiny.people" not in invoke("tiny.max-beats-sum", "--list").stdout


def test_a_dry_run_prints_the_plan_and_leaves_nothing(invoke, tmp_path):
    result = invoke(*ALL, "--dry-run", "--budget", "1h", "--into", "out")
    assert result.exit_code == 0
    assert "tiny.max-beats-sum" in result.stdout
    assert "21 tasks, finished after about" in result.stdout
    assert "(times stated;" in result.stdout
    assert "not applicable: tiny.people: no identity of train has several images" in result.stderr
    assert not (tmp_path / "out").exists()


def test_results_are_printed_and_written(folder):
    folder, result = folder
    content = json.loads((folder / "claims.json").read_text())
    for claim in content["claims"]:
        assert claim["id"] in result.stdout
        assert claim["verdict"] in result.stdout
    assert [claim["id"] for claim in content["claims"]] == ["tiny.max-beats-sum", "tiny.many-things"]
    assert (folder / "claims.md").read_text().startswith("# Claims on scenes")
    assert "<html" in (folder / "claims.html").read_text()
    assert "21 of 21: " in result.stderr
    assert "claims.html, claims.md and claims.json" in result.stderr


def test_the_same_command_trains_nothing_again(folder, invoke):
    records = {file: file.stat().st_mtime_ns for file in (folder[0] / "records").iterdir()}
    before = json.loads((folder[0] / "claims.json").read_text())
    result = invoke(*ALL, "--into", folder[0])
    assert result.exit_code == 0
    assert "finished" in result.stdout
    assert "begins" not in result.stderr
    assert {file: file.stat().st_mtime_ns for file in (folder[0] / "records").iterdir()} == records
    assert json.loads((folder[0] / "claims.json").read_text()) == before


def test_what_fails_is_reported(invoke, monkeypatch):
    from diptych.errors import RunError
    from diptych.reproduction.tasks import TrainTask

    def fail(self, _place):
        raise RunError("the disk is full")

    monkeypatch.setattr(TrainTask, "perform", fail)
    result = invoke("tiny.max-beats-sum", *ALL[1:], "--into", "failing")
    assert result.exit_code == 0
    assert "failed: train vse-" in result.stderr
    assert ": the disk is full" in result.stderr
    assert {"not", "measured", "disk", "full"} <= set(result.stdout.split())  # in cells of any width


def test_wrong_requests_are_refused_in_one_line(refused, tmp_path):
    assert "did you mean 'tiny.max-beats-sum'" in refused("tiny.max-beats-sums", *ALL[1:])
    assert "name the claims and the corpus" in refused("all")
    assert "name the claims and the corpus" in refused("--data", DATA)
    assert "write a duration" in refused(*ALL, "--budget", "soon")
    assert "too small for one run; the shortest, " in refused(*ALL, "--budget", "0.001s")
    assert not (tmp_path / "runs").exists()
