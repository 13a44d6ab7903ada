"""Small pretrained pairs with random weights, as open_clip and transformers write them, and what those compute."""

import json
import string

import numpy as np
import open_clip  # type: ignore[import-untyped]
import torch
from PIL import Image
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    CLIPConfig,
    CLIPModel,
    PreTrainedTokenizerFast,
    Siglip2Config,
    Siglip2Model,
    Siglip2Tokenizer,
    SiglipConfig,
    SiglipModel,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

VISION = {"image_size": 32, "layers": 3, "width": 32, "head_width": 16, "patch_size": 8}
TEXT = {"context_length": 24, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 3}
PREPROCESSING = {
    "size": [32, 32],
    "mean": [0.48, 0.46, 0.41],
    "std": [0.27, 0.26, 0.28],
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}
TEXTS = ["A dog runs.", "two red circles, and a <b>blue</b> square!", "", "a " * 60, "the large STAR is on the left"]

_WORDS = ("a", "dog", "runs", "two", "red", "circle", "circles", "blue", "square", "the", "large", "star", "is", "on")
_SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2}


def photos(folder):
    """Photos of odd sizes: upright, wide, small, grey, and a large JPEG that could be decoded at a fraction."""
    folder.mkdir(exist_ok=True)
    random, files = np.random.default_rng(3), []
    for number, (width, height) in enumerate([(47, 60), (93, 50), (20, 21), (64, 64), (701, 398)]):
        coarse = random.integers(0, 256, (7, 9, 3), dtype=np.uint8)
        photo = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        photo = photo.convert("L") if number == 3 else photo
        files.append(folder / f"{number}.{'jpg' if number % 2 == 0 else 'png'}")
        photo.save(files[-1])
    return files


def random_weights(network):
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3)
    return network.eval()


def write(file, content):
    file.write_text(json.dumps(content), encoding="utf-8")


def save(network, file):
    save_file({name: tensor.clone().contiguous() for name, tensor in network.state_dict().items()}, file)


# open_clip


def open_clip_model(custom_text=False, **config):
    """A small model of open_clip."""
    kind = open_clip.CoCa if "multimodal_cfg" in config else open_clip.CustomTextCLIP if custom_text else open_clip.CLIP
    content = {"embed_dim": 16, "vision_cfg": VISION, "text_cfg": TEXT, **config}
    return random_weights(kind(**json.loads(json.dumps(content))))


def open_clip_folder(folder, preprocessing=(), tokenizer=None, **config):
    """Write a folder in the layout of open_clip."""
    folder.mkdir(parents=True)
    save(open_clip_model(**config), folder / "open_clip_model.safetensors")
    model = {"embed_dim": 16, "vision_cfg": VISION, "text_cfg": TEXT, **config}
    write(
        folder / "open_clip_config.json",
        {"model_cfg": model, "preprocess_cfg": {**PREPROCESSING, **dict(preprocessing)}},
    )
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
def by_open_clip(folder, files, texts):
    """The embeddings of files and texts by open_clip's own functions."""
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    model.eval()
    images = torch.stack([preprocess(Image.open(file)) for file in files])
    return model.encode_image(images, normalize=True).numpy(), model.encode_text(
        tokenizer(texts), normalize=True
    ).numpy()


# transformers


def clip_tokenizer():
    """Words between <|startoftext|> and <|endoftext|>, which is the largest id."""
    names = ["<unk>", *_WORDS, "<|startoftext|>", "<|endoftext|>"]
    ids = {name: number for number, name in enumerate(names)}
    made = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="<|startoftext|> $A <|endoftext|>", special_tokens=[(name, ids[name]) for name in names[-2:]]
    )
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=end, eos_token=end, unk_token="<unk>", model_max_length=20
    )


def siglip_tokenizer(padding_side="right"):
    """Words that end with </s>, and are padded with <pad>."""
    names = ["<pad>", "</s>", "<unk>", *_WORDS]
    made = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", padding_side=padding_side
    )


