"""`diptych features --devices N`: the store of one process, whatever happens on the way."""

import os
import signal
import sys

import pytest

from support.ranks import finish, ranks_of, start, start_ranks, wait_for

WORDS = ("-m", "diptych", "features", "scenes:train=300,val=2,test=2", "--device", "cpu", "--side", "64")


def content(folder):
    """The bytes of the files of a store by name."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}
    assert {"about.json", "part-00000.npy"} <= files.keys()
    return files


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    process = start(folder, *WORDS, "--into", "store")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return content(folder / "store")


@pytest.mark.long
def test_two_ranks_leave_the_store_of_one_process(alone, tmp_path):
    ended = finish(start_ranks(2, [*WORDS, "--into", tmp_path / "store"]), seconds=120)
    assert [status for status, _, _ in ended] == [0, 0], ended
    assert "computed 304 of 304 images, 0 were already stored" in ended[0][1]
    assert ended[1][1:] == ("", "")
    assert content(tmp_path / "store") == alone


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ctrl_c_and_a_killed_rank_leave_what_another_number_of_ranks_continues(alone, tmp_path):
    store = tmp_path / "store"
    job = start(tmp_path, *WORDS, "--into", "store", "--devices", "2")
    wait_for((store / "about.json").exists)
    job.send_signal(signal.SIGINT)
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 130
    assert errors == "stopped; run the same command again to continue (store)\n"

    job = start(tmp_path, *WORDS, "--into", "store", "--devices", "2")
    wait_for(lambda: len(ranks_of(job)) == 2)
    os.kill(ranks_of(job)[1], signal.SIGKILL)
    _, errors = job.communicate(timeout=100)
    assert job.returncode != 0
    assert errors.startswith("diptych: ")
    assert errors.count("\n") == 1

    job = start(tmp_path, *WORDS, "--into", "store", "--devices", "3")
    out, errors = job.communicate(timeout=120)
    assert job.returncode == 0, errors
    assert "computed " in out
    assert content(store) == alone
