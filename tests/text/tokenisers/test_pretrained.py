import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import DataError, RecipeError, RunError
from diptych.text.tokenisers.pretrained import Pretrained
from diptych.text.tokenisers.stored import load_tokeniser
from support.tokenisers import bert_document, rows, unigram_document

TEXTS = ["A dog.", "dogs on the beach photo of the cat", "", "gnu", "a [SEP] b"]
texts_of_words = st.lists(st.text(alphabet="a dogsctn.犬", max_size=30), min_size=1, max_size=5)


def folder_of(document, folder, **config):
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config}))
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return folder_of(bert_document(), tmp_path_factory.mktemp("bert"), pad_token="[PAD]", unk_token="[UNK]")


@pytest.fixture(scope="module")
def siglip(tmp_path_factory):
    return folder_of(unigram_document(), tmp_path_factory.mktemp("siglip"), pad_token="</s>", eos_token="</s>")


def test_ids_are_those_of_transformers(bert):
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(bert)
    ours = Pretrained.from_folder(bert, context=7)
    assert rows(ours.encode_all(TEXTS)) == theirs(TEXTS, truncation=True, max_length=7).input_ids
    assert rows(Pretrained.from_folder(bert).encode_all(TEXTS)) == theirs(TEXTS).input_ids
    assert ours.tokens("a dogs gnu") == ["[CLS]", "a", "dog", "##s", "[UNK]", "[SEP]"]
    assert len(ours) == 21  # the largest id is 20, although there are fewer pieces


@given(texts=texts_of_words)
def test_texts_are_filled_up_as_transformers_pads_them(siglip, texts):
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(siglip)
    expected = theirs(texts, truncation=True, max_length=9, padding="max_length").input_ids
    ours = Pretrained.from_folder(siglip, context=9, fill=1)
    assert rows(ours.encode_all(texts)) == expected
    assert set(ours.encode_all(texts).lengths.tolist()) == {9}


def test_separators_become_zero_as_in_open_clip():
    kept, stripped = Pretrained(document=bert_document()), Pretrained(document=bert_document(), blank=(3,))
    assert rows(kept.encode_all(["a dog"])) == [[2, 4, 5, 3]]
    assert rows(stripped.encode_all(["a dog"])) == [[2, 4, 5, 0]]


def test_a_prompt_is_cleaned_with_its_text():
    made = Pretrained(document=bert_document(), clean="canonicalize", prompt="A photo, of {}!")
    assert made.tokens("the_dogs") == ["[CLS]", "a", "photo", "of", "the", "dog", "##s", "[SEP]"]
    assert rows(made.encode_words([["the", "dogs"]])) == rows(made.encode_all(["the dogs"]))
    assert made.known(["dogs!", "gnu", "!"]).tolist() == [True, False, False]


def test_every_text_has_an_id():
    document = {**bert_document(), "post_processor": None}
    assert rows(Pretrained(document=document).encode_all(["", "a"])) == [[0], [4]]


def test_settings_make_another_digest(tmp_path):
    made = {
        Pretrained(document=bert_document(), **settings).digest
        for settings in (
            {},
            {"context": 9},
            {"context": 9, "fill": 0},
            {"clean": "lower"},
            {"prompt": "a {}"},
            {"blank": (3,)},
        )
    }
    assert len(made) == 6
    tokeniser = Pretrained(document=bert_document(), context=9, fill=0, clean="lower", prompt="a {}", blank=(3, 2))
    tokeniser.save(tmp_path)
    again = load_tokeniser(tmp_path)
    assert (again, again.digest) == (tokeniser, tokeniser.digest)
    assert rows(again.encode_all(TEXTS)) == rows(tokeniser.encode_all(TEXTS))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": 2}, "context: 2 ids are special tokens"),
        ({"fill": 0}, "fill: needs a context to fill"),
        ({"context": 4, "fill": -1}, "fill = -1"),
        ({"clean": "uper"}, "clean = 'uper'"),
        ({"prompt": "dog"}, "prompt = 'dog'"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(RecipeError, match=f"Pretrained: {message}"):
        Pretrained(document=bert_document(), **settings)


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    with pytest.raises(DataError, match=r"has no tokenizer\.json; write one with transformers"):
        Pretrained.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Magic"}}')
    with pytest.raises(RunError, match=rf"^{tmp_path}: .*the tokenizers library cannot read it"):
        Pretrained.from_folder(tmp_path)


def test_a_tokeniser_with_more_ids_than_the_weights_have_rows_is_refused():
    made = Pretrained(document=bert_document())
    made.check_rows(21, "models/bert")
    made.check_rows(30_522, "models/bert")  # tables are often padded
    with pytest.raises(RunError, match=r"^models/bert: its tokeniser has 21 ids and its weights have rows for 20; use"):
        made.check_rows(20, "models/bert")
