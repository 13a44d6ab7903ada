import json

import pytest

from diptych.errors import DataError, RecipeError
from diptych.models.pretrained_pairs.tokenizer_files import TokenizerFiles
from support.tokenisers import unigram_document


@pytest.fixture
def files(tmp_path):
    def write(class_name=None, **config):
        (tmp_path / "tokenizer.json").write_text(json.dumps(unigram_document()))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        return TokenizerFiles.of_folder(tmp_path, class_name)

    return write


def test_special_tokens_are_found_by_their_names(files):
    found = files(pad_token="<pad>", eos_token={"content": "</s>"}, cls_token="[CLS]")
    assert [found.id_of(f"{name}_token") for name in ("pad", "eos", "cls", "sep")] == [0, 1, None, None]


def test_the_length_is_that_of_tokenizer_and_network(files):
    assert [files(model_max_length=given).context(64) for given in (20, 1e30, None, 0)] == [20, 64, 64, 64]


def test_classes_of_transformers_change_texts(files):
    assert files(tokenizer_class="SiglipTokenizer").cleaning == "unpunctuated"
    assert files(tokenizer_class="T5Tokenizer").cleaning == "none"
    for found in (files("Siglip2Tokenizer"), files(do_lower_case=True)):
        assert found.tokeniser().tokens("A Dog") == found.tokeniser().tokens("a dog")
    plain = files().tokeniser()
    assert plain.tokens("A Dog") != plain.tokens("a dog")


def test_the_side_of_the_padding(files):
    assert files().fill_side == "right"
    assert files("Siglip2Tokenizer").fill_side == "left"
    assert files("Siglip2Tokenizer", padding_side="right").fill_side == "right"


def test_a_configuration_is_not_needed(tmp_path, files):
    files()
    (tmp_path / "tokenizer_config.json").unlink()
    found = TokenizerFiles.of_folder(tmp_path)
    assert (found.paths, found.config) == ((tmp_path / "tokenizer.json",), {})


def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match=r"has no tokenizer\.json"):
        TokenizerFiles.of_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Magic"}}')
    with pytest.raises(RecipeError, match=r"tokenizer\.json: .*the tokenizers library cannot read it"):
        TokenizerFiles.of_folder(tmp_path).tokeniser()
