"""Interpolation between two states; test_choice.py chooses the share, and test_train_adapting.py trains with it."""

import copy

import pytest
import torch

from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.training.engine.interpolation import mixed


def states():
    """The state of a model with batch normalisation, and that of it after its statistics and weights have moved."""
    torch.manual_seed(0)
    image = CNNSettings(pixels=16, width=2)
    matcher = VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=image, words=9).build()
    start = copy.deepcopy(matcher.state_dict())
    matcher.train().encode_images(torch.randint(0, 255, (4, 3, 16, 16), dtype=torch.uint8))
    with torch.no_grad():
        for parameter in matcher.parameters():
            parameter.add_(torch.randn_like(parameter))
    return matcher, start, matcher.state_dict()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_every_number_is_the_weighted_mean(share):
    matcher, start, end = states()
    between = mixed(start, end, share)
    counters = 0
    for name, value in end.items():
        if value.is_floating_point():
            expected = (1 - share) * start[name].double() + share * value.double()
            torch.testing.assert_close(between[name].double(), expected, rtol=1e-6, atol=1e-6)
        else:
            counters += 1
            assert value != start[name], "the counter has not moved: this test would prove nothing"
            assert torch.equal(between[name], value)
    assert counters
    assert all((between[name] > 0).all() for name in between if name.endswith("running_var"))
    assert any(not torch.equal(start[name], end[name]) for name in end if name.endswith("running_var"))
    matcher.load_state_dict(between)


def test_both_ends_are_exact():
    _, start, end = states()
    for share, expected in ((0.0, start), (1.0, end)):
        between = mixed(start, end, share)
        assert all(torch.equal(between[name], value) for name, value in expected.items() if value.is_floating_point())


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_frozen_weights_keep_their_bytes(share):
    frozen, trained = torch.tensor([-0.0, 0.0, 1.5]), torch.tensor([1.0, 2.0])
    between = mixed({"frozen": frozen, "trained": trained}, {"frozen": frozen.clone(), "trained": trained + 1}, share)
    assert between["frozen"].numpy().tobytes() == frozen.numpy().tobytes()
    assert torch.equal(between["trained"], trained + share)
