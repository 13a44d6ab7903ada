import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.text.tokenisers.token_table import END, PAD, SPECIALS, START, UNKNOWN, TokenTable

rows_of_ids = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=8), min_size=1, max_size=9)


def test_special_ids_never_change():
    assert (PAD, START, END, UNKNOWN) == (0, 1, 2, 3)
    assert [SPECIALS[number] for number in (PAD, START, END, UNKNOWN)] == ["<pad>", "<start>", "<end>", "<unknown>"]


@given(rows_of_ids, st.data())
def test_batches_are_the_padded_rows(rows, data):
    table = TokenTable.from_rows(iter(rows))
    assert len(table) == len(rows)
    assert table.flat.dtype == np.int32
    assert table.lengths.tolist() == [len(row) for row in rows]
    indices = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1)))
    ids, lengths = table.batch(indices)
    assert ids.dtype == lengths.dtype == np.int64
    assert ids.shape == (len(indices), max(lengths, default=0))
    for row, length, index in zip(ids, lengths, indices, strict=True):
        assert row[:length].tolist() == rows[index]
        assert (row[length:] == PAD).all()


def test_no_text_has_a_row_outside_the_table():
    table = TokenTable.from_rows([[1, 4, 2], [1, 2]])
    for index in (2, -3):
        with pytest.raises(IndexError):
            table.batch([index])
    assert len(TokenTable.from_rows([])) == 0
    assert TokenTable.from_rows([]).batch([])[0].shape == (0, 0)
