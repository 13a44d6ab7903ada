import numpy as np

from diptych.models.engines.engine import Encodings


def test_rows_of_encodings_are_taken_in_any_order():
    sets = tuple(np.full((length, 2), length, np.float32) for length in (1, 2, 3))
    encodings = Encodings(np.arange(6, dtype=np.float32).reshape(3, 2), sets)
    taken = encodings.take([2, 0])
    assert taken.vectors.tolist() == [[4, 5], [0, 1]]
    assert [len(rows) for rows in taken.sets] == [3, 1]
    assert (len(encodings), len(taken), len(encodings.take([]))) == (3, 2, 0)


def test_encodings_are_concatenated_with_their_sets():
    one = Encodings(np.ones((1, 2), np.float32), (np.ones((3, 2), np.float32),))
    other = Encodings(np.zeros((2, 2), np.float32), tuple(np.zeros((length, 2), np.float32) for length in (1, 0)))
    both = Encodings.concatenate([one, other])
    assert both.vectors.tolist() == [[1, 1], [0, 0], [0, 0]]
    assert [len(rows) for rows in both.sets] == [3, 1, 0]
    assert Encodings.concatenate([Encodings(np.ones((1, 2), np.float32))] * 2).sets is None


def test_encodings_without_sets_have_none_when_taken():
    assert Encodings(np.ones((3, 2), np.float32)).take([1]).sets is None
