import json
import shutil

import numpy as np
import pytest

import diptych
from diptych.errors import DataError, DiptychError, RecipeError
from diptych.models.pretrained_pairs.transformers_layout import architecture_keys, full_config, read_folder


@pytest.fixture
def changed(pair_folder, tmp_path):
    """A copy of a pair with changes in one of its files; a value of None removes a key."""

    def change(kind, file, **values):
        folder = shutil.copytree(pair_folder(kind), tmp_path / kind)
        content = json.loads((folder / file).read_text()) | values
        (folder / file).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
        return folder

    return change


def test_what_a_folder_says_is_read(pair_folder):
    clip, siglip, siglip2 = (
        read_folder(pair_folder(kind), kind).architecture for kind in ("clip", "siglip", "siglip2")
    )
    assert (clip.size, clip.ids, clip.text.context, clip.text.fill) == (16, 17, 20, None)
    assert (clip.image.side, clip.image.crop, clip.image.interpolation) == (32, "centre", "bicubic")
    assert (siglip.size, siglip.text.context, siglip.text.fill) == (32, 12, 0)
    assert (siglip.image.side, siglip.image.crop, siglip.image.mean) == (32, "whole", (0.5, 0.5, 0.5))
    assert (siglip2.image.crop, siglip2.image.patch, siglip2.image.patches) == ("patches", 4, 30)
    assert siglip2.image.interpolation == "bilinear"


def test_texts_may_be_padded_on_the_left(pairs, tmp_path):
    folder = pairs.siglip_folder(tmp_path / "pair", padding_side="left")
    photos = pairs.photos(tmp_path / "photos")
    expected = pairs.by_transformers(folder, photos, pairs.TEXTS)[1]
    np.testing.assert_allclose(diptych.load(folder, "cpu").encode_texts(pairs.TEXTS), expected, atol=1e-5)


def test_older_configurations_of_clip_end_at_the_largest_id(pairs, tmp_path):
    folder = pairs.clip_folder(tmp_path / "pair", eos_token_id=2)
    photos = pairs.photos(tmp_path / "photos")
    expected = pairs.by_transformers(folder, photos, pairs.TEXTS)[1]
    np.testing.assert_allclose(diptych.load(folder, "cpu").encode_texts(pairs.TEXTS), expected, atol=1e-5)


def test_the_preprocessor_may_be_in_the_file_of_the_processor(pair_folder, tmp_path):
    folder = shutil.copytree(pair_folder("clip"), tmp_path / "clip")
    file = folder / "preprocessor_config.json"
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": json.loads(file.read_text())}))
    file.unlink()
    expected = read_folder(pair_folder("clip"), "").architecture.image
    assert read_folder(folder, "").architecture.image == expected
    (folder / "processor_config.json").unlink()
    with pytest.raises(RecipeError, match=r"clip: has no preprocessor_config\.json; copy it from where"):
        read_folder(folder, "")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"size": 32, "crop_size": 32}, ("centre", (0.48145466, 0.4578275, 0.40821073))),
        (
            {"size": {"height": 32, "width": 32}, "do_center_crop": False},
            ("whole", (0.48145466, 0.4578275, 0.40821073)),
        ),
        ({"do_normalize": False}, ("centre", (0.0, 0.0, 0.0))),
        ({"image_mean": [0.1, 0.2, 0.3]}, ("centre", (0.1, 0.2, 0.3))),
    ],
)
def test_other_forms_of_the_preprocessor(values, expected, changed):
    image = read_folder(changed("clip", "preprocessor_config.json", **values), "").architecture.image
    assert (image.crop, image.mean) == expected


@pytest.mark.parametrize(
    "values",
    [
        {"size": {"shortest_edge": 40}},
        {"crop_size": {"height": 24, "width": 24}},
        {"do_center_crop": False},
        {"resample": 1},
        {"do_rescale": False},
        {"do_resize": False},
    ],
)
def test_a_preprocessor_that_is_not_supported_is_refused(values, changed):
    with pytest.raises(RecipeError, match=r"preprocessor_config\.json: prepares images in a way that is not supported"):
        read_folder(changed("clip", "preprocessor_config.json", **values), "")


def test_a_folder_of_another_architecture_is_refused(changed):
    folder = changed("clip", "config.json", model_type="bert")
    with pytest.raises(
        RecipeError, match="its model_type is 'bert', not one of clip, siglip, siglip2; name the folder of"
    ):
        diptych.load(folder)


def test_a_tokenizer_that_does_not_belong_to_the_weights_is_refused(pairs, pair_folder, tmp_path):
    folder = shutil.copytree(pair_folder("clip"), tmp_path / "clip")
    shutil.copy(pair_folder("siglip2") / "tokenizer.json", folder / "tokenizer.json")
    with pytest.raises(
        RecipeError, match="its tokeniser does not belong to its weights: it has 38 ids, and the weights "
    ):
        _ = diptych.load(folder, "cpu").matcher
    shutil.copy(pair_folder("siglip") / "tokenizer.json", folder / "tokenizer.json")
    with pytest.raises(
        RecipeError, match="does not belong to its weights: texts end with another id than 16, where the"
    ):
        _ = diptych.load(folder, "cpu").matcher
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"has no tokenizer\.json; write one with transformers"):
        diptych.load(folder)


def test_a_file_that_is_not_json_is_refused(pair_folder, tmp_path):
    folder = shutil.copytree(pair_folder("clip"), tmp_path / "clip")
    (folder / "config.json").write_text("[]")
    with pytest.raises(RecipeError, match=r"config\.json: not a JSON object; copy the folder again"):
        diptych.load(folder)


def test_only_what_describes_the_networks_is_kept():
    config = {"b": 1, "a": {"x": None, "auto_map": {}, "y": 2}, "_name": "", "transformers_version": "5"}
    assert architecture_keys(config) == {"a": {"y": 2}, "b": 1}


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(DiptychError, match=r"transformers.*pip install 'diptych\[transformers\]'"):
        full_config({"model_type": "clip"})


def test_a_configuration_that_transformers_cannot_read_is_an_error(pairs):
    with pytest.raises(DiptychError, match="transformers cannot read the configuration of a pair"):
        full_config({"model_type": "magic"})
