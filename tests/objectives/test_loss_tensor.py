import torch
from torch import Tensor

from diptych.objectives.loss_tensor import LossTensor


def test_it_is_the_number_of_the_same_graph():
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    one, two = leaf.square().unbind()
    loss = LossTensor.of(one + two, {"one": one, "two": two}, {"wrong": torch.tensor(0.5)})
    assert isinstance(loss, Tensor)
    assert loss.item() == 5
    assert {name: term.item() for name, term in loss.terms.items()} == {"one": 1, "two": 4}
    assert loss.error_rates["wrong"].item() == 0.5
    loss.backward()
    assert leaf.grad.tolist() == [2.0, 4.0]


def test_terms_can_be_weighed_anew():
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    one, two = leaf.square().unbind()
    loss = LossTensor.of(one + two, {"one": one, "two": two})
    (loss.terms["one"] + 10 * loss.terms["two"]).backward()
    assert leaf.grad.tolist() == [2.0, 40.0]
    assert loss.error_rates == {}


def test_what_is_computed_from_it_is_a_plain_tensor():
    loss = LossTensor.of(torch.tensor(3.0), {})
    for result in (loss / 2, 1 + loss, loss.detach(), loss.clone(), torch.stack([loss, loss]), loss.to(torch.float64)):
        assert type(result) is Tensor


def test_it_is_printed_as_a_number():
    loss = LossTensor.of(torch.tensor(3.25, requires_grad=True) * 2, {})
    assert f"{loss:.1f} {loss:>6.2f}" == "6.5   6.50"
