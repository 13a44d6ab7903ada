"""The notebooks in examples/ run from the first cell to the last, with less data and fewer epochs."""

import ast
import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples" / "notebooks").glob("*.ipynb"))

# What replaces the cell with the tag "parameters", as papermill would.
SHORT = {
    "search_your_photos": {"folder": None, "drawn": 8},
    "train_on_your_data": {
        "data": "scenes:train=24,val=8,test=8",
        "recipe_name": "scenes",
        "overrides": ["stage.2.epochs=1", "model.image.width=4", "model.image.pixels=32"],
    },
    "reproduce_a_table": {
        "data": "scenes:train=24,val=8,test=8",
        "recipe_name": "scenes-small",
        "overrides": ["model.image.width=4", "stage.2.epochs=1"],
        "seeds": (0, 1),
    },
}


def code_cells(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_every_notebook_has_a_short_form():
    assert {notebook.stem for notebook in NOTEBOOKS} == SHORT.keys()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook)):
        code = "".join(cell["source"])
        if "parameters" in cell["metadata"].get("tags", ()):
            assigned = {target.id for node in ast.parse(code).body for target in _targets(node)}
            assert assigned == SHORT[notebook.stem].keys(), "the short form sets every parameter"
            namespace |= SHORT[notebook.stem]
        else:
            exec(compile(code, f"{notebook.name}, cell {number}", "exec"), namespace)


def _targets(node):
    (target,) = node.targets
    return target.elts if isinstance(target, ast.Tuple) else [target]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_holds_its_outputs_and_nothing_of_a_machine(notebook):
    text, cells = notebook.read_text(encoding="utf-8"), code_cells(notebook)
    assert len(text) < 300_000
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell["outputs"] for cell in cells)
    outputs = json.dumps([{**each, "data": None} for cell in cells for each in cell["outputs"]])
    assert not re.search(r"/(?:home|root|tmp|work|Users)/|Traceback|Warning", outputs)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_names_its_parameters_once(notebook):
    assert sum("parameters" in cell["metadata"].get("tags", ()) for cell in code_cells(notebook)) == 1
