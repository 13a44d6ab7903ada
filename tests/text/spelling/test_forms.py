import pytest

from diptych.text.spelling.forms import is_formed
from diptych.text.spelling.word_list import word_list


@pytest.mark.parametrize("word", ["rollerblades", "kayaker", "wakeboard", "surfboarder", "fisheye"])
def test_forms_of_words_are_words(word):
    assert word not in word_list()
    assert is_formed(word, word_list())


@pytest.mark.parametrize("word", ["dgos", "beahc", "snowbaord", "hoilday", "asdfgh", "brithday", "s", "ed"])
def test_typos_are_not(word):
    assert not is_formed(word, word_list())
