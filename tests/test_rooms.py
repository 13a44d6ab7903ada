"""Imports go one way through the rooms, and the package says what it offers."""

import ast
from pathlib import Path

import pytest

import diptych

SOURCE = Path(diptych.__file__).parent

# Each room and what it may import besides itself. A room that is not here has not been thought about.
FOUNDATION = {
    *("errors", "files", "settings", "plugins", "plugin_records", "registry", "machine", "optional", "progress"),
    "ranks",
}
MODELS = FOUNDATION | {"text", "data", "features", "models"}
MAY_IMPORT = {
    "text": FOUNDATION,
    "data": FOUNDATION | {"text"},
    "features": FOUNDATION | {"text", "data"},
    "models": MODELS - {"models"},
    "model": MODELS,
    "objectives": MODELS,
    "evaluation": MODELS | {"model"},
    "mining": MODELS | {"model", "evaluation"},
    "index": MODELS | {"model", "evaluation"},
    "training": MODELS | {"model", "objectives", "evaluation", "mining"},
    "report": MODELS | {"model", "objectives", "evaluation", "mining", "training", "index"},
    "claims": set(),
    "reproduction": MODELS | {"model", "evaluation", "mining", "training", "report"},
    "serve": MODELS | {"model", "evaluation", "index"},
    "client": FOUNDATION | {"data", "index", "serve"},
    "recipes": set(),
    "starter": set(),
    "cli": MODELS
    | {"model", "objectives", "evaluation", "mining", "index", "training", "report", "serve", "recipes"}
    | {"reproduction"},
}


def imported_rooms(file):
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "diptych" else [f"diptych.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "diptych" and len(parts) > 1 and parts[1] != "__version__":
                yield parts[1]


ROOMS = sorted({path.stem for path in SOURCE.iterdir() if not path.name.startswith(("_", "."))} - FOUNDATION - {"py"})


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_lies_before_it(room):
    allowed = MAY_IMPORT[room] | {room}
    module = SOURCE / f"{room}.py"
    for file in [module] if module.exists() else sorted((SOURCE / room).rglob("*.py")):
        wrong = set(imported_rooms(file)) - allowed
        assert not wrong, f"{file.name} of {room} imports {wrong}"


def test_evaluation_returns_data_and_renders_nothing():
    for file in (SOURCE / "evaluation").rglob("*.py"):
        imported = set(top_level_imports(file))
        assert not imported & {"rich", "jinja2", "markupsafe"}, file


def top_level_imports(file):
    """The top-level packages that a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_the_foundation_stands_alone():
    for name in FOUNDATION:
        assert set(imported_rooms(SOURCE / f"{name}.py")) <= FOUNDATION


def test_nobody_outside_models_asks_for_the_class_of_a_matcher():
    """A matcher declares what it can do, so that a new one needs no change elsewhere."""
    models = SOURCE / "models"
    files = [models / "matcher.py", models / "tower.py"]
    files += [file for folder in ("matchers", "towers", "layers") for file in (models / folder).rglob("*.py")]
    classes = {
        node.name for file in files for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)
    }
    assert {"Matcher", "TwoTowers", "CCA", "SetMatcher", "PretrainedTower", "FittedTextTower"} <= classes
    for file in sorted(set(SOURCE.rglob("*.py")) - set(models.rglob("*.py"))):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
                asked = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node.args[1])}
                assert not asked & classes, f"{file}:{node.lineno} asks for {asked & classes}"


def test_what_the_package_offers_can_be_had():
    for name in diptych.__all__:
        assert getattr(diptych, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = diptych.trian


def test_no_file_is_too_long_to_read():
    for file in SOURCE.rglob("*.py"):
        assert len(file.read_text().splitlines()) <= 400, file


def test_nothing_can_load_a_pickle():
    for file in SOURCE.rglob("*.py"):
        words = file.read_text()
        assert "import pickle" not in words, file
        assert words.count("torch.load(") == words.count("weights_only=True"), file  # which reads tensors and no code
        assert "allow_pickle=True" not in words, file
