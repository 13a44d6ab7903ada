"""The engine names no paper, model or objective, neither in code nor in comments and docstrings."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import diptych
from diptych import registry
from diptych.models.matcher import Matcher, ModelSettings
from diptych.objectives.objective import Objective

SOURCE = Path(diptych.__file__).parent
MODULES = [
    *(
        f"engine/{name}"
        for name in ("loop", "step", "scoring", "chunks", "optimiser", "trainable", "collapse", "precision")
    ),
    *("engine/checkpoint", "prepare"),
]
# Names that are also ordinary English words; they count as names where they are quoted.
ENGLISH_WORDS = {"order", "instance", "classes", "pair"}
TORCH_WORDS = {"fused"}  # an option of torch's optimisers


def papers():
    """The folders of recipes; `diptych` holds those of no paper."""
    folders = {path.name for path in (SOURCE / "recipes").iterdir() if path.is_dir() and path.name != "__pycache__"}
    return folders - {"diptych"}


def registered_names():
    return {*registry.names("objectives", Objective), *registry.names("models.matchers", ModelSettings)}


def class_names():
    """The classes of all objectives, matchers and their settings, and the base classes that several of them share."""
    found = set()
    for package in ("objectives", "models.matchers"):
        for module in pkgutil.iter_modules(importlib.import_module(f"diptych.{package}").__path__):
            for value in vars(importlib.import_module(f"diptych.{package}.{module.name}")).values():
                if isinstance(value, type) and issubclass(value, (Objective, Matcher, ModelSettings)):
                    found.add(value.__name__)
    return found - {"Objective", "Matcher", "ModelSettings"}


def pattern():
    """Finds names in any spelling (`two_branch`, `Two-Branch`, `vse++`), and classes in their own."""
    names = (papers() | registered_names()) - TORCH_WORDS
    spelled = [name.replace("_", "[ _-]?").replace("pp", r"(?:pp|\+\+)") for name in sorted(names - ENGLISH_WORDS)]
    quoted = [f"[\"'`]{name}[\"'`]" for name in sorted(names & ENGLISH_WORDS)]
    return re.compile(
        rf"(?<![a-z])(?i:{'|'.join(spelled)})(?![a-z])|{'|'.join(quoted)}|\b(?:{'|'.join(sorted(class_names()))})\b"
    )


@pytest.mark.parametrize("module", MODULES)
def test_the_engine_knows_no_paper(module):
    path = SOURCE / "training" / f"{module}.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    named = [f"{module}.py:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if pattern().search(line)]
    assert named == []


@pytest.mark.parametrize(
    "line",
    [
        "if isinstance(objective, Correlation):",
        "# as in the dual-path paper",
        '"""The step of VSE++."""',
        "from diptych.models.matchers.two_branch import TwoBranchSettings",
        'if stage.objective.name == "instance":',
        "class Ranking(Objective):",
        "the AOQ paper mines once",
        "text_to_image of ConVSE",
        "isinstance(matcher, Fused)",
    ],
)
def test_names_are_found(line):
    assert pattern().search(line), "a line such as this one must be refused: the test above would prove nothing"


@pytest.mark.parametrize(
    "line", ["in this order", "for instance", "gradient caching (Gao et al. 2021)", "order = np.lexsort"]
)
def test_plain_english_is_allowed(line):
    assert not pattern().search(line)
