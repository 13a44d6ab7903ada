import subprocess
import sys

import pytest
import torch

from diptych.errors import DiptychError
from diptych.machine import available_cores, choose_device, keep_freed_memory


def test_devices():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device().type in ("cpu", "cuda", "mps")
    with pytest.raises(DiptychError, match="not one of"):
        choose_device("tpu")
    for name in ("cuda", "mps"):
        here = torch.cuda.is_available() if name == "cuda" else torch.backends.mps.is_available()
        if not here:
            with pytest.raises(DiptychError, match="use --device cpu"):
                choose_device(name)


def test_the_allocator_says_whether_it_listened():
    assert keep_freed_memory() == sys.platform.startswith("linux")
    assert available_cores() >= 1


def test_the_machine_can_be_asked_without_torch():
    program = "import sys, diptych.machine; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
