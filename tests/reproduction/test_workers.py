"""Workers: what they say about their tasks, and what becomes of a task whose worker dies."""

import os
import signal
import time

import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.errors import RunError
from diptych.reproduction.planned_run import RunMaker
from diptych.reproduction.records import has_record
from diptych.reproduction.tasks import MineTask, OutOfTimeError, TrainTask, Workplace
from diptych.reproduction.workers import Said, WorkerPool, perform_task


@pytest.fixture
def place(corpus, tmp_path):
    return Workplace(tmp_path / "into", corpus, tmp_path / "features", "cpu")


def raising(error):
    class Task:
        def perform(self, place):
            raise error

    return Task()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RunError("too bad"), Said("failed", "too bad")),
        (OutOfTimeError(), Said("stopped")),
        (KeyboardInterrupt(), Said("stopped")),
    ],
)
def test_how_a_task_ends_is_said(place, error, said):
    assert perform_task(raising(error), place) == said


def test_other_errors_are_not_hidden(place):
    with pytest.raises(ZeroDivisionError):
        perform_task(raising(ZeroDivisionError()), place)


def test_a_corpus_made_in_python_has_no_other_processes(tmp_path):
    corpus = make_scenes(train=20, val=4, test=4, texts=2)
    with pytest.raises(RunError, match="made in Python cannot be opened by other processes; use --jobs 1"):
        WorkerPool(Workplace(tmp_path, corpus, tmp_path / "features", "cpu"), 2)


def wait_for_end(pool, kinds=("done", "failed", "stopped")):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for task, said in pool.receive(0.5):
            if said.what in kinds:
                return task, said
    raise AssertionError("no worker has said anything")


@pytest.mark.long
def test_a_worker_that_dies_fails_its_task_and_another_one_takes_the_next(tiny_claims, corpus, place):
    run = RunMaker("small", corpus.digest()).run(tiny_claims["tiny"], "sum", 0, {})
    task = TrainTask(run, 80)
    pool = WorkerPool(place, 1)
    try:
        pool.give(task)
        assert not pool.has_room
        wait_for_end(pool, ("report",))
        (worker,) = pool._workers
        os.kill(worker.process.pid, signal.SIGKILL)
        found, said = wait_for_end(pool)
        assert found is task
        assert said == Said("failed", "its process ended with status -9; was there enough memory?")
        assert pool.has_room
        pool.give(task)  # by a new worker, which resumes or begins anew
        assert wait_for_end(pool)[1] == Said("done")
        assert has_record(place.records, run.key)
        pool.give(MineTask("nothing", "nothing", 3, 3, ("train",)))
        assert wait_for_end(pool)[1].what == "failed"
    finally:
        pool.close()
    assert worker.process.exitcode is not None
    assert all(each.process.exitcode is not None for each in pool._workers)
