"""Small tokenisers of the tokenizers library, and the ids of a table as lists."""

import json

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = ("a", "dog", "cat", "run", "on", "the", "beach", "photo", "of", "##s", "##ning", ".")


def rows(table):
    """The ids of each text of a table."""
    return [table.flat[a:b].tolist() for a, b in zip(table.offsets[:-1], table.offsets[1:], strict=True)]


def bert_document():
    """A WordPiece tokeniser in the form of BERT's, with a gap in its ids, truncation and padding."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    ids = {name: number for number, name in enumerate(names)} | {"zebra": 20}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    return json.loads(tokenizer.to_str())


def unigram_document():
    """A Unigram tokeniser in the form of SentencePiece, which ends every text with `</s>`."""
    pieces = ["<pad>", "</s>", "<unk>", "▁", "▁a", "▁dog", "▁cat", "s", "▁on", "d", "o", "g", "c"]
    tokenizer = Tokenizer(models.Unigram([(piece, -float(n)) for n, piece in enumerate(pieces)], unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return json.loads(tokenizer.to_str())
