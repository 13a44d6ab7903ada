import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from diptych.models.layers.branch import Branch, linear, normed


def branch(*layers, dropout=0.0, normalised=True, inputs=6, standardised=False):
    torch.manual_seed(0)
    return Branch(inputs, layers, dropout, normalised, standardised)


def test_layers_relu_batch_norm_and_length_one():
    side = branch(7, 5)
    vectors = torch.randn(9, 6)
    first, last = side.layers[0], side.layers[-1]
    hidden = (vectors @ first.weight.t() + first.bias).clamp(min=0)
    joint = hidden @ last.weight.t() + last.bias
    centred = (joint - joint.mean(0)) / (joint.var(0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(side.train()(vectors), normalize(centred))
    assert isinstance(side.norm, nn.BatchNorm1d)


def test_a_linear_branch_is_one_layer():
    side = branch(5, normalised=False)
    vectors = torch.randn(9, 6)
    torch.testing.assert_close(side(vectors), normalize(vectors @ side.layers[0].weight.t()))
    assert [name for name, _ in side.named_parameters()] == ["layers.0.weight", "layers.0.bias"]


@pytest.mark.parametrize(("layers", "linear"), [((5,), 1), ((7, 5), 2), ((8, 7, 5), 3)], ids=str)
def test_any_depth(layers, linear):
    side = branch(*layers)
    assert side(torch.randn(4, 6)).shape == (4, 5)
    assert [type(step).__name__ for step in side.layers] == (["Linear", "ReLU", "Dropout"] * linear)[:-2]


def test_weights_start_as_vses_do():
    side = branch(7, 5)
    for layer in (side.layers[0], side.layers[-1]):
        bound = (6 / sum(layer.weight.shape)) ** 0.5
        assert 0.8 * bound < layer.weight.abs().max() <= bound
        assert (layer.bias == 0).all()


def test_dropout_follows_the_relu_and_acts_in_training_only():
    side = branch(400, 5, dropout=0.5, normalised=False)
    vectors = torch.randn(3, 6)
    assert not torch.equal(side.train()(vectors), side(vectors))
    assert torch.equal(side.eval()(vectors), side(vectors))
    seen = []
    side.layers[-1].register_forward_hook(lambda layer, inputs, output: seen.append(inputs[0]))
    side.train()(vectors)
    assert 0.6 < (seen[0] == 0).float().mean() < 0.9  # half of the half that the ReLU left
    assert (seen[0] >= 0).all()


@pytest.mark.parametrize("shape", [(2, 4), (2, 1, 4)], ids=str)
def test_empty_places_of_a_set_stay_zeros_and_are_nothing_to_the_statistics(shape):
    side = branch(7, 5)
    nn.init.ones_(side.layers[-1].bias)
    nn.init.ones_(side.norm.bias)
    sets = torch.randn(*shape, 6)
    there = torch.tensor([[True, True, True, True], [True, False, True, False]]).view(shape)
    sets[~there] = 0
    made = side.train()(sets)
    assert made.shape == (*shape, 5)
    assert (made[~there] == 0).all()
    torch.testing.assert_close(made[there], side(sets[there]))
    made.sum().backward()
    assert side.layers[0].weight.grad.abs().sum() > 0
    alone = branch(7, 5).train()
    nn.init.ones_(alone.layers[-1].bias)
    alone(sets[there])
    alone(sets[there])
    torch.testing.assert_close(alone.norm.running_mean, side.norm.running_mean)


@pytest.mark.parametrize("shape", [(5,), (2, 4), (2, 1, 4)], ids=str)
def test_a_branch_may_standardise_what_it_reads_and_empty_places_stay_empty(shape):
    side, plain = branch(7, 5, standardised=True), branch(7, 5)
    vectors = torch.randn(*shape, 6)
    if len(shape) > 1:
        vectors[..., 2, :] = 0
    assert torch.equal(side(vectors), plain(vectors)), "before anything is measured, nothing changes"
    mean, deviation = torch.randn(6), torch.rand(6) + 0.5
    side.standardise.measured(mean, deviation)
    scaled = torch.where((vectors != 0).any(-1, keepdim=True), (vectors - mean) / deviation, 0.0)
    made = side.eval()(vectors)
    torch.testing.assert_close(made, plain.eval()(scaled))
    assert not torch.allclose(made, plain(vectors))
    assert {name.split(".")[0] for name, _ in side.named_parameters()} == {"layers", "norm"}


def test_one_vector_has_no_statistics_of_its_own():
    side = branch(7, 5).train()
    side(torch.randn(9, 6))
    known = side.norm.running_mean.clone()
    one = torch.randn(1, 6)
    assert torch.equal(side(one), side.eval()(one))
    assert torch.equal(side.norm.running_mean, known)
    assert side.train()(torch.zeros(2, 3, 6)).count_nonzero() == 0


def test_batch_norm_of_one_vector_takes_what_is_known_and_learns_its_numbers():
    norm = nn.BatchNorm1d(5)
    norm(torch.randn(9, 5))
    nn.init.normal_(norm.bias)
    known = {name: value.clone() for name, value in norm.state_dict().items()}
    one = torch.randn(1, 5, requires_grad=True)
    expected = (one - known["running_mean"]) / (known["running_var"] + norm.eps).sqrt() + known["bias"]
    made = normed(norm, one)
    torch.testing.assert_close(made, expected)
    made.sum().backward()
    assert norm.bias.grad.tolist() == [1] * 5
    assert one.grad.all()
    assert all(torch.equal(value, known[name]) for name, value in norm.state_dict().items())
    two = torch.randn(2, 5)
    assert torch.equal(normed(norm, two), nn.functional.batch_norm(two, None, None, norm.weight, norm.bias, True))
    assert not torch.equal(norm.running_mean, known["running_mean"])
    assert torch.equal(normed(norm.eval(), one), norm(one))


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_a_layer_starts_with_xavier_weights(bias):
    layer = linear(30, 20, bias)
    assert 0.9 * (6 / 50) ** 0.5 < layer.weight.abs().max() <= (6 / 50) ** 0.5
    assert (layer.bias is not None) == bias
    assert not bias or not layer.bias.any()
