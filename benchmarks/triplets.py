"""Compare the two-branch objective, which selects triplets, with the forward and backward passes of the two branches.

1,500 pairs as in the two-branch paper: images from 1280 dimensions via 2048 to 512, texts from 6000 via 2048 to 512,
five texts per image, K = 50. The objective selects the 50 largest violations of each pair in both directions, sums
them, and computes the gradient of the scores. The constraints within a modality (l3 = l4 = 0.1) are measured as well,
but are not part of the target.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from diptych.data.sampling.extras import Extras
from diptych.machine import keep_freed_memory
from diptych.models.matchers.two_branch import TwoBranch, TwoBranchSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.objectives.extras import PairRoles, WithinScores
from diptych.objectives.neighbourhood import Neighbourhood
from diptych.objectives.objective import ScoredPairs
from harness import arguments, finish, interleaved

PAIRS, TEXTS_PER_IMAGE, IMAGE, TEXT = 1500, 5, 1280, 6000
TARGET = 0.5


class Branches:
    """Forward and backward passes of both branches, from vectors to the gradients of all weights."""

    def __init__(self) -> None:
        settings = TwoBranchSettings(image=FeatureSettings(shape=(IMAGE,)), words=10)
        matcher = TwoBranch(settings)
        self.image = matcher.image_branch.train()
        self.text = type(self.image)(TEXT, settings.text_layers, settings.dropout, settings.batch_norm).train()
        self.score = matcher.score
        self.vectors = torch.randn(PAIRS, IMAGE), torch.randn(PAIRS, TEXT)
        self.gradients = torch.randn(PAIRS, settings.image_layers[-1]), torch.randn(PAIRS, settings.text_layers[-1])

    def __call__(self) -> None:
        """Run both passes of both branches."""
        joint = self.image(self.vectors[0]), self.text(self.vectors[1])
        torch.autograd.backward(joint, self.gradients)

    @torch.no_grad()
    def scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """The scores of images with texts, of images with images, and of texts with texts."""
        images, texts = self.image(self.vectors[0]), self.text(self.vectors[1])
        return self.score(images, texts), self.score(images, images), self.score(texts, texts)


class Selection:
    """An objective on precomputed scores, with the gradient of the scores."""

    def __init__(self, objective: Neighbourhood, *scores: Tensor) -> None:
        self.objective = objective
        self.scores = [each.clone().requires_grad_() for each in scores]
        groups = torch.arange(PAIRS) // TEXTS_PER_IMAGE
        self.positives = groups[:, None] == groups
        everything = torch.ones(PAIRS, dtype=torch.bool)
        self.roles = PairRoles(torch.arange(PAIRS) % TEXTS_PER_IMAGE == 0, everything, everything, everything)

    def __call__(self) -> None:
        """Select, sum and differentiate."""
        scores, within_images, within_texts = self.scores
        for each in self.scores:
            each.grad = None
        extras = Extras(WithinScores(within_images, within_texts), self.roles)
        batch = ScoredPairs(scores, self.positives, extras)
        self.objective.loss(batch).total.backward()


def main() -> None:
    """Time all, interleaved."""
    options = arguments(__doc__)
    keep_freed_memory()
    torch.manual_seed(0)
    branches = Branches()
    scores = branches.scores()
    works: dict[str, Callable[[], object]] = {
        "branches": branches,
        "choosing": Selection(Neighbourhood(), *scores),
        "choosing_with_neighbours": Selection(Neighbourhood(image_to_image=0.1, text_to_text=0.1), *scores),
    }
    times = interleaved(works, 5 if options.quick else 15)
    ratio = times["choosing"].wall / times["branches"].wall
    finish(
        "triplets",
        ratio=ratio,
        target=TARGET,
        ok=ratio <= TARGET,
        ratio_with_neighbours=round(times["choosing_with_neighbours"].wall / times["branches"].wall, 3),
        milliseconds={name: round(1000 * each.wall, 1) for name, each in times.items()},
        cpu_milliseconds={name: round(1000 * each.cpu, 1) for name, each in times.items()},
    )


if __name__ == "__main__":
    main()
