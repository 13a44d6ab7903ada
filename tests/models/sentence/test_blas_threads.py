import threading

import numpy as np
import pytest

from diptych.models.sentence import blas_threads
from diptych.models.sentence.blas_threads import one_blas_thread


@pytest.fixture
def library(monkeypatch):
    """A library of products with four threads, and the numbers that were chosen."""
    chosen = [4]
    monkeypatch.setattr(blas_threads, "_functions", lambda: (lambda: chosen[-1], chosen.append))
    return chosen


def test_the_number_of_threads_comes_back_after_an_error_too(library):
    with pytest.raises(ValueError, match="any"), one_blas_thread():
        assert library[-1] == 1
        raise ValueError("any")
    assert library == [4, 1, 4]


def test_it_comes_back_when_the_last_of_several_threads_is_done(library):
    inside, leave = threading.Barrier(3), threading.Event()

    def work(waits):
        with one_blas_thread():
            inside.wait()
            if waits:
                leave.wait()

    threads = [threading.Thread(target=work, args=(waits,)) for waits in (True, False)]
    for thread in threads:
        thread.start()
    inside.wait()
    threads[1].join()
    assert library == [4, 1]
    leave.set()
    threads[0].join()
    assert library == [4, 1, 4]


def test_without_such_a_library_nothing_changes(monkeypatch):
    monkeypatch.setattr(blas_threads, "_functions", lambda: None)
    with one_blas_thread():
        assert np.ones((2, 3)) @ np.ones(3) == pytest.approx([3, 3])


def test_the_library_of_this_installation_follows():
    found = blas_threads._functions()
    if found is None:
        pytest.skip("this NumPy has no OpenBLAS")
    before = found[0]()
    with one_blas_thread():
        assert found[0]() == 1
    assert found[0]() == before
