"""Exchanges with gradients, against the same computation by one process."""

import torch

from diptych.training.distributed.operations import gather, scatter, spread, total
from support.ranks import on_threads


def leaf(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double).requires_grad_()


def test_rows_that_are_gathered_keep_their_own_gradient():
    weights = leaf(5, 3, seed=1).detach()

    def work(ranks):
        rows = leaf(2 + ranks.rank, 3, seed=ranks.rank)
        common = gather(rows, ranks)
        (common * weights).sum().backward()
        return rows.detach(), common.detach(), rows.grad

    (first, common, to_first), (second, again, to_second) = on_threads(2, work)
    assert torch.equal(common, torch.cat([first, second]))
    assert torch.equal(common, again)
    assert torch.equal(torch.cat([to_first, to_second]), weights)


def test_sets_of_different_sizes_are_filled_up_with_zeros():
    def work(ranks):
        sets = leaf(1, 1 + ranks.rank, 2, seed=ranks.rank)
        common = gather(sets, ranks)
        common.sum().backward()
        return common.detach(), sets.grad

    for common, gradient in on_threads(3, work):
        assert common.shape == (3, 3, 2)
        assert torch.equal(common[0, 1:], torch.zeros(2, 2).double())
        assert torch.equal(gradient, torch.ones_like(gradient))


def test_work_on_shares_has_the_gradients_of_one_process():
    """score = rows of images by all texts, as ranks compute it, against the plain product."""
    images, texts = leaf(5, 4, seed=2), leaf(7, 4, seed=3)
    wanted = (images @ texts.t()).tanh()
    wanted.square().sum().backward()

    def work(ranks):
        ours = images.detach().clone().requires_grad_(), texts.detach().clone().requires_grad_()
        scores = gather((scatter(ours[0], ranks) @ spread(ours[1], ranks).t()).tanh(), ranks)
        scores.square().sum().backward()
        return scores.detach(), ours[0].grad, ours[1].grad

    for count in (1, 2, 3):
        for scores, to_images, to_texts in on_threads(count, work):
            torch.testing.assert_close(scores, wanted.detach())
            torch.testing.assert_close(to_images, images.grad)
            torch.testing.assert_close(to_texts, texts.grad)


def test_a_total_passes_its_gradient_to_every_part():
    def work(ranks):
        part = leaf(seed=ranks.rank)
        both = total(3 * part, ranks)
        (2 * both).backward()
        return part.detach(), both.detach(), part.grad

    (first, both, gradient), (second, again, _) = on_threads(2, work)
    torch.testing.assert_close(both, 3 * (first + second))
    assert torch.equal(both, again)
    assert gradient == 6
