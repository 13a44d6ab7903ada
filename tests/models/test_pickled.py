import shlex
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from diptych.models.pickled import conversion, find_pickle, refuse_pickle


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.0).view(2, 3))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values @ self.weight


def convert(pickled, into):
    words = shlex.split(conversion(pickled, into))
    assert words[:2] == ["python", "-c"]
    subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True)
    return load_file(into)


@pytest.mark.parametrize(
    ("prefix", "wrap"), [("", dict), ("module.", lambda tensors: {"epoch": 3, "state_dict": tensors})]
)
def test_the_command_converts_tensors(wrap, prefix, tmp_path):
    weight = torch.arange(6.0).view(2, 3).t()  # not contiguous
    torch.save(wrap({f"{prefix}a.weight": weight}), tmp_path / "model.pt")
    assert torch.equal(convert(tmp_path / "model.pt", tmp_path / "new" / "model.safetensors")["a.weight"], weight)


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_the_command_converts_a_torchscript_archive(tmp_path):
    torch.jit.save(torch.jit.script(Layer()), tmp_path / "ViT-B-32.pt")
    found = convert(tmp_path / "ViT-B-32.pt", tmp_path / "model.safetensors")
    assert torch.equal(found["weight"], Layer().weight)


def test_the_command_runs_no_code_of_the_file(tmp_path):
    class Evil:
        def __reduce__(self):
            return (exec, (f"open({str(tmp_path / 'ran')!r}, 'w')",))

    torch.save({"weight": Evil()}, tmp_path / "model.bin")
    with pytest.raises(subprocess.CalledProcessError):
        convert(tmp_path / "model.bin", tmp_path / "model.safetensors")
    assert not (tmp_path / "ran").exists()


def test_the_error_has_the_command(tmp_path):
    for name in ("b.pt", "a.bin", "notes.txt"):
        (tmp_path / name).touch()
    assert find_pickle(tmp_path) == tmp_path / "a.bin"
    assert find_pickle(tmp_path, ["b.pt", "a.bin"]) == tmp_path / "b.pt"
    message = str(refuse_pickle(tmp_path / "b.pt", tmp_path / "model.safetensors"))
    assert (
        "a pickled checkpoint can run code when it is opened and is refused; convert it without running code" in message
    )
    assert message.endswith(conversion(tmp_path / "b.pt", tmp_path / "model.safetensors"))
    (tmp_path / "a.bin").unlink()
    (tmp_path / "b.pt").unlink()
    assert find_pickle(tmp_path) is None