def clip_folder(folder, **changes):
    """Write a CLIP in the layout of transformers."""
    tokenizer = clip_tokenizer()
    text = {**_SMALL, "vocab_size": len(tokenizer), "max_position_embeddings": 20, "eos_token_id": len(tokenizer) - 1}
    text |= {"bos_token_id": len(tokenizer) - 2, "projection_dim": 16}
    vision = {**_SMALL, "image_size": 32, "patch_size": 8, "projection_dim": 16}
    config = CLIPConfig(text_config={**text, **changes}, vision_config=vision, projection_dim=16)
    random_weights(CLIPModel(config)).save_pretrained(folder)
    processor = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def siglip_folder(folder, padding_side="right"):
    """Write a SigLIP in the layout of transformers."""
    tokenizer = siglip_tokenizer(padding_side)
    text = {**_SMALL, "vocab_size": len(tokenizer), "max_position_embeddings": 12, "projection_size": 32}
    config = SiglipConfig(text_config=text, vision_config={**_SMALL, "image_size": 32, "patch_size": 8})
    random_weights(SiglipModel(config)).save_pretrained(folder)
    SiglipImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def siglip2_tokenizer():
    """Letters, joined to a few words, which end with <eos>; the class of SigLIP 2 lowers texts."""
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "\N{LOWER ONE EIGHTH BLOCK}", *string.ascii_lowercase]
    merges = [("d", "o"), ("do", "g"), ("r", "e"), ("re", "d"), ("t", "h"), ("th", "e")]
    names += [left + right for left, right in merges]
    ids = {name: number for number, name in enumerate(names)}
    made = Siglip2Tokenizer(vocab=ids, merges=merges, padding_side="right")
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", ids["<eos>"])]
    )
    return made


def siglip2_folder(folder):
    """Write a SigLIP 2 that reads images of any shape (NaFlex), in the layout of transformers."""
    tokenizer = siglip2_tokenizer()
    text = {**_SMALL, "vocab_size": len(tokenizer), "max_position_embeddings": 12, "projection_size": 32}
    config = Siglip2Config(text_config=text, vision_config={**_SMALL, "patch_size": 4, "num_patches": 25})
    random_weights(Siglip2Model(config)).save_pretrained(folder)
    Siglip2ImageProcessorPil(patch_size=4, max_num_patches=30).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
def by_siglip2(folder, files, texts):
    """The embeddings of files and texts by transformers' classes for SigLIP 2, whose tokenizer lowers texts."""
    model, processor = Siglip2Model.from_pretrained(folder).eval(), Siglip2ImageProcessorPil.from_pretrained(folder)
    images = processor([Image.open(file).convert("RGB") for file in files], return_tensors="pt")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(texts, truncation=True, padding="max_length", max_length=12, return_tensors="pt")
    vectors = model.get_image_features(**images), model.get_text_features(tokens.input_ids)
    return tuple(torch.nn.functional.normalize(one.pooler_output, dim=1).numpy() for one in vectors)


@torch.no_grad()
def by_transformers(folder, files, texts):
    """The embeddings of files and texts by transformers' own classes; SigLIP reads the padding, as in its training."""
    is_clip = json.loads((folder / "config.json").read_text())["model_type"] == "clip"
    model = (CLIPModel if is_clip else SiglipModel).from_pretrained(folder).eval()
    processor = (CLIPImageProcessorPil if is_clip else SiglipImageProcessorPil).from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    pixels = processor([Image.open(file).convert("RGB") for file in files], return_tensors="pt").pixel_values
    options = {"padding": True, "max_length": 20} if is_clip else {"padding": "max_length", "max_length": 12}
    tokens = tokenizer(texts, truncation=True, return_tensors="pt", **options)
    mask = {"attention_mask": tokens.attention_mask} if is_clip else {}
    vectors = model.get_image_features(pixels), model.get_text_features(tokens.input_ids, **mask)
    return tuple(torch.nn.functional.normalize(one.pooler_output, dim=1).numpy() for one in vectors)
