import platform
import signal
import subprocess
import sys
import threading

import pytest
import torch

from diptych.errors import DiptychError
from diptych.machine import available_cores, choose_device, interrupt_event, keep_freed_memory, machine_name


def test_devices():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device().type in ("cpu", "cuda", "mps")
    with pytest.raises(DiptychError, match="not one of"):
        choose_device("tpu")
    for name in ("cuda", "mps"):
        available = torch.cuda.is_available() if name == "cuda" else torch.backends.mps.is_available()
        if not available:
            with pytest.raises(DiptychError, match="use the device 'cpu'"):
                choose_device(name)


def test_malloc_keeps_freed_memory_on_linux():
    assert keep_freed_memory() == sys.platform.startswith("linux")


def test_available_cores_are_those_of_the_process(monkeypatch):
    assert available_cores() >= 1
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 3, 5}, raising=False)
    assert available_cores() == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_sets_the_event_and_the_second_interrupts(number):
    handler = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interrupt_event() as event:
        assert not event.is_set()
        signal.raise_signal(number)
        assert event.is_set()
        signal.raise_signal(number)
    assert signal.getsignal(number) is handler


def test_other_threads_leave_the_signals_alone():
    seen = []

    def work():
        with interrupt_event() as event:
            seen.append((event.is_set(), signal.getsignal(signal.SIGINT)))

    handler = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, handler)]


def test_torch_is_not_imported():
    program = "import sys, diptych.machine; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_name_of_the_machine_is_that_of_its_processor_not_of_its_host():
    name = machine_name()
    assert name.endswith(f", {available_cores()} cores")
    assert (platform.node() or "no name") not in name
