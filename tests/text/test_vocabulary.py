from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import DataError, RunError
from diptych.text.tokenisers.token_table import END, PAD, START, UNKNOWN
from diptych.text.tokenisers.treebank import tokenise
from diptych.text.vocabulary import Vocabulary, require_words

TEXTS = ["A dog runs.", "A dog sleeps.", "The dog's cat runs", "a <start> <pad> sign"]
GOOD = {
    "format": "diptych-vocabulary",
    "version": 1,
    "threshold": 2,
    "words": ["dog", "cat"],
    "counts": [3, 2],
}


def test_ids_follow_counts_then_the_alphabet() -> None:
    vocabulary = Vocabulary.from_texts(TEXTS, threshold=2)
    assert vocabulary.words == ("a", "dog", ".", "<", ">", "runs")
    assert vocabulary.counts == (3, 3, 2, 2, 2, 2)
    assert len(vocabulary) == 10
    assert (PAD, START, END, UNKNOWN) == (0, 1, 2, 3)
    assert vocabulary.encode("A zebra runs.") == [1, 4, 3, 9, 6, 2]
    assert vocabulary.decode([1, 4, 3, 9, 6, 2, 0]) == [
        "<start>",
        "a",
        "<unknown>",
        "runs",
        ".",
        "<end>",
        "<pad>",
    ]


def test_the_threshold_defaults_to_four() -> None:
    assert Vocabulary.from_texts(["dog dog dog dog cat cat cat"]).words == ("dog",)


@given(st.lists(st.text(alphabet="ab .'<>", max_size=12)), st.integers(1, 3))
def test_keeps_just_the_words_that_occur_often_enough(texts: list[str], threshold: int) -> None:
    counter = Counter(token for text in texts for token in tokenise(text))
    frequent = {word for word, count in counter.items() if count >= threshold}
    if not frequent:
        with pytest.raises(DataError, match="lower threshold"):
            Vocabulary.from_texts(texts, threshold)
        return
    vocabulary = Vocabulary.from_texts(texts, threshold)
    assert set(vocabulary.words) == frequent
    assert [counter[word] for word in vocabulary.words] == list(vocabulary.counts)
    for text in texts:
        known = [word if word in frequent else "<unknown>" for word in tokenise(text)]
        assert vocabulary.decode(vocabulary.encode(text)) == ["<start>", *known, "<end>"]


@pytest.mark.parametrize("special", ["<pad>", "<start>", "<end>", "<unknown>"])
def test_a_text_cannot_hold_a_special(special: str) -> None:
    for vocabulary in (Vocabulary.from_texts([special], 1), Vocabulary((special,), (1,), 1)):
        inside = vocabulary.encode(special)[1:-1]
        assert not {PAD, START, END} & set(inside)
        assert vocabulary.ids.get(special, UNKNOWN) >= UNKNOWN


@pytest.mark.parametrize("number", [-1, 6])
def test_decoding_a_foreign_id_is_an_error(number: int) -> None:
    with pytest.raises(DataError, match=f"id {number} is not in this vocabulary of 6"):
        Vocabulary(("dog", "cat"), (1, 1), 1).decode([number])


