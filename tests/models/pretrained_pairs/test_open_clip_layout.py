import json
import shutil

import numpy as np
import pytest

import diptych
from diptych.errors import DataError, RecipeError
from diptych.models.pretrained_pairs.open_clip_layout import read_folder

RESNET = {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 16}
TIMM = {"image_size": 160, "timm_model_name": "test_vit", "timm_pool": "token", "timm_proj": None}
MOBILE = {"image_size": 64, "timm_model_name": "test_efficientnet", "timm_pool": "avg", "timm_proj": None}
COCA = {"attentional_pool": True, "attn_pooler_heads": 2, "attn_pooler_queries": 3, "output_tokens": True}
SQUASHED = {"resize_mode": "squash", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}

# What the models of open_clip differ in: networks, pooling, padding, tokens and preprocessing.
VARIANTS = {
    "quick-gelu": {"quick_gelu": True},
    "resnet": {"vision_cfg": RESNET},
    "timm": {"vision_cfg": TIMM, "custom_text": True},
    "mobileclip": {"vision_cfg": MOBILE, "text_cfg": {"no_causal_mask": True}, "custom_text": True},
    "siglip": {
        "text_cfg": {"no_causal_mask": True, "proj_bias": True, "pool_type": "last", "norm_kwargs": {"eps": 1e-6}},
        "custom_text": True,
        "init_logit_bias": -10,
        "preprocessing": SQUASHED,
    },
    "bilinear": {"preprocessing": {"interpolation": "bilinear"}},
    "coca": {
        "vision_cfg": {**COCA, "image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
        "text_cfg": {"embed_cls": True, "output_tokens": True},
        "multimodal_cfg": {"context_length": 24, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
        "custom_text": True,
    },
    "no-projection": {"text_cfg": {"proj_type": "none", "width": 16}, "custom_text": True},
}


@pytest.fixture
def folder(pairs, tmp_path):
    def write(text_cfg=(), tokenizer=None, **config):
        text = {**pairs.TEXT, **dict(text_cfg)}
        return pairs.open_clip_folder(tmp_path / "pair", text_cfg=text, tokenizer=tokenizer, **config)

    return write


@pytest.mark.parametrize("variant", VARIANTS)
def test_embeddings_are_those_of_open_clip(variant, folder, pairs, tmp_path):
    made, photos = folder(**VARIANTS[variant]), pairs.photos(tmp_path / "photos")
    theirs = pairs.by_open_clip(made, photos, pairs.TEXTS)
    model = diptych.load(made, "cpu")
    for ours, expected in zip((model.encode_images(photos), model.encode_texts(pairs.TEXTS)), theirs, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_another_tokenizer_is_in_the_folder(folder, pairs, tmp_path):
    options = {"hf_tokenizer_name": "somewhere/else", "tokenizer_kwargs": {"clean": "canonicalize"}}
    text = {"vocab_size": 40, "no_causal_mask": True, "pool_type": "last", **options}
    made = folder(text, pairs.siglip_tokenizer(), custom_text=True)
    expected = pairs.by_open_clip(made, pairs.photos(tmp_path / "photos"), pairs.TEXTS)[1]
    model = diptych.load(made, "cpu")
    np.testing.assert_allclose(model.encode_texts(pairs.TEXTS), expected, atol=1e-5)
    (made / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"pair: has no tokenizer\.json; write one with transformers"):
        diptych.load(made)


def test_separators_are_stripped_as_open_clip_does(folder, pairs, tmp_path):
    options = {"hf_tokenizer_name": "bert", "tokenizer_kwargs": {"strip_sep_token": True}}
    tokenizer = pairs.siglip_tokenizer()
    tokenizer.sep_token = "</s>"
    made = folder(
        {"vocab_size": 40, "no_causal_mask": True, "pool_type": "last", **options}, tokenizer, custom_text=True
    )
    expected = pairs.by_open_clip(made, pairs.photos(tmp_path / "photos"), pairs.TEXTS)[1]
    np.testing.assert_allclose(diptych.load(made, "cpu").encode_texts(pairs.TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_cfg": None}, "has no 'model_cfg' of open_clip; copy the folder again"),
        ({"model_cfg": {"embed_dim": 3}}, "its configuration lacks embed_dim, vision_cfg or text_cfg"),
        ({"vision_cfg": {"image_size": [32, 64]}}, "reads images of 32 x 64; choose a model that reads squares"),
        (
            {"preprocess_cfg": {"resize_mode": "longest"}},
            "resizes images by 'longest' with 'bicubic' interpolation, which",
        ),
        (
            {"preprocess_cfg": {"interpolation": "random"}},
            "by 'shortest' with 'random' interpolation, which is not supp",
        ),
        (
            {"text_cfg": {"hf_model_name": "roberta-base"}},
            r"has a text network of transformers \(roberta-base\), which",
        ),
        ({"text_cfg": {"tokenizer_mode": "clips"}}, r"has a tokenizer mode \(clips\), which is not supported"),
        (
            {"text_cfg": {"tokenizer_kwargs": {"language": "fr"}}},
            "its tokenizer has the option 'language', which is not",
        ),
    ],
)
def test_what_is_not_supported_is_refused(change, message, pair_folder, tmp_path):
    made = shutil.copytree(pair_folder("open_clip"), tmp_path / "pair")
    file = made / "open_clip_config.json"
    content = json.loads(file.read_text())
    for key, value in change.items():
        if key in ("model_cfg", "preprocess_cfg"):
            content[key] = value
        else:
            content["model_cfg"][key] |= value
    file.write_text(json.dumps(content))
    with pytest.raises(RecipeError, match=message):
        read_folder(made, str(made))


def test_weights_of_another_architecture_are_refused(pair_folder, tmp_path):
    made = shutil.copytree(pair_folder("open_clip"), tmp_path / "pair")
    file = made / "open_clip_config.json"
    content = json.loads(file.read_text())
    content["model_cfg"]["vision_cfg"]["layers"] = 4
    file.write_text(json.dumps(content))
    with pytest.raises(
        RecipeError, match=r"weights of another architecture: the configuration describes visual\.transf"
    ):
        _ = diptych.load(made, "cpu").matcher


def test_a_tokenizer_without_padding_is_refused(folder, pairs):
    tokenizer = pairs.siglip_tokenizer()
    tokenizer.pad_token = None
    with pytest.raises(RecipeError, match=r"its tokenizer_config\.json names no pad_token"):
        diptych.load(folder({"vocab_size": 40, "hf_tokenizer_name": "x"}, tokenizer))
