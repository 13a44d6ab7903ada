import pytest
import torch

from diptych.text.features import mixtures
from diptych.text.features.fisher import fisher_vectors, word_gradients
from diptych.text.features.mixtures import Mixture

CENTRES, SIZE = 3, 4


def some(seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(CENTRES, generator=generator).double() + 0.2
    return Mixture(
        weights / weights.sum(),
        torch.randn(CENTRES, SIZE, generator=generator).double(),
        torch.rand(CENTRES, SIZE, generator=generator).double() + 0.5,
        torch.rand(CENTRES, SIZE, generator=generator) > 0.5,
    )


def words(count=7):
    return torch.randn(count, SIZE, generator=torch.Generator().manual_seed(1)).double()


def by_autograd(mixture, word):
    """The gradients of one word's log-likelihood in the mixture's parameters, over the root of the information."""
    locations, scales = (each.clone().requires_grad_() for each in (mixture.locations, mixture.scales))
    gaussian = torch.distributions.Normal(locations, scales).log_prob(word)
    laplacian = torch.distributions.Laplace(locations, scales).log_prob(word)
    centres = mixture.weights.log() + torch.where(mixture.laplacian, laplacian, gaussian).sum(1)
    by_location, by_scale = torch.autograd.grad(centres.logsumexp(0), (locations, scales))
    information = mixture.weights.unsqueeze(1) / mixture.scales.square()
    doubled = torch.where(mixture.laplacian, 1.0, 2.0)
    return torch.cat([by_location / information.sqrt(), by_scale / (doubled * information).sqrt()]).flatten()


@pytest.mark.parametrize("block", [1, 1 << 20], ids=["a word a block", "one block"])
def test_gradients_are_those_of_the_log_likelihood(block, monkeypatch):
    monkeypatch.setattr(mixtures, "_BLOCK_ELEMENTS", block)
    expected = torch.stack([by_autograd(some(), word) for word in words()])
    torch.testing.assert_close(word_gradients(words(), some()), expected)


@pytest.mark.parametrize("laplacian", [False, True], ids=["gaussian", "laplacian"])
def test_the_mean_square_of_every_gradient_is_one(laplacian):
    kind = torch.distributions.Laplace if laplacian else torch.distributions.Normal
    location, scale = torch.tensor([[2.0, -1.0]]), torch.tensor([[0.3, 4.0]])
    torch.manual_seed(0)
    drawn = kind(location[0], scale[0]).sample((100_000,))
    mixture = Mixture(torch.ones(1), location, scale, torch.full((1, 2), laplacian))
    squares = word_gradients(drawn, mixture).square().mean(0)
    torch.testing.assert_close(squares, torch.ones(4), atol=0.05, rtol=0)


def test_a_text_is_the_root_of_the_mean_of_its_words_at_length_one():
    table, mixture = words(), some()
    texts = [[0, 3, 3], [], [6], [1, 0, 5, 2]]
    flat = torch.tensor([word for text in texts for word in text])
    begins = torch.tensor([0, 3, 3, 4])
    made = fisher_vectors(flat, begins, table, mixture)
    for text, vector in zip(texts, made, strict=True):
        if not text:
            assert not vector.any()
            continue
        mean = torch.stack([by_autograd(mixture, table[word]) for word in text]).mean(0)
        root = mean.sign() * mean.abs().sqrt()
        torch.testing.assert_close(vector, root / root.norm())


def test_texts_without_any_word_are_zeros():
    nothing = torch.zeros(0, dtype=torch.int64)
    made = fisher_vectors(nothing, torch.zeros(2, dtype=torch.int64), words(), some())
    assert made.shape == (2, 2 * CENTRES * SIZE)
    assert not made.any()


def test_single_precision_agrees_with_double():
    mixture = some()
    single = Mixture(mixture.weights.float(), mixture.locations.float(), mixture.scales.float(), mixture.laplacian)
    torch.testing.assert_close(
        word_gradients(words().float(), single), word_gradients(words(), mixture).float(), atol=1e-5, rtol=1e-4
    )
