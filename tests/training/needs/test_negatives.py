import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from diptych.data.corpus import Features
from diptych.data.sampling.batch import PairReader
from diptych.data.sampling.extras import Extras
from diptych.data.sampling.negatives import DrawnNegatives
from diptych.data.sampling.pairs import Pairs
from diptych.features.readers import FeatureReader
from diptych.models.layers.batch_norm import join_batch_norms
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.words import WordsSettings
from diptych.objectives.extras import NegativeOptions
from diptych.objectives.neighbourhood import Neighbourhood
from diptych.text.tokenisers.token_table import TokenTable
from diptych.training.distributed.agreement import Agreement
from diptych.training.distributed.reader import ShareReader
from diptych.training.needs.negatives import Negatives
from diptych.training.needs.roles import Roles
from diptych.training.prepare import make_step
from diptych.training.recipe import Stage
from support.encoded import batch_of_pairs, encode_randomly
from support.ranks import on_threads


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


@pytest.mark.parametrize(("most", "drawn"), [(None, 3), (3, 3), (4, 3), (2, None)])
def test_if_all_negatives_count_there_is_no_first_pass(most, drawn):
    negatives = DrawnNegatives(None if drawn is None else np.zeros((1, drawn), np.int64), np.array([[1, 2, 3]]))
    batch = batch_of_pairs([0], [0], Extras(negatives))
    assert Negatives(NegativeOptions(most)).narrow(batch, None) is batch
    assert Negatives(NegativeOptions(1)).narrow(batch_of_pairs([0], [0]), None).extras.get(DrawnNegatives) is None


def test_two_ranks_keep_the_negatives_that_one_process_keeps():
    """With batch norm, whose statistics are those of what is kept."""
    torch.manual_seed(0)
    image, text = FeatureSettings(shape=(6,)), WordsSettings(word=4, hidden=5, dropout=0.0)
    layers = {"image_layers": (7, 5), "text_layers": (7, 5), "dropout": 0.0}
    matcher = TwoBranchSettings(image=image, text=text, words=20, **layers).build().double().train()
    objective = Neighbourhood(margin=0.5, most=3)
    random = np.random.default_rng(0)
    drawn = DrawnNegatives(random.integers(-1, 40, (8, 15)))
    pairs = Pairs(random.integers(0, 40, 8), np.arange(8), (0, 1, 1, 0)).with_extra(drawn)
    table = TokenTable(random.integers(4, 20, 24).astype(np.int32), np.arange(0, 25, 3))
    images = FeatureReader(Features([random.standard_normal((40, 6)).astype(np.float32)]), np.arange(40), {})
    reader = PairReader(np.arange(8), images, table)

    def step_on(matcher, batch):
        needs = [Negatives(objective.need_options("negatives")), Roles()]
        batch = replace(batch, images=batch.images.astype(np.float64))
        loss, _ = make_step(matcher, Stage(objective=objective), torch.device("cpu"), needs).gradients(batch)
        found = {name: weight.grad for name, weight in matcher.named_parameters()}
        return {"loss": loss.total.detach(), **found, **dict(matcher.named_buffers())}

    copies = [copy.deepcopy(matcher) for _ in range(2)]

    def work(ranks):
        join_batch_norms(copies[ranks.rank], ranks)
        shares = ShareReader(reader, Agreement(ranks), together=False)
        return step_on(copies[ranks.rank], shares.settle(shares.read(pairs)))

    alone = step_on(matcher, reader.read(pairs))
    assert alone["loss"] > 0
    for together in on_threads(2, work):
        assert together.keys() == alone.keys()
        for name, value in together.items():
            torch.testing.assert_close(value, alone[name], rtol=1e-8, atol=1e-10)
