from diptych.cli.options import thread_count
from diptych.machine import available_cores


def test_threads_default_to_the_cores():
    assert thread_count(None) == available_cores() > 0
    assert thread_count(0) == 0
    assert thread_count(3) == 3
