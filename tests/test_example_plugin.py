"""The package in examples/plugin, installed as a user would and used in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from diptych.errors import RunError
from diptych.model import Model

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "examples" / "plugin"
SCENES = "scenes:train=10,val=4,test=4,texts=2"

USE = """
import json
import sys
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

warnings.simplefilter("error")
import diptych
from diptych.plugins import GROUPS, installed, load_installed
from diptych.training.recipe_loader import load_recipe

# Every group but `needs` has a plug-in, and all of them can be loaded.
assert [group for group in GROUPS if not installed(group)] == ["needs"]
for group in GROUPS:
    for name in installed(group):
        load_installed(group, name)

# A data format.
for name in ("a", "b", "c"):
    Image.fromarray(np.full((8, 8, 3), ord(name), np.uint8)).save(f"{name}.png")
Path("photos.bars").write_text("a.png|a red dog\\nb.png|two cats\\nb.png|a pair of cats\\n|nothing\\nc.png|a tree\\n")
corpus = diptych.open_corpus("photos.bars")
assert (len(corpus.image_ids), len(corpus.texts), len(corpus.problems)) == (3, 4, 1)

# A model, a text tower, a tokeniser, a source of backbones and two objectives, one with a need of its own.
changes = [
    "model={name='distance',joint=8}", "model.image={name='backbone',backbone='example:tiny'}",
    "model.text={name='average',word=8}",
    "text={tokeniser='characters',size=20,threshold=2}",
    "stage.1.trainable=['text','project']", "stage.2.trainable=['text','project']",
    "stage.1.objective={name='margin_softmax',margin=0.2}", "stage.2.objective={name='group_balanced'}",
    "stage.1.batches.size=8", "stage.2.batches.size=8", "stage.1.epochs=1", "stage.2.epochs=1",
]
recipe = load_recipe("scenes", changes)
scenes = diptych.open_corpus(sys.argv[1])
run = diptych.train(recipe.first(1), scenes, "run", device="cpu", workers=0)
run = diptych.train(recipe, scenes, "run", resume=True, device="cpu", workers=0)
result = diptych.evaluate(run, scenes)
assert result.metrics.image_to_text.recalls[10] > 0

# The run has the tokeniser.
model = diptych.Model.load(run, "cpu")
assert (type(model.tokeniser).__name__, model.tokeniser.name, len(model.tokeniser)) == ("Characters", "characters", 24)
assert model.unknown_words("a zß") == ["z", "ß"]

# An index backend.
diptych.sync(model, sys.argv[1], "memory://scenes", workers=0)
searcher = diptych.open_index("memory://scenes", device="cpu")
(answer,) = searcher.search_texts(["a red circle"], diptych.SearchRequest(k=3))

# The tests of the package.
import pytest

assert pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", sys.argv[2], sys.argv[2]]) == 0
print(json.dumps({"searched": answer.searched, "hits": [hit.entry.key for hit in answer.hits]}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The environment of a process that has the package installed."""
    folder = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(PACKAGE, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "site")]
    subprocess.run([*pip, str(source)], check=True)
    path = os.pathsep.join([str(ROOT / "src"), str(folder / "site")])
    quick = {"OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return {**os.environ, "PYTHONPATH": path, **quick}


def python(*words, cwd, env):
    return subprocess.run([sys.executable, *words], cwd=cwd, env=env, check=False, capture_output=True, text=True)


@pytest.mark.long
def test_every_plugin_of_the_package_works(environment, tmp_path):
    done = python("-c", USE, SCENES, str(PACKAGE / "tests"), cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["searched"] == 18
    assert len(found["hits"]) == 3
    recorded = json.loads((tmp_path / "run" / "plugins.json").read_text())["plugins"]
    assert {(one["class"], one["package"], one["version"]) for one in recorded} == {
        (name, "diptych-example-plugin", "0.1.0")
        for name in (
            *("MarginSoftmax", "GroupBalanced", "GroupSizes", "DistanceSettings", "Distance"),
            *("AverageSettings", "Average", "Tiny", "Characters"),
        )
    }
    assert 'name = "margin_softmax"' in (tmp_path / "run" / "recipe.toml").read_text()
    # The command line opens the run in a process of its own: the package is installed, so nothing has to be allowed.
    measured = python("-m", "diptych", "evaluate", "run", SCENES, "--json", cwd=tmp_path, env=environment)
    assert measured.returncode == 0, measured.stderr
    assert json.loads(measured.stdout)["metrics"]
    # Without the package the run says what it lacks.
    with pytest.raises(RunError, match=r"tokeniser\.name = 'characters': no such name"):
        _ = Model.load(tmp_path / "run").matcher


def test_the_readme_names_every_plugin_with_its_file():
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8")
    files = {file.name for file in (PACKAGE / "src" / "diptych_example").glob("*.py")} - {"__init__.py"}
    assert all(f"`{file}`" in readme for file in files)
