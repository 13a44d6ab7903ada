"""Compare the sampled softmax of the instance loss with the softmax over all 113,287 classes, in time and memory.

64 images and 64 texts, 2048-d features that require a gradient, one classifier, SGD with momentum. The full softmax is
torch's own on all 128 features in one product; the sampled one has 4,096 rows. Memory is the peak of a step beyond what
the process used before, without the classes and their momentum, which both have. The ratio is the larger of the
ratios of time and memory. Requires Linux, to read memory usage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torch.optim import SGD

from diptych.machine import available_cores, keep_freed_memory
from diptych.objectives.softmax import class_losses
from diptych.training.inputs.sampled_classifier import SampledClassifier
from harness import arguments, finish, interleaved

CLASSES, SIZE, PAIRS, SAMPLED = 113_287, 2048, 64, 4096
TARGET = 0.2


def batch(classes: int) -> tuple[Tensor, Tensor]:
    """The features of images and texts, (2 pairs, size), and the class of each pair, (pairs,)."""
    return torch.randn(2 * PAIRS, SIZE, requires_grad=True), torch.randint(classes, (PAIRS,))


def initial_classifier(classes: int) -> Tensor:
    """A constant classifier, (classes, size): the time of a step does not depend on the values."""
    return torch.full((classes, SIZE), 0.01)


def optimiser_of(parameters: Iterable[nn.Parameter]) -> SGD:
    """SGD as in training."""
    return SGD(parameters, lr=0.01, momentum=0.9, fused=True)


class Full:
    """The softmax over all classes, whose gradient is as large as the classifier."""

    def __init__(self, classes: int = CLASSES) -> None:
        self.classes = classes
        self.weight = nn.Parameter(initial_classifier(classes))
        self.optimiser = optimiser_of([self.weight])

    def __call__(self) -> None:
        """Train on one batch."""
        features, labels = batch(self.classes)
        self.optimiser.zero_grad()
        cross_entropy(linear(features, self.weight), torch.cat([labels, labels])).backward()
        self.optimiser.step()

    def tables(self) -> list[Tensor]:
        """The classes and their momentum, which live from step to step."""
        return [self.weight.detach(), self.optimiser.state[self.weight]["momentum_buffer"]]


class Sampled:
    """The softmax over a sample of the classes, drawn in each step."""

    def __init__(self, classes: int = CLASSES) -> None:
        self.classes = classes
        self.sampled = SampledClassifier({"classifier": initial_classifier(classes)}, SAMPLED)
        self.optimiser = optimiser_of(self.sampled.rows.values())

    def __call__(self) -> None:
        """Train on one batch."""
        features, labels = batch(self.classes)
        self.optimiser.zero_grad()
        rows, correction = self.sampled.draw(labels)
        self.sampled.load(self.optimiser)
        losses, _ = class_losses(features, self.sampled.rows["classifier"], None, torch.cat([rows, rows]), correction)
        losses.mean().backward()
        self.optimiser.step()
        self.sampled.store(self.optimiser)

    def tables(self) -> list[Tensor]:
        """The classes and their momentum, which live from step to step."""
        return list(self.sampled.tensors().values())


KINDS: dict[str, type[Full] | type[Sampled]] = {"full": Full, "sampled": Sampled}


def used(what: str) -> int:
    """The memory of this process in bytes: current (`VmRSS`) or peak (`VmHWM`)."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, "requires Linux"
    return int(found[1]) * 1024


def memory(name: str) -> tuple[float, float]:
    """The peak gigabytes of a step without and with the tables, in a process that does nothing else.

    Freed memory is returned to the system here; otherwise it would be kept in pieces too small for the full gradient.
    """
    prepare()
    KINDS[name](PAIRS)()  # with few classes, so that torch's one-time allocations are not counted
    before = used("VmRSS")
    step = KINDS[name]()
    step()
    tables = step.tables()
    for table in tables:
        table.mul_(1)  # zeros take no memory before they are written
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    step()
    with_tables = used("VmHWM") - before
    return (with_tables - sum(table.nbytes for table in tables)) / 1e9, with_tables / 1e9


def prepare() -> None:
    """Use all cores and a fixed seed."""
    torch.set_num_threads(available_cores())
    torch.manual_seed(0)


def main() -> None:
    """Measure the memory of each in a process of its own, then time both, interleaved."""
    options = arguments(__doc__)
    beyond, with_tables = {}, {}
    for name in KINDS:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            beyond[name], with_tables[name] = process.submit(memory, name).result()
    prepare()
    keep_freed_memory()  # as training does
    times = interleaved({name: kind() for name, kind in KINDS.items()}, 2 if options.quick else 8)
    ratios = {
        "time": times["sampled"].wall / times["full"].wall,
        "memory": beyond["sampled"] / beyond["full"],
    }
    ratio = max(ratios.values())
    finish(
        "instance_classes",
        ratio=ratio,
        target=TARGET,
        ok=ratio <= TARGET,
        ratios={name: round(each, 3) for name, each in ratios.items()},
        milliseconds={name: round(1000 * each.wall, 1) for name, each in times.items()},
        cpu_milliseconds={name: round(1000 * each.cpu, 1) for name, each in times.items()},
        gigabytes_beyond_tables={name: round(each, 3) for name, each in beyond.items()},
        gigabytes_with_tables={name: round(each, 3) for name, each in with_tables.items()},
        shape=[CLASSES, SIZE, PAIRS, SAMPLED],
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
