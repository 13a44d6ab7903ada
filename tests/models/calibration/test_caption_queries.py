import numpy as np

from diptych.models.calibration.caption_queries import LONGEST, CaptionIndex, content_words

CAPTIONS = [
    "A brown dog runs on the beach .",
    "Two dogs are running.",
    "The dog is wet",
    "A dog",
    "a red car beside a dog",
    "the red cars",
]
OWNERS = np.array([0, 0, 0, 1, 1, 1])


def test_words_are_compared_without_plurals_case_and_function_words():
    assert content_words("The DOGS in two boxes") == {"dog", "box"}
    assert content_words("of the a") == frozenset()


def test_a_photo_matches_if_two_of_its_captions_do():
    index = CaptionIndex(CAPTIONS, OWNERS, 2)
    assert index.mentions("dogs").tolist() == [3, 2]
    sure, maybe = index.matches("red dog")
    assert (sure.tolist(), maybe.tolist()) == ([False, False], [False, True])
    sure, _ = index.matches("a red car")
    assert sure.tolist() == [False, True]
    sure, _ = index.matches("brown dog on a beach")  # as long as only its own caption can be
    assert sure.tolist() == [True, False]
    assert not index.matches("the")[1].any()


def test_a_sentence_may_be_said_in_other_words():
    captions = ["a brown dog runs on the beach", "wet sand", "a dog in a field", "a cat", "a red car", "some car"]
    index = CaptionIndex(captions, np.array([0, 0, 1, 1, 2, 2]), 3)
    sure, maybe = index.matches("a brown dog on wet sand plays")  # 4 of its 5 words, in two captions; then 1 and none
    assert sure.tolist() == [True, False, False]
    assert maybe.tolist() == [True, False, False]
    sure, maybe = index.matches("a brown dog in a muddy field")  # half of the words may be enough
    assert sure.tolist() == [False, False, False]
    assert maybe.tolist() == [True, True, False]


def test_one_caption_per_photo_is_enough_if_there_are_no_more():
    sure, _ = CaptionIndex(CAPTIONS[3:5], np.array([0, 1]), 2).matches("dog")
    assert sure.tolist() == [True, True]


def test_drawn_queries_are_parts_of_captions():
    index = CaptionIndex(CAPTIONS, OWNERS, 2)
    drawn = index.draw(600, np.random.default_rng(0))
    assert {"dog", "red car", "a brown dog"} <= set(drawn)
    assert drawn.count("dog") > drawn.count("wet") > 0
    captions = [caption.lower() for caption in CAPTIONS]
    for query in drawn:
        assert any(query in caption for caption in captions)
        assert query in captions or len(query.split()) <= LONGEST + 1
        assert content_words(query)
