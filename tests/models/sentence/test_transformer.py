"""Encoders from folders against transformers' own model and the pooling of Sentence-BERT, written out."""

import json
import sys

import onnxruntime
import pytest
import torch
from safetensors.torch import load_file, save_file

from diptych.errors import DiptychError, RecipeError
from diptych.models.export.onnx_graphs import exported
from diptych.models.sentence.folder import FAMILY, Architecture
from diptych.models.sentence.transformer import TransformerEncoder

ROWS = [[2, 5, 7, 8, 3], [2, 9, 3], [2, 11, 12, 13, 14, 15, 16, 3], [2, 3]]


def padded(rows=ROWS, filler=0):
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])
    return ids, torch.tensor([len(row) for row in rows])


def encoder(folder):
    made = TransformerEncoder(folder, Architecture.read(folder)).eval()
    made.load_pretrained()
    return made


@torch.inference_mode()
def reference(folder, rows, pooling, normalise):
    """One text at a time, without padding, through the model that transformers itself loads."""
    from transformers import AutoModel

    network = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    vectors = []
    for row in rows:
        states = network(input_ids=torch.tensor([row])).last_hidden_state[0]
        vector = {"mean": states.mean(0), "cls": states[0], "max": states.max(0).values}[pooling]
        vectors.append(vector / vector.norm() if normalise else vector)
    return torch.stack(vectors)


@pytest.mark.parametrize("kind", FAMILY)
def test_vectors_are_those_of_transformers(encoder_folder, tmp_path, kind):
    folder = encoder_folder(tmp_path / kind, kind)
    made = encoder(folder)
    with torch.inference_mode():
        vectors = made(*padded())
    assert made.size == vectors.shape[1] == 16
    torch.testing.assert_close(vectors, reference(folder, ROWS, "mean", True), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("pooling", "normalise"), [("cls", True), ("max", False), ("mean", False)])
def test_poolings(encoder_folder, tmp_path, pooling, normalise):
    folder = encoder_folder(tmp_path / "bert", pooling=pooling, normalise=normalise)
    with torch.inference_mode():
        vectors = encoder(folder)(*padded())
    torch.testing.assert_close(vectors, reference(folder, ROWS, pooling, normalise), atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def bert(encoder_folder, tmp_path_factory):
    return encoder_folder(tmp_path_factory.mktemp("encoders") / "bert")


def test_what_follows_a_text_is_not_read(bert):
    made = encoder(bert)
    torch.testing.assert_close(made(*padded(filler=9)), made(*padded()))
    torch.testing.assert_close(made(*padded())[:2], made(*padded(ROWS[:2])), atol=1e-6, rtol=0)


def test_the_pooler_is_left_out_and_a_prefix_of_a_task_removed(bert, tmp_path):
    made = encoder(bert)
    assert not any("pooler" in name for name in made.state_dict())
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in ("config.json", "tokenizer.json"):
        (copy / file).write_bytes((bert / file).read_bytes())
    tensors = {f"bert.{name}": value.half() for name, value in load_file(bert / "model.safetensors").items()}
    save_file({**tensors, "cls.predictions.bias": torch.zeros(3)}, copy / "model.safetensors")
    other = encoder(copy)
    assert all(value.dtype == torch.float32 for value in other.state_dict().values())
    for name, value in made.state_dict().items():
        assert torch.equal(other.state_dict()[name], value.half().float()), name


def test_on_the_meta_device_it_has_no_weights(bert):
    with torch.device("meta"):
        made = TransformerEncoder(bert, Architecture.read(bert))
    assert all(parameter.is_meta for parameter in made.parameters())


@pytest.mark.parametrize("kind", ["bert", pytest.param("mpnet", marks=pytest.mark.long)])
def test_as_onnx_it_gives_the_same_vectors(encoder_folder, tmp_path, kind):
    made = encoder(encoder_folder(tmp_path / kind, kind))
    axes = {"ids": {0: "texts", 1: "length"}, "lengths": {0: "texts"}}
    ids, lengths = padded(ROWS[:2])
    graph = exported(made, {"ids": ids, "lengths": lengths}, axes).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    for rows in (ROWS, ROWS[3:], [[2, *range(5, 30), 3]]):
        ids, lengths = padded(rows)
        (found,) = session.run(None, {"ids": ids.numpy(), "lengths": lengths.numpy()})
        with torch.inference_mode():
            torch.testing.assert_close(torch.from_numpy(found), made(ids, lengths), atol=1e-5, rtol=0)


def changed_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def test_weights_of_another_network_are_refused(encoder_folder, tmp_path):
    folder = encoder_folder(tmp_path / "bert")
    changed_config(folder, hidden_size=32)
    with pytest.raises(
        RecipeError, match=r"bert: its config.json describes weights embeddings.* of shape \(32, 32\), "
    ):
        encoder(folder)
    changed_config(folder, hidden_size=16, num_hidden_layers=3)
    with pytest.raises(RecipeError, match=r"encoder.layer.2.* and its safetensors have none; they do not belong toge"):
        encoder(folder)
    (folder / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(RecipeError, match=r"model.safetensors: damaged or truncated \(.*\); copy it again"):
        encoder(folder)
    changed_config(folder, num_attention_heads=3)
    with pytest.raises(DiptychError, match=r"transformers cannot build a bert network \(.*\)"):
        encoder(folder)


def test_without_transformers_the_error_says_what_to_install(bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        DiptychError, match=r"transformers is not installed; run: pip install 'diptych\[transformers\]'"
    ):
        encoder(bert)
