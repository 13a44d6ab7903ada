"""`diptych evaluate` with what goes beyond the table of recalls."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.errors import DiptychError
from diptych.evaluation.cross_retrieval import cross_retrieval
from diptych.evaluation.rerank import rerank
from diptych.evaluation.runs import encoded_score, evaluate_encoded
from diptych.models.encoded import Encoded
from diptych.models.image_towers.features import FeatureSettings
from diptych.models.region_towers.features import RegionFeatureSettings
from diptych.models.scan import SCANSettings
from diptych.models.text_towers.gru import GRUSettings
from diptych.models.vse import VSESettings

VSE = VSESettings(joint=4, text=GRUSettings(hidden=4), image=FeatureSettings(shape=(4,)), words=9)
SCAN = SCANSettings(joint=4, image=RegionFeatureSettings(shape=(3, 4)), words=9)


def encoded(settings, digest="one", images=8):
    random = torch.Generator().manual_seed(1)
    sets = settings.name == "scan"
    shapes = ((images, 3, 4), (2 * images, 5, 4)) if sets else ((images, 4), (2 * images, 4))
    vectors = [normalize(torch.randn(shape, generator=random), dim=-1) for shape in shapes]
    return Encoded(settings, *vectors, np.arange(images), np.arange(2 * images) // 2, digest)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoded(VSE).save(tmp_path / "vse.safetensors")
    encoded(SCAN).save(tmp_path / "scan.safetensors")
    encoded(VSE, "two", 6).save(tmp_path / "other.safetensors")


def invoke(*words):
    return CliRunner().invoke(app, ["evaluate", *words])


def refused(*words):
    """The one line that the command refuses with."""
    result = invoke(*words)
    assert isinstance(result.exception, DiptychError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_rerank_tells_recall_against_the_length_of_the_lists(tmp_path):
    words = ("scan.safetensors", "--rerank", "5,2,all", "--with", "vse.safetensors")
    told = json.loads(invoke(*words, "--json", "--into", "a.json").stdout)
    expected = rerank([encoded(SCAN)], encoded(VSE), [2, 5], every=True).to_json()
    rows = [{key: row[key] for key in row if key != "seconds"} for row in told["rerank"]]
    assert rows == [{key: row[key] for key in row if key != "seconds"} for row in expected["rerank"]]
    assert json.loads((tmp_path / "a.json").read_text()) == told
    printed = invoke(*words).stdout
    assert "reranked: 8 images, 16 texts" in printed
    lines = [line.split()[0] for line in printed.splitlines() if line.strip()]
    assert [line for line in lines if line in ("list", "2", "5", "all")] == ["list", "2", "5", "all"]
    assert [row["top"] for row in json.loads(invoke(*words[:2], "3", *words[3:], "--json").stdout)["rerank"]] == [0, 3]


def test_an_ensemble_reranks(tmp_path):
    words = ("scan.safetensors", "scan.safetensors", "--rerank", "4", "--with", "vse.safetensors", "--json")
    told = json.loads(invoke(*words).stdout)["rerank"][1]
    assert told["metrics"] == rerank([encoded(SCAN)], encoded(VSE), [4]).rows[1].metrics.to_json()


def test_cross_adds_the_ranks_of_the_pairs():
    one = encoded(SCAN)
    told = json.loads(invoke("scan.safetensors", "--cross", "--json").stdout)
    expected = cross_retrieval(encoded_score(one), one.image_groups, one.text_groups).to_json()
    assert told.pop("cross_retrieval") == expected
    assert told == evaluate_encoded([one]).to_json()
    assert "cross-retrieval rank of 16 pairs" in invoke("scan.safetensors", "--cross").stdout
    assert "cross-retrieval" not in invoke("scan.safetensors").stdout


def test_refusals_are_one_line(tmp_path):
    scan, cheap = "scan.safetensors", ("--with", "vse.safetensors")
    assert "--rerank N needs the run that lists" in refused(scan, "--rerank", "5")
    assert "--rerank N needs the run that lists" in refused(scan, *cheap)
    for wrong in ("0", "-3", "5,ten", "", "1.5", "²"):
        assert f"--rerank {wrong}: " in refused(scan, f"--rerank={wrong}", *cheap)
    assert "needs a length" in refused(scan, "--rerank", "all", *cheap)
    assert "scan.safetensors: a model 'scan' scores each pair by itself" in refused(
        "vse.safetensors", "--rerank", "5", "--with", scan
    )
    assert "encoded different images and texts (8 x 16 and 6 x 12)" in refused(
        scan, "--rerank", "5", "--with", "other.safetensors"
    )
    for more in (["--folds", "2"], ["--gallery", "3"], ["--report"], ["--cross"]):
        assert "--rerank measures one gallery" in refused(scan, "--rerank", "5", *cheap, *more)
    assert "--cross measures one gallery" in refused(scan, "--cross", "--folds", "2")
    assert "--report needs one run and a corpus" in refused(scan, "--report")
    assert "runs/none: name the corpus" in refused(scan, "--rerank", "5", "--with", "runs/none")
    np.save(tmp_path / "s.npy", np.zeros((6, 12), np.float32))
    assert "a score matrix is measured alone" in refused("s.npy", "scenes:train=2,val=2,test=6,texts=2", "--cross")
