"""Files of weights: what goes in comes out, equal contents are equal files, and anything else is one line."""

import importlib
import json
import pickle

import pytest
import torch
from safetensors.torch import save_file

from diptych.errors import RunError
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import (
    load_about,
    load_matcher,
    load_tensors,
    load_weights,
    matcher_header,
    save_matcher,
    save_tensors,
)
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.plugins import PluginWarning, allow_code
from diptych.text.tokenisers.bpe import BytePairs
from diptych.text.vocabulary import Vocabulary
from support.plugins import TOWER

VOCABULARY = Vocabulary.from_texts(["a red circle", "a blue star"], 1)
TENSORS = {"a": torch.arange(6.0).view(2, 3).t(), "b": torch.tensor([1, 2])}  # one is not contiguous


def vse(seed=0, size=4):
    torch.manual_seed(seed)
    image, text = FeatureSettings(shape=(3,)), GRUSettings(word=2, hidden=size)
    return VSESettings(joint=size, image=image, text=text, words=len(VOCABULARY)).build()


def refusal(call):
    with pytest.raises(RunError) as raised:
        call()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_tensors_and_metadata_come_back(tmp_path):
    path = tmp_path / "a.safetensors"
    save_tensors(path, TENSORS, {"epoch": 3, "names": ["x"]})
    tensors, about = load_tensors(path)
    assert about == load_about(path) == {"epoch": 3, "names": ["x"]}
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_equal_contents_are_equal_files(tmp_path):
    for name in ("a", "b"):
        save_tensors(tmp_path / name, TENSORS, {"one": 1, "two": 2})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]  # no temporary file is left


def test_other_files_are_refused_in_one_line(tmp_path):
    path = tmp_path / "weights.safetensors"
    assert "no such file; is this the folder of a run?" in refusal(lambda: load_tensors(path))
    path.write_bytes(pickle.dumps({"weights": 1}))
    assert "a pickled checkpoint can run code" in refusal(lambda: load_tensors(path))
    path.write_bytes(b"PK\x03\x04 a zip archive, as torch.save writes it")
    assert "a pickled checkpoint can run code" in refusal(lambda: load_about(path))
    save_tensors(path, TENSORS, {})
    path.write_bytes(path.read_bytes()[:-4])
    assert "damaged or truncated" in refusal(lambda: load_tensors(path))
    save_file({"a": torch.ones(1)}, path)
    assert "not written by Diptych" in refusal(lambda: load_about(path))
    save_file({"a": torch.ones(1)}, path, {"diptych": json.dumps({"format": 99, "about": {}})})
    assert "format 99; this version of Diptych reads format 1" in refusal(lambda: load_about(path))


def test_a_matcher_comes_back_with_its_settings(tmp_path):
    matcher, path = vse(), tmp_path / "weights.safetensors"
    save_matcher(path, matcher, VOCABULARY, {"epoch": 2})
    again = load_matcher(path, VOCABULARY)
    assert again.settings == matcher.settings
    assert all(torch.equal(value, matcher.state_dict()[name]) for name, value in again.state_dict().items())
    assert load_about(path) == {"epoch": 2, **matcher_header(matcher, VOCABULARY)}


def test_a_matcher_of_another_tokeniser_or_name_is_refused(tmp_path):
    matcher, path = vse(), tmp_path / "weights.safetensors"
    save_matcher(path, matcher, VOCABULARY, {})
    other = Vocabulary.from_texts(["a green square"], 1)
    for tokeniser in (other, BytePairs.from_texts(["a green square"], 50, 1)):
        message = f"{path}: trained with another tokeniser than the {tokeniser.file} of its run; restore that file"
        assert refusal(lambda one=tokeniser: load_matcher(path, one)) == message
    header = {**matcher_header(matcher, VOCABULARY), "model": {"name": "vsee"}}
    save_tensors(path, matcher.state_dict(), header)
    assert "vsee" in refusal(lambda: load_matcher(path, VOCABULARY))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda weights: weights.pop("project.bias"), "the model has project.bias, the file has not"),
        (lambda weights: weights.update(extra=torch.ones(1)), "the file has extra, the model has not"),
        (
            lambda weights: weights.update({"project.bias": torch.ones(2)}),
            "project.bias is (2,) in the file, (4,) in the model",
        ),
    ],
    ids=["missing", "extra", "misshapen"],
)
def test_weights_that_do_not_fit_are_named_and_nothing_is_loaded(tmp_path, change, reason):
    matcher, weights = vse(), dict(vse(seed=1).state_dict())
    before = {name: value.clone() for name, value in matcher.state_dict().items()}
    change(weights)
    assert reason in refusal(lambda: load_weights(matcher, weights, {}, tmp_path / "w"))
    assert all(torch.equal(value, before[name]) for name, value in matcher.state_dict().items())


def test_a_model_with_a_plugin_names_its_source_and_a_change_is_a_warning(own_modules, tmp_path):
    path = tmp_path / "weights.safetensors"
    own_modules.write("my_towers", TOWER)
    image, text = FeatureSettings(shape=(3,)), importlib.import_module("my_towers").Words(word=4)
    settings = VSESettings(joint=4, image=image, text=text, text_projection=True, words=len(VOCABULARY))
    save_matcher(path, settings.build(), VOCABULARY, {})
    (recorded,) = load_about(path)["plugins"]
    assert (recorded["module"], recorded["class"]) == ("my_towers", "Words")
    assert load_about(path)["model"]["text"]["name"] == "my_towers:Words"
    assert "plugins" not in matcher_header(vse(), VOCABULARY)
    own_modules.forget()
    assert "model.text.name = 'my_towers:Words': the module 'my_towers' is not allowed" in refusal(
        lambda: load_matcher(path, VOCABULARY)
    )
    allow_code("my_towers")
    assert load_matcher(path, VOCABULARY).settings.text.name == "my_towers:Words"  # and no warning
    file = own_modules.write("my_towers", TOWER + "# edited")
    with pytest.warns(PluginWarning) as warned:
        load_matcher(path, VOCABULARY)
    (message,) = [str(one.message) for one in warned]
    told = f"{path}: the plug-in my_towers:Words has changed since ({file}); the model may give other results"
    assert message == told
