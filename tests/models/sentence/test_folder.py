import json
import shlex
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from diptych.errors import RecipeError
from diptych.models.sentence.folder import FAMILY, Architecture, check_files, lowers, tokenizer_file, weights_files

CONFIG = {"model_type": "bert", "hidden_size": 16, "max_position_embeddings": 48, "vocab_size": 9}


def write(file, content):
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """A folder without weights."""
    write(tmp_path / "config.json", CONFIG)
    return tmp_path


def modules(*kinds):
    return [{"path": f"{number}_{kind}", "type": f"library.{kind}"} for number, kind in enumerate(kinds)]


def test_a_plain_folder_pools_by_the_mean(folder):
    found = Architecture.read(folder)
    assert (found.pooling, found.normalise, found.length) == ("mean", False, 48)
    assert found.config == CONFIG
    assert not lowers(folder)


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_mean_tokens": True, "include_prompt": True}, "mean"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "cls"}, "cls"),
    ],
)
def test_pooling_normalisation_and_length_are_those_of_sentence_transformers(folder, config, pooling):
    write(folder / "modules.json", modules("Transformer", "Pooling", "Normalize"))
    write(folder / "1_Pooling" / "config.json", config)
    write(folder / "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": True})
    found = Architecture.read(folder)
    assert (found.pooling, found.normalise, found.length) == (pooling, True, 20)
    assert lowers(folder)


@pytest.mark.parametrize(("given", "length"), [(None, 48), (0, 48), (999, 48), (7, 7)])
def test_no_text_is_longer_than_the_network_has_positions(folder, given, length):
    write(folder / "sentence_bert_config.json", {"max_seq_length": given})
    assert Architecture.read(folder).length == length


def test_positions_of_roberta_begin_after_the_padding(folder):
    write(folder / "config.json", {**CONFIG, "model_type": "roberta"})
    assert Architecture.read(folder).length == 46


def test_what_could_load_code_is_no_part_of_the_architecture():
    harmful = {"auto_map": {"AutoModel": "other.py"}, "_attn_implementation": "a/b", "attn_implementation": "a/b"}
    found = Architecture(config={**CONFIG, **harmful, "bos_token_id": None}, length=4)
    assert found.config == CONFIG
    with pytest.raises(ValueError, match="model_type is not one of albert"):
        Architecture(config={"model_type": "clip"}, length=4)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "config.json",
            {"model_type": "clip"},
            r"config.json: its model_type is 'clip', not one of the BERT family \(al",
        ),
        ("config.json", [], r"config.json: not a JSON object; copy the folder again"),
        ("modules.json", {}, r"modules.json: not a JSON array; copy the folder again"),
        ("modules.json", modules("Transformer", "Dense"), r"modules.json: has the module 'Dense'; only Transformer, P"),
        ("1_Pooling/config.json", {}, r"pools by nothing; only mean, cls and max are supported"),
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, r"only mean, cls and max are supported"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_max_tokens": True, "pooling_mode_cls_token": True},
            r"pools by pooling_mode_max_tokens, pooling_mode_cls_token; only",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(folder, file, content, message):
    write(folder / "modules.json", modules("Transformer", "Pooling"))
    write(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    assert Architecture.read(folder)
    write(folder / file, content)
    with pytest.raises(RecipeError, match=message):
        Architecture.read(folder)


def test_missing_files_are_named_with_a_remedy(tmp_path):
    folder = tmp_path / "encoder"
    folder.mkdir()
    for missing, content in (("config.json", CONFIG), ("model.safetensors", {}), ("tokenizer.json", {})):
        with pytest.raises(RecipeError, match=f"encoder: has no {missing}; .*"):
            check_files(folder)
        write(folder / missing, content)
    check_files(folder)
    assert tokenizer_file(folder) == folder / "tokenizer.json"


def test_pickled_weights_are_refused_with_a_command_that_converts_them(folder):
    tensors = {"embedding": torch.arange(6.0).view(2, 3), "shared": torch.ones(2)}
    tensors["same"] = tensors["shared"]
    torch.save(tensors, folder / "pytorch_model.bin")
    torch.save({}, folder / "aaa.pt")
    with pytest.raises(
        RecipeError, match=r"pytorch_model.bin: a pickled checkpoint can run code .*without running"
    ) as e:
        weights_files(folder)
    command = str(e.value).partition("running code: ")[2]
    subprocess.run([sys.executable, *shlex.split(command)[1:]], check=True)
    assert weights_files(folder) == [folder / "model.safetensors"]
    converted = load_file(folder / "model.safetensors")
    assert all(torch.equal(converted[name], tensor) for name, tensor in tensors.items())


def test_weights_in_several_files(folder):
    index = folder / "model.safetensors.index.json"
    write(index, {"weight_map": {"a": "one.safetensors", "b": "../two.safetensors", "c": "one.safetensors"}})
    assert weights_files(folder) == [folder / "one.safetensors", folder / "two.safetensors"]
    write(index, {"weight_map": ["a"]})
    with pytest.raises(RecipeError, match="has no 'weight_map'"):
        weights_files(folder)


def test_the_family_is_known_to_transformers(torchvision):
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    assert set(FAMILY) <= set(MODEL_MAPPING_NAMES)
