"""Two network namespaces, joined by a virtual cable, train together as two hosts would."""

import os
import shutil
import subprocess
import sys

import pytest

from diptych.training.engine.journal import Journal
from support.rank_cases import DATA, SMALL_RECIPE
from support.ranks import ROOT, finish

SUBNET = "10.203.17"  # within the two namespaces, which nothing else is connected to


def ip(*words):
    """Run `ip`, and return what it says against it, if anything."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


@pytest.fixture
def hosts():
    """The names of two namespaces whose only other device is one end of a cable between them."""
    if not sys.platform.startswith("linux") or shutil.which("ip") is None:
        pytest.skip("network namespaces need Linux, and ip from iproute2")
    names = [f"diptych-{os.getpid()}-{side}" for side in "ab"]
    try:
        for name in names:
            if refused := ip("netns", "add", name):
                pytest.skip(f"network namespaces are not allowed here: {refused}")
        cable = ["link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1]]
        if refused := ip(*cable):
            pytest.skip(f"virtual network devices are not allowed here: {refused}")
        for number, name in enumerate(names, 1):
            assert not ip("-n", name, "address", "add", f"{SUBNET}.{number}/24", "dev", "cable")
            assert not ip("-n", name, "link", "set", "cable", "up")
            assert not ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            ip("netns", "delete", name)


@pytest.mark.long
def test_two_hosts_train_one_run(hosts, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(SMALL_RECIPE)
    common = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": f"{SUBNET}.1",
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "cable",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "src"),
    }
    command = [sys.executable, "-m", "diptych", "train", recipe, DATA, "--into", tmp_path / "run", "--no-starter"]
    ranks = [
        subprocess.Popen(
            ["ip", "netns", "exec", host, *map(str, command), "--device", "cpu", "--set", "stage.1.epochs=1"],
            env={**common, "RANK": str(rank), "LOCAL_RANK": "0"},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, host in enumerate(hosts)
    ]
    ended = finish(ranks, seconds=120)
    assert [status for status, _, _ in ended] == [0, 0], ended
    assert f"trained {tmp_path / 'run'}" in ended[0][1]
    assert [line["epoch"] for line in Journal(tmp_path / "run").lines() if line["event"] == "epoch"] == [1]
