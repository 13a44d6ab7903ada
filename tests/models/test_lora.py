"""LoRA against its equation in numpy, for linear layers and attention; merged and back."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from diptych.errors import RecipeError
from diptych.models.lora import LoRASettings, LowRank, add_low_rank, load_merged_state, merged_state
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import load_matcher, load_tensors, save_matcher
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.words import WordsSettings
from diptych.text.vocabulary import Vocabulary

ALL = {"all": lambda name: True}


class Network(nn.Module):
    """Everything that can have factors, and a convolution and an embedding, which cannot."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.cross = nn.MultiheadAttention(8, 2, batch_first=True, kdim=6, vdim=5)
        self.layers = nn.Sequential(nn.Conv1d(8, 8, 1), nn.Linear(4, 3))

    def forward(self, ids):
        words = self.words(ids)
        mixed = self.attention(words, words, words)[0]
        mixed = self.cross(mixed, words[:, :, :6], words[:, :, :5])[0]
        return self.layers(mixed.transpose(1, 2))


IDS = torch.randint(9, (3, 4), generator=torch.manual_seed(1))
MATRICES = {
    *("attention.in_proj_weight", "attention.out_proj.weight", "cross.q_proj_weight", "cross.k_proj_weight"),
    *("cross.v_proj_weight", "cross.out_proj.weight", "layers.1.weight"),
}


def frozen():
    torch.manual_seed(0)
    network = Network().eval().double()  # attention without gradients takes another path and rounds otherwise
    return network.requires_grad_(False)


def adapted(rank=2, alpha=3.0, prefixes=("",)):
    """A network with factors that are nothing special."""
    network = frozen()
    add_low_rank(network, LoRASettings(rank=rank, alpha=alpha), {"all": lambda name: name.startswith(prefixes)})
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, LowRank):
                part.b.normal_()
    return network


def test_every_matrix_follows_the_equation():
    before, network = frozen().state_dict(), adapted()
    found = set()
    for name, module in list(network.named_modules()):
        for matrix, parametrisation in getattr(module, "parametrizations", {}).items():
            a, b = (factor.detach().double().numpy() for factor in (parametrisation[0].a, parametrisation[0].b))
            start = before[f"{name}.{matrix}"].double().numpy()
            expected = np.array(
                [
                    [start[i, j] + 3.0 / 2 * sum(b[i, k] * a[k, j] for k in range(2)) for j in range(start.shape[1])]
                    for i in range(start.shape[0])
                ]
            )
            np.testing.assert_allclose(getattr(module, matrix).detach().numpy(), expected, atol=1e-6)
            assert not np.allclose(start, expected, atol=0.01)
            found.add(f"{name}.{matrix}")
    assert found == MATRICES


def test_it_starts_exactly_where_the_weights_are():
    network = frozen()
    weights, before = network.state_dict(), network(IDS)
    add_low_rank(network, LoRASettings(rank=2), ALL)
    merged = merged_state(network)
    assert all(torch.equal(merged[name], value) for name, value in weights.items())
    torch.testing.assert_close(network(IDS), before, rtol=0, atol=1e-12)
    factors = [part for part in network.modules() if isinstance(part, LowRank)]
    assert all(part.a.any() for part in factors)  # else nothing would ever be learned
    assert not any(part.b.any() for part in factors)


def test_only_the_factors_are_trained():
    network = adapted()
    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert {name.rpartition(".")[2] for name in trained} == {"a", "b"}
    assert len(trained) == 2 * len(MATRICES)
    network(IDS).square().sum().backward()
    assert all(parameter.grad.any() for parameter in network.parameters() if parameter.requires_grad)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_merged_weights_give_the_same_output(training):
    network, plain = adapted().train(training), frozen().train(training)
    merged = merged_state(network)
    assert merged.keys() == plain.state_dict().keys()
    unmerged = network(IDS)
    assert (plain(IDS) - unmerged).abs().max() > 0.01
    plain.load_state_dict(merged)
    torch.testing.assert_close(plain(IDS), unmerged, rtol=0, atol=1e-6)
    with torch.no_grad():  # where attention takes another path
        torch.testing.assert_close(plain(IDS), network(IDS), rtol=0, atol=1e-6)


def test_a_merged_state_can_be_loaded_into_a_network_with_factors():
    network, other = adapted(), adapted()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_()
    load_merged_state(network, merged_state(other))
    torch.testing.assert_close(network(IDS), other(IDS))
    assert all(parameter.requires_grad == (name[-2:] in (".a", ".b")) for name, parameter in network.named_parameters())
    plain = frozen()
    load_merged_state(plain, merged_state(other))
    torch.testing.assert_close(plain(IDS), other(IDS))


def test_a_copy_is_a_copy():
    network = adapted()
    again = copy.deepcopy(network)
    assert torch.equal(again(IDS), network(IDS))
    with torch.no_grad():
        again.layers[1].parametrizations.weight[0].b.zero_()
    assert not torch.equal(again(IDS), network(IDS))


def test_parts_are_chosen_by_the_beginnings_of_names():
    network = adapted(prefixes=("attention.", "layers.1."))
    names = {name for name, part in network.named_modules() if isinstance(part, LowRank)}
    assert names == {
        "attention.parametrizations.in_proj_weight.0",
        "attention.out_proj.parametrizations.weight.0",
        "layers.1.parametrizations.weight.0",
    }


def test_trained_matrices_have_no_factors():
    network = frozen()
    network.attention.requires_grad_(True)
    add_low_rank(network, LoRASettings(rank=2), ALL)
    assert not hasattr(network.attention, "parametrizations")
    assert not hasattr(network.attention.out_proj, "parametrizations")
    assert hasattr(network.layers[1], "parametrizations")


def test_what_cannot_be_adapted_is_refused_in_one_line():
    for settings, prefix, message in (
        (LoRASettings(rank=2, parts=("words",)), "words.", "lora.parts: 'words' has no frozen weight matrix"),
        (LoRASettings(rank=6), "cross.v", "lora.rank = 6: cross.v_proj_weight is 8 x 5; use at most 5, or leave it"),
        (LoRASettings(rank=4), "", "lora.rank = 4: layers.1.weight is 3 x 4; use at most 3"),
    ):
        with pytest.raises(RecipeError) as caught:
            add_low_rank(frozen(), settings, {settings.parts[0]: lambda name, prefix=prefix: name.startswith(prefix)})
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_saved_matcher_holds_plain_matrices(tmp_path):
    words = Vocabulary.from_texts(["a red circle"], 1)
    image, text = FeatureSettings(shape=(6,)), WordsSettings(word=4, hidden=5)
    matcher = VSESettings(joint=5, image=image, text=text, words=len(words)).build().eval()
    matcher.requires_grad_(False)
    names = set(matcher.state_dict())
    add_low_rank(matcher, LoRASettings(rank=2), ALL)
    with torch.no_grad():
        for part in matcher.modules():
            if isinstance(part, LowRank):
                part.b.normal_()
    save_matcher(tmp_path / "weights.safetensors", matcher, words, {})
    assert set(load_tensors(tmp_path / "weights.safetensors")[0]) == names
    again = load_matcher(tmp_path / "weights.safetensors", words).eval()
    tokens, images = Tokens(torch.tensor([[1, 4, 5, 2]]), torch.tensor([4])), torch.randn(3, 6)
    torch.testing.assert_close(again.encode_texts(tokens), matcher.encode_texts(tokens), rtol=0, atol=1e-6)
    torch.testing.assert_close(again.encode_images(images), matcher.encode_images(images), rtol=0, atol=1e-6)