def test_save_and_load_give_the_same(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_texts([*TEXTS, "café naïve 日本 “quoted”"], threshold=1)
    vocabulary.save(tmp_path)
    loaded = Vocabulary.load(tmp_path / "vocabulary.json")
    assert loaded == vocabulary
    assert loaded.digest == vocabulary.digest
    assert loaded.encode("café 日本") == vocabulary.encode("café 日本")
    content = json.loads((tmp_path / "vocabulary.json").read_text("utf-8"))
    assert list(content) == ["format", "version", "threshold", "words", "counts"]


def test_the_digest_is_of_the_words_in_their_order() -> None:
    one = Vocabulary(("dog", "cat"), (5, 4), 4)
    assert one.digest == Vocabulary(("dog", "cat"), (2, 1), 1).digest
    assert len(one.digest) == 64
    assert one.digest != Vocabulary(("cat", "dog"), (5, 4), 4).digest
    assert one.digest != Vocabulary(("dogcat",), (5,), 4).digest
    assert one.digest != Vocabulary(('dog","cat',), (5,), 4).digest


def test_the_digest_stays_between_versions() -> None:
    expected = "037222b986be3ffd1405de881692994dd112dc4c4e52978300f1198597f3c074"
    assert Vocabulary(("dog", "café"), (5, 4), 4).digest == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a vocabulary"),
        ({"format": None}, "not a vocabulary"),
        ({"version": 2}, "version 2, not the known 1"),
        ({"version": None}, "version None"),
        ({"words": ["dog", "dog"]}, "'dog' is listed 2 times"),
        ({"words": ["dog", 3]}, "not a list of words"),
        ({"words": ["dog", ["cat"]]}, "not a list of words"),
        ({"words": ["dog", ""]}, "not a list of words"),
        ({"words": "dc"}, "not a list of words"),
        ({"words": None}, "not a list of words"),
        ({"words": ["dog"]}, "2 counts for 1 words"),
        ({"counts": [1, 2.5]}, "not a list of whole numbers"),
        ({"counts": [1, True]}, "not a list of whole numbers"),
        ({"counts": None}, "not a list of whole numbers"),
        ({"threshold": "4"}, "'threshold' is not a whole number"),
    ],
)
def test_loading_names_the_file_the_fault_and_the_remedy(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "v.json"
    path.write_text(json.dumps(GOOD), "utf-8")
    assert Vocabulary.load(path).words == ("dog", "cat")
    path.write_text(json.dumps({**GOOD, **change}), "utf-8")
    with pytest.raises(DataError) as error:
        Vocabulary.load(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)
    assert "rebuild it" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"words"', b"null", b"\xff\xfe", b"dog\ncat\n"])
def test_loading_other_files_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "v.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"v\.json"):
        Vocabulary.load(path)


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize("name", ["v.json", "v.pkl"])
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_is_refused_unread(tmp_path: Path, name: str, protocol: int) -> None:
    path = tmp_path / name
    path.write_bytes(pickle.dumps(Bomb(), protocol))
    message = "not valid JSON" if name == "v.json" and protocol == 0 else "a pickle.*rebuild it"
    with pytest.raises(DataError, match=message):
        Vocabulary.load(path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        Vocabulary.load(tmp_path / "none.json")


def test_a_table_holds_what_encode_gives() -> None:
    vocabulary = Vocabulary.from_texts(TEXTS, threshold=2)
    table = vocabulary.encode_all(iter([*TEXTS, ""]))
    assert len(table) == 5
    assert table.flat.dtype == np.int32
    assert table.lengths.tolist() == [len(vocabulary.encode(text)) for text in [*TEXTS, ""]]
    ids, lengths = table.batch(np.array([2, 4, 2]))
    assert ids.dtype == lengths.dtype == np.int64
    assert ids.tolist() == [
        vocabulary.encode(TEXTS[2]),
        [START, END] + [PAD] * (lengths[0] - 2),
        vocabulary.encode(TEXTS[2]),
    ]


def test_words_are_split_and_told_apart_from_unknown_ones() -> None:
    vocabulary = Vocabulary.from_texts(TEXTS, threshold=2)
    assert vocabulary.split("A dog's zebra") == ["a", "dog", "'s", "zebra"]
    assert vocabulary.known(["a", "dog", "'s", "zebra"]).tolist() == [True, True, False, False]
    assert vocabulary.known([]).shape == (0,)
    assert vocabulary.known(vocabulary.sample_words).all()
    assert vocabulary.tokens("A zebra") == ["<start>", "a", "zebra", "<end>"]


@given(st.lists(st.text(alphabet="ab .'\n", max_size=12)))
def test_the_words_of_a_text_have_its_ids(texts: list[str]) -> None:
    vocabulary = Vocabulary(("a", "b", "."), (3, 2, 1), 1)
    whole, split = vocabulary.encode_all(texts), vocabulary.encode_words(map(vocabulary.split, texts))
    assert whole.flat.tolist() == split.flat.tolist()
    assert whole.offsets.tolist() == split.offsets.tolist()


def test_another_tokeniser_is_no_vocabulary() -> None:
    words = Vocabulary(("a",), (1,), 1)
    assert require_words(words, "needs words") is words
    with pytest.raises(RunError, match=r"^needs words$"):
        require_words(object(), "needs words")
    with pytest.raises(DataError, match=r"^needs words$"):
        require_words(object(), "needs words", DataError)


def test_a_grown_vocabulary_keeps_its_ids_and_adds_frequent_words() -> None:
    known = Vocabulary(("dog", "a"), (9, 8), 4)
    grown = known.grown(["a nova", "the nova", "the dog", "once"], threshold=2)
    assert grown.words == ("dog", "a", "nova", "the")  # of equal counts, alphabetically
    assert grown.counts == (9, 8, 2, 2)
    assert grown.threshold == 2
    assert grown.encode("a dog once") == known.encode("a dog once")
    assert grown.extends(known)
    assert grown.extends(grown)
    assert not known.extends(grown)
    assert not grown.extends(Vocabulary(("a", "dog"), (8, 9), 4))


def test_a_vocabulary_that_knows_every_frequent_word_stays() -> None:
    known = Vocabulary(("dog",), (9,), 4)
    assert known.grown(["dog dog", "rare"], threshold=2).digest == known.digest
