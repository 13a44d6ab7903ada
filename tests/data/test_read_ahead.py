import threading
import time

import pytest

from diptych.data.read_ahead import read_ahead


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_workers_never_change_the_order(workers):
    def slow_for_even(number):
        time.sleep(0.002 * (number % 2 == 0))
        return number * number

    assert list(read_ahead(slow_for_even, range(30), workers)) == [n * n for n in range(30)]


def test_reading_ahead_is_bounded_and_stops_with_its_reader():
    started = []
    lock = threading.Lock()

    def read(number):
        with lock:
            started.append(number)
        return number

    ahead = read_ahead(read, range(1000), 2)
    assert next(ahead) == 0
    ahead.close()
    assert len(started) < 20
