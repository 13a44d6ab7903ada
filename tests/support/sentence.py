"""Small folders of BERT-family encoders with random weights, as sentence-transformers and transformers write them."""

import json

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (
    *("a", "the", "red", "green", "blue", "yellow", "circle", "square", "triangle", "left", "right", "above", "below"),
    *("of", "is", "and", "on", "large", "small", "dog", "two", "##s", ".", "star", "picture", "photo", "with"),
)
SMALL = {
    "vocab_size": len(SPECIALS) + len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 48,
    "pad_token_id": 0,
}
SMALL_DISTILBERT = {
    "vocab_size": SMALL["vocab_size"],
    "dim": 16,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 24,
    "max_position_embeddings": 48,
}


def tokenizer():
    """WordPiece with a few words, which lowers texts and puts them between [CLS] and [SEP]."""
    vocabulary = {piece: number for number, piece in enumerate((*SPECIALS, *WORDS))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


def encoder_folder(folder, kind="bert", pooling="mean", normalise=True, length=32, **changes):
    """Write a folder; `pooling` None leaves out the files of sentence-transformers."""
    folder.mkdir(parents=True)
    small = SMALL_DISTILBERT if kind == "distilbert" else SMALL
    torch.manual_seed(0)
    network = AutoModel.from_config(AutoConfig.for_model(kind, **{**small, **changes}))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3)
    save_file(network.state_dict(), folder / "model.safetensors", {"format": "pt"})
    write(folder / "config.json", network.config.to_dict())
    tokenizer().save(str(folder / "tokenizer.json"))
    if pooling is not None:
        modes = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}
        modules = ["Transformer", "Pooling", *(["Normalize"] if normalise else [])]
        paths = ["", "1_Pooling", "2_Normalize"]
        rows = [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{module}"}
            for number, (path, module) in enumerate(zip(paths, modules, strict=False))
        ]
        write(folder / "modules.json", rows)
        write(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
        chosen = {f"pooling_mode_{name}": mode == pooling for mode, name in modes.items()}
        write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 16, **chosen})
    return folder


def write(file, content):
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")
