"""Choosing the triplets of a batch against the forward and backward passes of the two branches that it is chosen for.

1,500 pairs as in the two-branch paper: images of 1280 numbers through 2048 to 512, texts of 6000 through 2048 to 512,
five texts an image, K = 50. Choosing is all that the objective does with the scores: the 50 largest violations of each
pair in both directions, their sum, and its gradient in the scores. With the constraints within a modality (l3 = l4 =
0.1) it is measured beside, and not part of the target.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diptych.machine import keep_freed_memory
from diptych.models.matchers.two_branch import TwoBranch, TwoBranchSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.objectives.neighbourhood import Neighbourhood
from diptych.objectives.objective import ScoredPairs
from harness import arguments, finish, interleaved

PAIRS, TEXTS_AN_IMAGE, IMAGE, TEXT = 1500, 5, 1280, 6000
TARGET = 0.5


class Branches:
    """The branches' passes, forward and backward, from vectors to a gradient in every weight."""

    def __init__(self) -> None:
        settings = TwoBranchSettings(image=FeatureSettings(shape=(IMAGE,)), words=10)
        matcher = TwoBranch(settings)
        self.image = matcher.image_branch.train()
        self.text = type(self.image)(TEXT, settings.text_layers, settings.dropout, settings.batch_norm).train()
        self.score = matcher.score
        self.vectors = torch.randn(PAIRS, IMAGE), torch.randn(PAIRS, TEXT)
        self.gradients = torch.randn(PAIRS, settings.image_layers[-1]), torch.randn(PAIRS, settings.text_layers[-1])

    def __call__(self) -> None:
        """Both passes of both branches."""
        joint = self.image(self.vectors[0]), self.text(self.vectors[1])
        torch.autograd.backward(joint, self.gradients)

    @torch.no_grad()
    def scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """The scores of the batch, of its images among themselves and of its texts among themselves."""
        images, texts = self.image(self.vectors[0]), self.text(self.vectors[1])
        return self.score(images, texts), self.score(images, images), self.score(texts, texts)


class Choice:
    """An objective on scores that lie ready, and its gradient in them."""

    def __init__(self, objective: Neighbourhood, *scores: Tensor) -> None:
        self.objective = objective
        self.scores = [each.clone().requires_grad_() for each in scores]
        groups = torch.arange(PAIRS) // TEXTS_AN_IMAGE
        self.positives = groups[:, None] == groups
        self.first = torch.arange(PAIRS) % TEXTS_AN_IMAGE == 0, torch.ones(PAIRS, dtype=torch.bool)

    def __call__(self) -> None:
        """Choose, sum and differentiate."""
        scores, among_images, among_texts = self.scores
        for each in self.scores:
            each.grad = None
        batch = ScoredPairs(scores, self.positives, (among_images, among_texts), first=self.first)
        self.objective(batch).total.backward()


def main() -> None:
    """Compare them, interleaved."""
    options = arguments(__doc__)
    keep_freed_memory()
    torch.manual_seed(0)
    branches = Branches()
    scores = branches.scores()
    works = {
        "branches": branches,
        "choosing": Choice(Neighbourhood(), *scores),
        "choosing_with_neighbours": Choice(Neighbourhood(image_to_image=0.1, text_to_text=0.1), *scores),
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
