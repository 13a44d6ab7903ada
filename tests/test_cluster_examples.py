"""The manifests for clusters are valid, and name options that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from diptych.cli.main import command_line

CLUSTER = Path(__file__).parents[1] / "examples/cluster"


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((CLUSTER / "train.yaml").read_text(encoding="utf-8")))


def scripts() -> dict[str, str]:
    """The shell scripts of the examples, by where they are."""
    (job,) = [manifest for manifest in manifests() if manifest["kind"] == "Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    slurm = (CLUSTER / "train.slurm").read_text(encoding="utf-8")
    return {"Kubernetes": container["args"][0], "Slurm": slurm}


@pytest.mark.parametrize("name", ["Kubernetes", "Slurm"])
def test_scripts_are_valid_and_call_options_that_exist(name: str) -> None:
    script = scripts()[name]
    bash = shutil.which("bash")
    assert bash is not None
    checked = subprocess.run([bash, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    _, _, command = script.replace("\\\n", " ").partition("-m diptych ")
    words = command.split("\n")[0].split()
    assert words[:2] == ["train", "vsepp"]
    commands: Any = get_command(command_line(["train"]))
    options = {option for parameter in commands.commands["train"].params for option in parameter.opts}
    named = set(re.findall(r"--[a-z-]+", script.partition("-m diptych ")[2])) | {"--resume"}
    assert named >= {"--into", "--features", "--workers"}
    assert named <= options


def test_the_pods_find_the_first_of_them() -> None:
    """An indexed job in the subdomain of a headless service names its pods JOB-INDEX.SERVICE."""
    service, job = manifests()
    name = job["metadata"]["name"]
    assert service["kind"] == "Service"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": name}
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert job["spec"]["completionMode"] == "Indexed"
    port = service["spec"]["ports"][0]["port"]
    assert f"--rdzv-endpoint {name}-0.{service['metadata']['name']}:{port}" in scripts()["Kubernetes"]
    assert f"--nnodes {job['spec']['completions']}" in scripts()["Kubernetes"]
    volumes = {volume["name"] for volume in job["spec"]["template"]["spec"]["volumes"]}
    mounts = job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert {mount["name"] for mount in mounts} == volumes
