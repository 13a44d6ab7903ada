from hypothesis import given
from hypothesis import strategies as st

from diptych.text.tokenisers.stored import load_tokeniser
from diptych.text.tokenisers.wordpiece import WordPieces

TEXTS = ["low lower lowest", "new newer newest", "wide wider widest"] * 4


def longest_first(word, vocabulary):
    """Split a word into its longest pieces from the left, as the papers describe it."""
    pieces, begin = [], 0
    while begin < len(word):
        candidates = [("##" if begin else "") + word[begin:end] for end in range(len(word), begin, -1)]
        piece = next((piece for piece in candidates if piece in vocabulary), None)
        if piece is None:
            return ["<unknown>"]
        pieces.append(piece)
        begin += len(piece.removeprefix("##"))
    return pieces


@given(st.text("lowernstid", min_size=1, max_size=12))
def test_a_word_is_its_longest_pieces_from_the_left(word):
    made = WordPieces.from_texts(TEXTS, 40, 1)
    vocabulary = made.document["model"]["vocab"]
    assert made.tokens(word)[1:-1] == longest_first(word, vocabulary)


def test_size_and_threshold_bound_the_pieces():
    assert len(WordPieces.from_texts(TEXTS, 24, 1)) <= 24 + 4
    whole = WordPieces.from_texts(TEXTS, 1000, 1)
    assert whole.tokens("lowest")[1:-1] == ["lowest"]
    assert len(WordPieces.from_texts(TEXTS, 1000, 9)) < len(whole)


def test_a_word_with_a_character_that_did_not_occur_is_unknown(tmp_path):
    made = WordPieces.from_texts(TEXTS, 100, 1)
    assert made.tokens("low lowx xyz")[1:-1] == ["low", "<unknown>", "<unknown>"]
    assert made.known(["low", "lowx", "xyz"]).tolist() == [True, False, False]
    made.save(tmp_path)
    again = load_tokeniser(tmp_path)
    assert (again, again.digest) == (made, made.digest)
