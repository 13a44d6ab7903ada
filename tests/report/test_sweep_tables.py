"""Tables of several runs: the figures that stand in them, marks, and names that hold anything."""

import io

import pytest
from rich.console import Console

from diptych.evaluation.metrics.recall import SELECTION_METRICS
from diptych.evaluation.protocols.seeds import SeedStatistics
from diptych.report.sweep_tables import SweepResult, column_headings, seeds_table
from diptych.training.sweep_plan import Sweep, SweepSetting


def metrics(*values):
    return dict(zip(SELECTION_METRICS, values, strict=True))


LOW = metrics(10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 210.0)
PHRASES = {"phrase_r1": 40.0, "phrase_r5": 60.0, "phrase_r10": 70.0, "phrase_sum": 170.0, "ceiling": 80.0}
HIGH = metrics(12.0, 20.0, 30.0, 40.0, 50.0, 60.0, 212.0)


def printed(sheet, width=80):
    console = Console(file=io.StringIO(), width=width)
    console.print(sheet.render())
    return console.file.getvalue()


@pytest.fixture
def result():
    block = (SweepSetting({"a.tau": "0.1"}, False, ("one",)), SweepSetting({"a.tau": "[b]|1"}, True, ("two",)))
    other = (SweepSetting({"size": "64"}, False, ("three",)), SweepSetting({"size": "128"}, True, ("two",)))
    sweep = Sweep({"a.tau": "tau", "size": "size"}, (block, other), {})
    measured = {
        "one": {"val": LOW, "test": HIGH},
        "two": {"val": HIGH, "test": LOW},
        "three": {"val": LOW, "test": LOW},
    }
    return SweepResult.of(sweep, measured, "test")


def test_columns_are_named_as_in_the_paper():
    retrieval = ["I2T R@1", "I2T R@5", "I2T R@10", "T2I R@1", "T2I R@5", "T2I R@10", "rsum"]
    assert column_headings(SeedStatistics({"a": LOW})) == retrieval
    assert column_headings(SeedStatistics({"a": PHRASES})) == ["PHRASE R@1", "PHRASE R@5", "PHRASE R@10", "phrase sum"]


def test_one_row_per_run_then_mean_and_deviation():
    sheet = seeds_table(SeedStatistics({"seed-0": LOW, "seed-1": HIGH}), "mine [b]on[/b] x, split val")
    assert sheet.blocks[0] == [
        ["seed-0", "10.0", "20.0", "30.0", "40.0", "50.0", "60.0", "210.0"],
        ["seed-1", "12.0", "20.0", "30.0", "40.0", "50.0", "60.0", "212.0"],
    ]
    mean = sheet.blocks[1][0]
    assert mean[:3] == ["mean (std)", "11.0 (1.41)", "20.0 (0.00)"]
    assert mean[-1] == "211.0 (1.41)"
    assert "mine [b]on[/b] x, split val" in printed(sheet)
    assert seeds_table(SeedStatistics({"seed-0": LOW}), "one").blocks[1] == [["mean", *sheet.blocks[0][0][1:]]]


def test_a_sweep_marks_the_value_of_the_recipe_and_names_the_best_on_val(result):
    assert [row[:2] for block in result.table("t").blocks for row in block] == [
        ["tau", "0.1"],
        ["", "[b]|1 *"],
        ["size", "64"],
        ["", "128 *"],
    ]
    assert [row[-1] for block in result.table("t").blocks for row in block] == ["212.0", "210.0", "210.0", "210.0"]
    # test says 0.1, and is not asked
    assert result.best_line == "best by rsum on val: tau = [b]|1 (212.0, as in the recipe)"
    assert "[b]|1 *" in printed(result.table("t"))


def test_markdown(result):
    lines = result.to_markdown("mine").splitlines()
    assert lines[:2] == ["mine", ""]
    assert lines[2].startswith("| Hyp. | Val. | I2T R@1 |")
    assert lines[5] == "|  | [b]\\|1 * | 10.0 | 20.0 | 30.0 | 40.0 | 50.0 | 60.0 | 210.0 |"
    assert lines[-1] == result.best_line


def test_json_has_stable_keys(result):
    found = result.to_json()
    assert found["split"] == "test"
    assert found["best"] == found["settings"][1]
    assert found["settings"][0] == {
        "values": {"a.tau": "0.1"},
        "own": False,
        "val_rsum": 210.0,
        "runs": {"one": HIGH},
        "mean": HIGH,
        "std": None,
        "median_run": "one",
    }


def test_eighty_columns_are_enough_for_deviations():
    settings = tuple(SweepSetting({"stage.2.temperature": value}, True, ("a", "b")) for value in ("0.05", "1024"))
    high = {name: value + (14 if name == "rsum" else 8) for name, value in LOW.items()}
    sweep = Sweep({"stage.2.temperature": "temperature"}, (settings,), {})
    sheet = SweepResult.of(sweep, {"a": {"val": LOW}, "b": {"val": high}}, "val").table("t")
    text = printed(sheet)
    assert "…" not in text
    assert text.count("(5.66)") == (len(SELECTION_METRICS) - 1) * len(settings)
    assert text.count("(9.90)") == len(settings)
    assert "0.05 *" in text


def test_runs_on_phrases_are_chosen_by_the_sum_of_phrase_recalls():
    better = {**PHRASES, "phrase_r1": 41.0, "phrase_sum": 171.0, "ceiling": 70.0}
    settings = tuple(SweepSetting({"size": value}, False, (value,)) for value in ("64", "128"))
    measured = {"64": {"val": better, "test": PHRASES}, "128": {"val": PHRASES, "test": better}}
    result = SweepResult.of(Sweep({"size": "size"}, (settings,), {}), measured, "test")
    assert result.best_line == "best by phrase_sum on val: size = 64 (171.0)"
    assert result.to_json()["best"]["val_phrase_sum"] == 171.0
    assert [row[2:] for row in result.table("t").blocks[0]] == [
        ["40.0", "60.0", "70.0", "170.0"],
        ["41.0", "60.0", "70.0", "171.0"],
    ]
    sheet = seeds_table(SeedStatistics({"seed-0": PHRASES, "seed-1": better}), "phrases")
    assert sheet.blocks[1] == [["mean (std)", "40.5 (0.71)", "60.0 (0.00)", "70.0 (0.00)", "170.5 (0.71)"]]
