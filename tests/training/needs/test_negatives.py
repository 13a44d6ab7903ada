import numpy as np
import pytest
import torch

from diptych.data.sampling.extras import Extras
from diptych.data.sampling.negatives import DrawnNegatives
from diptych.training.needs.negatives import Negatives
from support.encoded import batch_of_pairs, encode_randomly


def test_without_drawn_negatives_there_is_nothing_to_score():
    batch = batch_of_pairs([0, 1], [0, 1])
    assert Negatives().supply(batch, encode_randomly(batch)) is None


@pytest.mark.parametrize("sides", [("images",), ("texts",), ("images", "texts")], ids=" and ".join)
def test_negatives_are_scored_with_the_other_side_of_their_pair(sides):
    drawn = {"images": np.array([[2, -1], [3, 0]]), "texts": np.array([[-1, -1, 3], [1, 2, -1]])}
    batch = batch_of_pairs([1, 0], [0, 1], Extras(DrawnNegatives(**{side: drawn[side] for side in sides})))
    pairs = encode_randomly(batch)
    scores = Negatives().supply(batch, pairs)
    images, texts = pairs.encoded.images, pairs.encoded.texts
    expected = {
        "images": [
            [float(images[row] @ texts[pair]) if row >= 0 else -np.inf for row in rows]
            for pair, rows in zip((0, 1), drawn["images"], strict=True)
        ],
        "texts": [
            [float(images[pair] @ texts[row]) if row >= 0 else -np.inf for row in rows]
            for pair, rows in zip((1, 0), drawn["texts"], strict=True)
        ],
    }
    for side in ("images", "texts"):
        if side in sides:
            torch.testing.assert_close(getattr(scores, side), torch.tensor(expected[side]))
        else:
            assert getattr(scores, side) is None


def test_gradients_reach_negatives_and_pairs_alike():
    batch = batch_of_pairs([0], [0], Extras(DrawnNegatives(images=np.array([[1, -1]]))))
    pairs = encode_randomly(batch)
    pairs.encoded.images.requires_grad_()
    pairs.encoded.texts.requires_grad_()
    Negatives().supply(batch, pairs).images[0, 0].backward()
    assert torch.equal(pairs.encoded.images.grad[1], pairs.encoded.texts[0].detach())
    assert torch.equal(pairs.encoded.texts.grad[0], pairs.encoded.images[1].detach())
    assert not pairs.encoded.images.grad[[0, 2, 3]].any()
