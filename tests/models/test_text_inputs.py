import numpy as np
import pytest
import torch

from diptych.models.text_inputs import TextInputs
from diptych.text.tokenisers.token_table import TokenTable

TABLE = TokenTable.from_rows([[1, 2], [3], [4, 5, 6], [7]])
FEATURES = np.arange(8, dtype=np.float32).reshape(4, 2)
CPU = torch.device("cpu")


def test_a_batch_is_padded_and_has_the_features_of_its_texts():
    tokens = TextInputs(TABLE, FEATURES).tokens(np.array([2, 0]), CPU)
    assert tokens.ids.tolist() == [[4, 5, 6], [1, 2, 0]]
    assert tokens.lengths.tolist() == [3, 2]
    assert tokens.features.tolist() == [[4, 5], [0, 1]]
    assert TextInputs(TABLE).tokens(np.array([1]), CPU).features is None


@pytest.mark.parametrize("features", [None, FEATURES])
def test_some_of_the_texts(features):
    whole = TextInputs(TABLE, features)
    some = whole.take(np.array([3, 2, 0])).take(np.array([1, 2]))
    assert (len(whole), len(some)) == (4, 2)
    assert (whole.lengths.tolist(), some.lengths.tolist()) == ([2, 1, 3, 1], [3, 2])
    tokens = some.tokens(np.array([1, 0]), CPU)
    assert tokens.ids.tolist() == [[1, 2, 0], [4, 5, 6]]
    if features is not None:
        assert tokens.features.tolist() == [[0, 1], [4, 5]]
