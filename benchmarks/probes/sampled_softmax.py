"""How far the expected gradient of the sampled softmax is from that of all classes.

    python benchmarks/probes/sampled_softmax.py
    python benchmarks/probes/sampled_softmax.py --classes 113287 --sampled 4096 --draws 2000 --problems 3

For random features and classifiers, the gradient by the features is averaged over many draws of a few
classes, and compared with the gradient over all classes: the length of the difference, relative to that of the latter.
The table has it with the weights of `diptych.training.inputs.sampled_classifier` and without them, by the standard
deviation of the logits, for labels drawn at random (training begins) and for those of the highest logit (the class is
learned). Figures are means over `--problems` classifiers.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor
from torch.optim import SGD

from diptych.training.inputs.sampled_classifier import SampledClassifier

SIZE = 64
SPREADS = (1.0, 2.0, 5.0)


def draws(classes: int, sampled: int, count: int) -> tuple[Tensor, Tensor]:
    """Drawn classes and their corrections, (draws, sampled) each, for a batch whose only class is 0."""
    classifier = SampledClassifier({"classifier": torch.arange(float(classes))[:, None]}, sampled)
    optimiser, found = SGD(classifier.rows.values(), lr=1), []
    for _ in range(count):
        _, correction = classifier.draw(torch.zeros(1, dtype=torch.long))
        classifier.load(optimiser)
        found.append((classifier.rows["classifier"].detach().squeeze(1).long(), correction))
    drawn, corrections = zip(*found, strict=True)
    return torch.stack(drawn), torch.stack(corrections)


def relative_error(classes: Tensor, logits: Tensor, drawn: Tensor, corrections: Tensor) -> float:
    """The error of the mean gradient by the features, d logits / d features being the classes: (classes, size)."""
    probabilities = (logits[drawn] + corrections).softmax(1)  # (draws, sampled)
    mean = torch.zeros(len(logits)).index_add_(0, drawn.flatten(), probabilities.flatten()) / len(drawn)
    exact = logits.softmax(0)
    label = torch.zeros(len(logits))
    label[0] = 1
    return float(((mean - exact) @ classes).norm() / ((exact - label) @ classes).norm())


def problem(count: int, spread: float, learned: bool, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random classes, (classes, size), and their logits for random features; class 0 is the label."""
    features = torch.randn(SIZE, generator=random)
    classes = spread * torch.randn(count, SIZE, generator=random) / math.sqrt(SIZE)
    logits = classes @ features
    if learned:
        order = logits.argsort(descending=True)
        classes, logits = classes[order], logits[order]
    return classes, logits


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--sampled", type=int, nargs="+", default=(10, 50, 100, 150))
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--problems", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    taken = {sampled: draws(options.classes, sampled, options.draws) for sampled in options.sampled}
    print(f"{options.classes:,} classes; sampled {tuple(options.sampled)}; weighted (unweighted)")
    for learned in (False, True):
        for spread in SPREADS:
            random = torch.Generator().manual_seed(1)
            problems = [problem(options.classes, spread, learned, random) for _ in range(options.problems)]
            cells = []
            for drawn, corrections in taken.values():
                errors = [
                    sum(relative_error(*each, drawn, added) for each in problems) / len(problems)
                    for added in (corrections, torch.zeros_like(corrections))
                ]
                cells.append(f"{errors[0]:6.1%} ({errors[1]:.1%})")
            print(f"{'learned' if learned else 'random '} label, logits {spread:g}: ", "  ".join(cells))


if __name__ == "__main__":
    main()
