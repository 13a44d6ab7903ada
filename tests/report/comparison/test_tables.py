from __future__ import annotations

import json
import re
from dataclasses import replace

from rich.console import Console

from diptych.evaluation.metrics.paired_difference import Difference
from diptych.report.comparison.tables import comparison_json, comparison_markdown, comparison_table

FOUND = Difference(12.34, 1.26, 20.0)
LOWER = Difference(-12.34, -20.0, -1.26)
NOTHING = Difference(-0.04, -3.21, 2.5)


def known(comparison, **differences):
    """The comparison with these differences of its second run, and nothing found in all others."""
    runs = [comparison.baseline]
    for run in comparison.runs[1:]:
        named = dict.fromkeys(run.difference.differences, NOTHING) | (differences if len(runs) == 1 else {})
        runs.append(replace(run, difference=replace(run.difference, differences=named)))
    return replace(comparison, runs=tuple(runs))


def printed(comparison, width=100) -> list[str]:
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(comparison_table(comparison))
    return capture.get().splitlines()


def test_the_table_has_one_row_per_run_with_its_difference_below(three):
    lines = printed(known(three, t2i_r5=FOUND, rsum=LOWER))
    assert "scenes, split test: 14 images, 28 texts" in lines[0]
    starts = [lines.index(next(line for line in lines if line.strip() == label)) for label in ("image to text", "rsum")]
    metrics = [run.result.metrics.to_json() for run in three.runs]
    for start, first in zip(starts, ("i2t_r1", "rsum"), strict=True):
        rows = [lines[start + offset] for offset in (1, 2, 5)]
        for row, run, values in zip(rows, three.runs, metrics, strict=True):
            assert row.split()[:2] == [run.name, f"{values[first]:.1f}"]
    values = metrics[1]
    second = lines[starts[0] + 2].split()
    assert second[-2:] == [f"{values['i2t_median']:g}", f"{values['i2t_mean']:.1f}"]
    assert lines[starts[0] + 3].split() == ["+0.0", "n.s."] * 3
    assert lines[starts[0] + 4].split() == ["-3.2", "to", "+2.5"] * 3
    assert lines[starts[1] + 3].strip() == "-12.3*"
    assert lines[starts[1] + 4].strip() == "-20.0 to -1.3"
    text = "\n".join(lines)
    assert text.count("+12.3*") == 1
    assert text.count("+1.3 to +20.0") == 1
    assert " ".join(text.split()).count("n.s.") == 14 - 2 + 1  # all other differences, and the legend
    assert "the difference from plain" in " ".join(text.split())


def test_six_runs_fit_a_hundred_columns_and_longer_names_are_folded(three):
    names = [f"run-{number}-of-a-sweep" for number in range(6)]
    six = replace(three, runs=tuple(map(lambda n, i: replace(three.runs[min(i, 2)], name=n), names, range(6))))
    lines = printed(six)
    assert all(sum(line.lstrip().startswith(name) for line in lines) == 3 for name in names)
    assert max(map(len, lines)) <= 100
    narrow = printed(six, width=80)
    assert max(map(len, narrow)) <= 80
    assert sum(line.count("…") for line in narrow) == 0


def test_medians_over_folds_have_a_decimal(three):
    result = three.runs[0].result
    direction = replace(result.metrics.image_to_text, median=11 / 3)
    folds = replace(result, metrics=replace(result.metrics, image_to_text=direction))
    lines = printed(replace(three, runs=(replace(three.runs[0], result=folds), *three.runs[1:])))
    row = next(line for line in lines if line.split()[:1] == ["plain"])
    assert row.split()[-2] == "3.7"


def test_markdown_is_one_table_with_a_legend(three):
    text = comparison_markdown(known(three, t2i_r5=FOUND, rsum=LOWER))
    title, table, legend = text.rstrip("\n").split("\n\n")
    assert title == "scenes, split test: 14 images, 28 texts"
    rows = [re.split(r" (?<!\\)\| ", row.removeprefix("| ").removesuffix(" |")) for row in table.split("\n")]
    assert {len(row) for row in rows} == {8}
    assert rows[0][1:] == [f"{way} R@{k}" for way in ("image to text", "text to image") for k in (1, 5, 10)] + ["rsum"]
    names = [row[0] for row in rows[2:]]
    assert names == ["plain", r"\<b\>other", r"\<b\>other − plain", r"third\|run", r"third\|run − plain"]
    metrics, bounds = three.runs[1].result.metrics.to_json(), three.runs[1].result.intervals.bounds
    for cell, name in zip(rows[3][1:], bounds, strict=True):
        assert cell == f"{metrics[name]:.1f} [{bounds[name][0]:.1f}, {bounds[name][1]:.1f}]"
    nothing = "+0.0 n.s. [-3.2, +2.5]"
    assert rows[4][1:] == [*[nothing] * 4, r"**+12.3**\* [+1.3, +20.0]", nothing, r"**-12.3**\* [-20.0, -1.3]"]
    assert rows[6][1:] == [nothing] * 7
    assert r"\* the interval of the difference excludes 0" in legend
    assert "95% intervals from 1,000 draws" in legend


def test_json_contains_everything_under_stable_keys(three):
    told = json.loads(json.dumps(comparison_json(replace(known(three, rsum=LOWER), notes=["a note"]))))
    assert told["data"] == {"name": "scenes", "address": None, "split": "test"}
    assert (told["protocol"], told["images"], told["texts"], told["folds"]) == ("one gallery", 14, 28, 1)
    assert (told["baseline"], told["skipped"], told["notes"]) == ("plain", {}, ["a note"])
    for run, each in zip(three.runs, told["runs"], strict=True):
        assert (each["name"], each["path"], each["epochs"]) == (run.name, str(run.path), len(run.epochs))
        assert each["metrics"] == run.result.metrics.to_json()
        assert each["intervals"] == run.result.intervals.to_json()
    assert told["runs"][0]["difference"] is None
    assert told["runs"][1]["cross_retrieval"]["pairs"] == 28
    found = told["runs"][1]["difference"]
    assert found["differences"]["rsum"] == {"value": -12.34, "low": -20.0, "high": -1.26, "found": True}
    assert not found["differences"]["i2t_r1"]["found"]
