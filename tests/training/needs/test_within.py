import pytest
import torch

from diptych.training.needs.within import Within
from support.encoded import batch_of_pairs, encode_randomly


@pytest.mark.parametrize("text_of", [[0, 1, 2], [0, 1, 0]], ids=["distinct texts", "a repeated text"])
def test_pairs_are_compared_with_pairs_of_the_same_side(text_of):
    batch = batch_of_pairs([1, 0, 1], text_of)
    pairs = encode_randomly(batch)
    scores = Within().supply(batch, pairs)
    for found, encoded, rows in (
        (scores.images, pairs.encoded.images, [1, 0, 1]),
        (scores.texts, pairs.encoded.texts, text_of),
    ):
        expected = [[float(encoded[one] @ encoded[other]) for other in rows] for one in rows]
        torch.testing.assert_close(found, torch.tensor(expected))
