from diptych.text.tokenisers.tokeniser import known_texts
from diptych.text.vocabulary import Vocabulary


def test_a_text_is_known_if_one_of_its_words_is():
    words = Vocabulary(("dog", "a"), (2, 1), 1)
    texts = ["A zebra", "zebra", "", "a dog", "zebra gnu"]
    assert known_texts(words, texts).tolist() == [True, False, False, True, False]
    assert known_texts(words, iter(texts)).tolist() == known_texts(words, texts).tolist()
    assert known_texts(words, []).shape == (0,)


def test_every_distinct_word_is_asked_about_once():
    class Asked(Vocabulary):
        def known(self, words):
            assert len(set(words)) == len(words)
            return super().known(words)

    assert known_texts(Asked(("dog",), (1,), 1), ["dog dog zebra", "zebra"]).tolist() == [True, False]
