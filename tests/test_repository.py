"""Workflows and configuration of the repository agree with the Makefile and pyproject.toml."""

import re
import sys
from pathlib import Path

import pytest
import yaml

import diptych

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
CONFIGURATION = [*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"]
JOBS = [
    pytest.param(job, id=f"{path.stem}-{name}")
    for path in WORKFLOWS
    for name, job in yaml.safe_load(path.read_text())["jobs"].items()
]


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("path", CONFIGURATION, ids=lambda path: path.name)
def test_configuration_is_valid_yaml(path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_calls_make_targets_that_exist(job):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert job["runs-on"]
    assert any("actions/checkout" in step.get("uses", "") for step in job["steps"])
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands
    called = {target for command in commands for target in re.findall(r"\bmake ([a-z-]+)", command)}
    assert called <= targets


def test_all_supported_versions_of_python_are_tested(project):
    prefix = "Programming Language :: Python :: 3."
    supported = [line.removeprefix(prefix[:-2]) for line in project["classifiers"] if line.startswith(prefix)]
    checks = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text())["jobs"]
    assert checks["test"]["strategy"]["matrix"]["python"] == supported
    assert project["requires-python"] == f">={supported[0]}"
    (minimum,) = (step for step in checks["minimum"]["steps"] if "setup-python" in step.get("uses", ""))
    assert minimum["with"]["python-version"] == supported[0]


def test_the_version_is_the_same_everywhere(project):
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert project["version"] == diptych.__version__ == str(citation["version"])


def test_every_pinned_development_tool_is_declared(project):
    pinned = {re.split("[=;]", line)[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    declared = {re.split("[>=; ]", line)[0].lower() for line in project["optional-dependencies"]["dev"]}
    declared.remove("diptych[train]")  # the package itself
    assert {name.replace("_", "-") for name in declared} <= {name.replace("_", "-") for name in pinned}


def test_hooks_use_the_tools_of_make():
    for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]:
        assert all(hook["entry"].startswith(".venv/bin/ruff ") for hook in repository["hooks"])
