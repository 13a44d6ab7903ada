"""Contrastive sums and max of hinges equal those of pytorch-metric-learning, values and gradients."""

import pytest
import torch
from pytorch_metric_learning import distances, losses, miners, reducers

from diptych.objectives import Contrastive, Hinge

LABELS = torch.arange(9)
OTHERS = LABELS.clone()  # the same tensor would exclude the pairs themselves


def contrastive(one, other):
    loss = losses.SupConLoss(temperature=0.2, reducer=reducers.MeanReducer())
    return loss(one, LABELS, ref_emb=other, ref_labels=OTHERS)


def hinges(one, other):
    cosine = distances.CosineSimilarity()
    hardest = miners.BatchHardMiner(distance=cosine)(one, LABELS, other, OTHERS)
    loss = losses.TripletMarginLoss(margin=0.2, distance=cosine, reducer=reducers.SumReducer())
    return loss(one, LABELS, hardest, ref_emb=other, ref_labels=OTHERS)


@pytest.mark.parametrize(("objective", "theirs"), [(Contrastive(temperature=0.2), contrastive), (Hinge(), hinges)])
def test_equal_to_pytorch_metric_learning(objective, theirs):
    images, texts = (torch.randn(9, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    ours = objective(images=images, texts=texts)
    expected = theirs(images, texts) + theirs(texts, images)
    torch.testing.assert_close(ours.detach(), expected.detach())
    inputs = [images, texts]
    torch.testing.assert_close(torch.autograd.grad(ours, inputs), torch.autograd.grad(expected, inputs))
