"""Comparing recipes over several seeds: the pooled differences, and folders that do not fit together."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from diptych.data.formats.scenes import make_scenes
from diptych.errors import RunError
from diptych.evaluation.metrics.pooled_difference import pool_differences
from diptych.evaluation.metrics.recall import SELECTION_METRICS
from diptych.report.comparison.seeds import compare_seeds, has_seeds, seed_runs
from diptych.training.recipe_loader import load_recipe

CORPUS = make_scenes(train=2, val=1, test=1)


def folder_of(path, seeds):
    for seed in seeds:
        (path / f"seed-{seed}").mkdir(parents=True)
        (path / f"seed-{seed}" / "recipe.toml").write_text(load_recipe("scenes").to_toml())
    return path


def measured(run, _corpus):
    """Random metrics; those of the folder <b> are better by 10 points."""
    random = np.random.default_rng(int(run.name.rpartition("-")[2]))
    better = 10.0 * (run.parent.name == "<b>|")
    metrics = {name: float(random.uniform(20, 30)) + better for name in SELECTION_METRICS}
    return metrics, {name: value + random.normal(size=50) for name, value in metrics.items()}


@pytest.fixture
def folders(tmp_path):
    return [folder_of(tmp_path / name, (0, 1, 2)) for name in ("a", "<b>|", "a3")]


def test_differences_are_pooled_over_the_seeds(folders):
    compared = compare_seeds(folders, CORPUS, "test", measured)
    assert [recipe.name for recipe in compared.recipes] == ["a", "<b>|", "a3"]
    assert compared.recipes[0].differences is None
    found = compared.recipes[1].differences["rsum"]
    pairs = [[measured(folder / f"seed-{seed}", None) for folder in folders[:2]] for seed in range(3)]
    expected = pool_differences(
        [second[0]["rsum"] - first[0]["rsum"] for first, second in pairs],
        [second[1]["rsum"] - first[1]["rsum"] for first, second in pairs],
    )
    assert found == expected
    assert found.value == pytest.approx(10)
    assert found.is_significant
    assert not compared.recipes[2].differences["rsum"].is_significant
    assert compared.recipes[1].statistics.mean["rsum"] == pytest.approx(
        compared.recipes[0].statistics.mean["rsum"] + 10
    )


def test_it_is_a_table_markdown_and_json(folders):
    compared = compare_seeds(folders[:2], CORPUS, "test", measured)
    console = Console(file=io.StringIO(), width=100)
    console.print(compared.render())
    text = console.file.getvalue()
    assert "scenes, split test: seed-0, seed-1, seed-2" in text
    assert "<b>|" in text
    assert "+10.0*" in text
    assert "…" not in text
    markdown = compared.to_markdown()
    assert r"\<b\>\| − a | +10.0\*, q +" in markdown
    assert "| recipe | I2T R@1 |" in markdown
    content = json.loads(json.dumps(compared.to_json()))
    assert content["baseline"] == "a"
    assert content["recipes"][0]["difference"] is None
    assert content["recipes"][1]["difference"]["rsum"]["found"] is True
    assert content["recipes"][1]["runs"].keys() == {"seed-0", "seed-1", "seed-2"}


def test_folders_of_runs_are_told_from_runs(folders):
    assert has_seeds(folders[0])
    assert not has_seeds(folders[0] / "seed-0")
    assert not has_seeds(folders[0] / "none")
    assert list(seed_runs(folders[0])) == ["seed-0", "seed-1", "seed-2"]


def test_folders_that_do_not_fit_together_are_refused(folders, tmp_path):
    with pytest.raises(RunError, match="a: only one folder of runs"):
        compare_seeds(folders[:1], CORPUS, "test", measured)
    with pytest.raises(RunError, match="seed-0: is not a folder of runs with several seeds, as the others are"):
        compare_seeds([folders[0], folders[1] / "seed-0"], CORPUS, "test", measured)
    fewer = folder_of(tmp_path / "fewer", (0, 1))
    with pytest.raises(RunError, match=r"fewer: seed-2 is only in one of .*a and .*fewer; .*train the same ones"):
        compare_seeds([folders[0], fewer], CORPUS, "test", measured)
