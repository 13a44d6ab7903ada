import gzip

import pytest

from diptych.text.spelling.word_list import FILE, NAME, WordList, plain, word_list


def test_words_are_read_with_their_rarity(tmp_path):
    file = tmp_path / "words.gz"
    file.write_bytes(gzip.compress(b"0beachM\n3r\n2eN\n\n0dogK\n1anS"))
    words = WordList(file)
    assert [*words.words()] == ["beach", "bear", "bee", "dog", "dan"]
    assert {word: words.rarity(word) for word in words.words()} == {
        "beach": 12,
        "bear": None,
        "bee": 13,
        "dog": 10,
        "dan": 18,
    }
    assert "bear" in words
    assert not any(word in words for word in ("b", "beac", "beache", "xyz", ""))
    assert words.rarity("cat") is None


def test_the_list_of_the_package():
    words = word_list()
    rarities = [words.rarity(word) for word in ("the", "dog", "beach", "snowboarder")]
    assert rarities == sorted(rarities, key=float)
    assert words.rarity("anna") == NAME
    for other in ("hund", "plage", "perro", "les"):
        assert other in words, other
        assert words.rarity(other) is None, other
    for typo in ("teh", "dgo", "asdfgh"):
        assert typo not in words, typo
    every = [*words.words()]
    assert len(every) == len(set(every)) > 100_000
    assert all(word.isascii() and word.isalpha() and word.islower() for word in every)
    assert FILE.stat().st_size < 300_000


@pytest.mark.parametrize(
    ("word", "letters"), [("Café", "cafe"), ("Straße", "strasse"), ("łódź", "lodz"), ("dog", "dog")]
)
def test_plain_letters(word, letters):
    assert plain(word) == letters
