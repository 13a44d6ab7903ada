from hypothesis import given
from hypothesis import strategies as st

from diptych.text.tokenisers.custom import CustomPieces
from diptych.text.tokenisers.token_table import END, START, UNKNOWN
from support.tokenisers import bert_document, rows, unigram_document

BERT, UNIGRAM = CustomPieces(document=bert_document()), CustomPieces(document=unigram_document())


def test_ids_are_renumbered_after_the_four_special_ones():
    # The library's ids are [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, a 4, dog 5, ..., zebra 20.
    assert rows(BERT.encode_all(["A dog's zebra", "", "gnu"])) == [
        [START, 7, 8, UNKNOWN, UNKNOWN, 19, END],
        [START, END],
        [START, UNKNOWN, END],
    ]
    assert len(BERT) == 4 + 16  # three special tokens that are never used, twelve pieces and a zebra
    assert BERT.tokens("a zebra gnu") == ["<start>", "a", "zebra", "<unknown>", "<end>"]
    assert rows(UNIGRAM.encode_all(["a dogs x"])) == [[START, 7, 8, 10, 6, UNKNOWN, END]]


@given(st.lists(st.text(alphabet="a dogsctn.犬🐕[SEP]", max_size=20)))
def test_every_text_has_ids_between_start_and_end(texts):
    for tokeniser in (BERT, UNIGRAM):
        table = tokeniser.encode_all(texts)
        assert len(table) == len(texts)
        for row in rows(table):
            assert (row[0], row[-1]) == (START, END)
            assert all(UNKNOWN <= number < len(tokeniser) for number in row[1:-1])


@given(st.text(alphabet="a dogsctn.犬 \n", max_size=20))
def test_the_words_of_a_text_have_its_ids(text):
    for tokeniser in (BERT, UNIGRAM):
        plain = " ".join(text.split())  # this SentencePiece does not join white space
        assert rows(tokeniser.encode_words([tokeniser.split(text)])) == rows(tokeniser.encode_all([plain]))
