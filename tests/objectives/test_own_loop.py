"""docs/objectives.md: its Python blocks run, the loop learns, and its tables name what there is."""

import inspect
import re
from pathlib import Path

import pytest

from diptych import objectives
from diptych.objectives import Objective

PAGE = (Path(__file__).parents[2] / "docs" / "objectives.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def namespaces():
    """The names after each block; all blocks share one namespace."""
    names, after = {}, []
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"docs/objectives.md, block {number + 1}", "exec"), names)
        after.append(dict(names))
    return after


def test_every_block_runs(namespaces):
    assert len(namespaces) == len(BLOCKS) > 5


def test_the_loop_is_short_and_learns(namespaces, capsys):
    loop = BLOCKS[1]
    assert len([line for line in loop.splitlines() if line.strip()]) <= 25
    names = namespaces[1]
    exec(loop, {**names})
    losses = [float(loss) for loss in re.findall(r"epoch \d: ([\d.]+)", capsys.readouterr().out)]
    assert len(losses) == 3
    assert losses[2] < 0.5 * losses[0]


def test_the_objectives_and_arguments_of_the_tables():
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    classes = {name for name in rows if name[0].isupper()}
    public = [getattr(objectives, name) for name in objectives.__all__]
    concrete = {kind.__name__ for kind in public if isinstance(kind, type) and issubclass(kind, Objective)}
    assert classes == concrete - {"Objective", "Ranking"}
    arguments = rows - classes | set(re.search(r"^\| `(images)`, `(texts)`", PAGE, re.MULTILINE).groups())
    assert arguments == set(inspect.signature(Objective.__call__).parameters) - {"self"}
