import json

import pytest
import torch
from safetensors.torch import save_file

from diptych.errors import RecipeError
from diptych.models.pretrained_pairs.weights import load_into, read_tensors, weights_files


def write(folder, *names):
    for name in names:
        save_file({stem(name): torch.ones(2, dtype=torch.float16)}, folder / name)


def stem(name):
    return name.partition(".")[0]


def test_the_library_s_names_come_first(tmp_path):
    write(tmp_path, "other.safetensors")
    assert weights_files(tmp_path) == (tmp_path / "other.safetensors",)
    write(tmp_path, "model.safetensors")
    assert weights_files(tmp_path) == (tmp_path / "model.safetensors",)
    write(tmp_path, "open_clip_model.safetensors")
    assert weights_files(tmp_path) == (tmp_path / "open_clip_model.safetensors",)


def test_weights_may_be_in_several_files(tmp_path):
    write(tmp_path, "part-1.safetensors", "part-2.safetensors")
    with pytest.raises(RecipeError, match="has several safetensors files; name the weights open_clip_model"):
        weights_files(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "part-2.safetensors", "b": "part-1.safetensors"}}))
    files = weights_files(tmp_path)
    assert [file.name for file in files] == ["part-1.safetensors", "part-2.safetensors"]
    tensors = read_tensors(files)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == dict.fromkeys(
        ["part-1", "part-2"], torch.float32
    )
    index.write_text("{}")
    with pytest.raises(RecipeError, match="has no 'weight_map' from weights to files"):
        weights_files(tmp_path)


def test_pickles_and_nothing_are_refused(tmp_path):
    with pytest.raises(RecipeError, match="has no safetensors file; name the weights"):
        weights_files(tmp_path)
    (tmp_path / "open_clip_pytorch_model.bin").touch()
    with pytest.raises(RecipeError, match=r"pytorch_model\.bin: a pickled checkpoint .*/open_clip_model\.safetensors$"):
        weights_files(tmp_path)
    (tmp_path / "damaged.safetensors").write_bytes(b"x")
    with pytest.raises(RecipeError, match="damaged or truncated"):
        read_tensors([tmp_path / "damaged.safetensors"])


def test_every_weight_must_have_its_place(tmp_path):
    layer = torch.nn.Linear(2, 3)
    load_into(layer, {"weight": torch.ones(3, 2), "bias": torch.ones(3)}, tmp_path)
    assert layer.weight.sum() == 6
    for weights, names in (
        ({"weight": torch.ones(3, 2)}, r"bias of shape \(3,\), and the file has none"),
        ({"weight": torch.ones(2, 2), "bias": torch.ones(3)}, r"weight of shape \(3, 2\), and the file has \(2, 2\)"),
        (
            {"weight": torch.ones(3, 2), "bias": torch.ones(3), "x": torch.ones(1)},
            r"x of shape none, and .* has \(1,\)",
        ),
    ):
        with pytest.raises(RecipeError, match=f"weights of another architecture: the configuration describes {names}"):
            load_into(layer, weights, tmp_path)
