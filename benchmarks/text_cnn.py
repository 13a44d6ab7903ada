"""Compare a training pass of the text CNN with the network as its paper describes it, and with its bare products.

The tower `cnn` of depth `resnet50`, forward and backward with gradients of all weights: 32 texts of 10.5 words on
average, at random offsets in 32 positions. The vocabulary has the size of the authors' COCO, 29,972 words; the 20,074
of the paper's Flickr30k, where the lookup takes a smaller share, are measured as well, also with depth `small`. The
paper's network takes one-hot columns, (texts, words, 1, positions), and consists of a 1x1 convolution over all words,
then blocks of 1x1 and 1x2 convolutions and batch norm over images of height one. The bare products are those of the
distinct windows, which is what the tower multiplies.

Words are drawn with probability proportional to 1 / rank^1.2, as in `plain.draw_texts`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from diptych.machine import keep_freed_memory
from diptych.models.layers.text_blocks import Block, Convolution
from diptych.models.towers.text.cnn import TextCNN, TextCNNSettings
from diptych.text.tokenisers.token_table import PAD, SPECIALS
from harness import Timing, arguments, finish, interleaved

TEXTS, BATCHES = 32, 4
COCO, FLICKR30K = 29_972, 20_074  # words
EXPONENT = 1.2
TARGET, CLOSE = 5.0, 1e-4


def draw_texts(length: int, vocabulary: int) -> Tensor:
    """A batch of texts of 4 to 17 words at random offsets, (texts, length), PAD elsewhere."""
    chance = 1 / torch.arange(1, vocabulary + 1, dtype=torch.float64) ** EXPONENT
    placed = torch.multinomial(chance, TEXTS * length, replacement=True).view(TEXTS, length) + len(SPECIALS)
    words = torch.randint(4, 18, (TEXTS, 1))
    begins = (torch.rand(TEXTS, 1) * (length - words + 1)).long()
    places = torch.arange(length)
    return placed.masked_fill((places < begins) | (places >= begins + words), PAD)


class PlainConvolution(nn.Module):
    """A convolution over images of height one, and batch norm, with the weights of Diptych's layer."""

    def __init__(self, ours: Convolution, span: int, stride: int) -> None:
        super().__init__()
        outputs, inputs = ours.product.weight.shape
        self.convolution = nn.Conv2d(inputs // span, outputs, (1, span), stride=(1, stride), bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        with torch.no_grad():
            self.convolution.weight.copy_(ours.product.weight.view(outputs, 1, span, -1).permute(0, 3, 1, 2))

    def forward(self, pictures: Tensor) -> Tensor:
        """(texts, inputs, 1, positions) to (texts, outputs, 1, positions / stride)."""
        normed: Tensor = self.norm(self.convolution(pictures))
        return normed


class PlainBlock(nn.Module):
    """A residual block of convolutions."""

    def __init__(self, ours: Block) -> None:
        super().__init__()
        self.stride = ours.stride
        self.narrow = PlainConvolution(ours.narrow, 1, 1)
        self.pair = PlainConvolution(ours.pair, 2, ours.stride)
        self.widen = PlainConvolution(ours.widen, 1, 1)
        self.shortcut = None if ours.shortcut is None else PlainConvolution(ours.shortcut, 1, ours.stride)

    def forward(self, pictures: Tensor) -> Tensor:
        """(texts, inputs, 1, positions) to (texts, width, 1, positions / stride)."""
        inner = relu(self.narrow(pictures))
        inner = relu(self.pair(inner if self.stride == 2 else pad(inner, (1, 0))))  # stride 2 halves the positions
        residual = pictures if self.stride == 1 else pictures[..., 1:]  # the second position of each window
        return relu(self.widen(inner) + (pictures if self.shortcut is None else self.shortcut(residual)))


class Plain(nn.Module):
    """The paper's network on one-hot tensors, with the weights of Diptych's tower."""

    def __init__(self, ours: TextCNN) -> None:
        super().__init__()
        self.words = nn.Conv2d(ours.words.num_embeddings - len(SPECIALS), ours.words.embedding_dim, 1, bias=False)
        self.norm = nn.BatchNorm2d(ours.words.embedding_dim)
        self.blocks = nn.Sequential(*(PlainBlock(block) for block in ours.blocks if isinstance(block, Block)))
        with torch.no_grad():
            self.words.weight.copy_(ours.words.weight[len(SPECIALS) :].t()[..., None, None])

    def forward(self, placed: Tensor) -> Tensor:
        """Words at their positions to (texts, size)."""
        text, place = (placed != PAD).nonzero(as_tuple=True)
        weight = self.words.weight
        sentences = torch.zeros(len(placed), weight.shape[1], 1, placed.shape[1], dtype=weight.dtype)
        sentences[text, placed[text, place] - len(SPECIALS), 0, place] = 1
        pictures: Tensor = self.blocks(self.norm(self.words(sentences)))
        return pictures.mean((2, 3))


class Passes:
    """Forward and backward passes of a network, cycling through the batches."""

    def __init__(self, network: nn.Module, encode: Callable[[Tensor], Tensor], batches: list[Tensor]) -> None:
        self.network, self.encode, self.batches = network, encode, cycle(batches)

    def __call__(self) -> Tensor:
        """Run both passes on the next batch, with gradients of all weights, and return its vectors."""
        self.network.zero_grad()
        vectors = self.encode(next(self.batches))
        vectors.square().sum().backward()
        return vectors.detach()


class BareProducts:
    """The matrix products of the same two passes, and nothing else, on prepared arrays."""

    def __init__(self, tower: TextCNN, placed: Tensor) -> None:
        self.operands: list[tuple[Tensor, Tensor, Tensor]] = []
        products = [part for part in tower.modules() if isinstance(part, nn.Linear)]
        hooks = [product.register_forward_hook(self._remember) for product in products]
        with torch.no_grad():
            tower.encode(placed)
        for hook in hooks:
            hook.remove()

    def _remember(self, product: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> None:
        weight = product.get_parameter("weight").detach().clone()
        self.operands.append((inputs[0].clone(), weight, outputs.clone()))

    @torch.no_grad()
    def __call__(self) -> None:
        """Each layer's product, and those of its gradients to the weight and to its input."""
        for inputs, weight, outputs in self.operands:
            inputs @ weight.t()
            outputs.t() @ inputs
            outputs @ weight


def difference(tower: TextCNN, batch: Tensor) -> float:
    """The largest difference between the networks' vectors, and between the gradients of their words.

    It is relative to the largest entry, and in double precision: an untrained network of this depth amplifies rounding.
    """
    ours = copy.deepcopy(tower).double()
    plain = Plain(ours).double()
    vectors = Passes(ours, ours.encode, [batch])(), Passes(plain, plain, [batch])()
    assert ours.words.weight.grad is not None
    assert plain.words.weight.grad is not None
    gradients = ours.words.weight.grad[len(SPECIALS) :].t(), plain.words.weight.grad[..., 0, 0]
    return max(float((one - other).abs().max() / other.abs().max()) for one, other in (vectors, gradients))


def compare(depth: str, vocabulary: int, rounds: int) -> tuple[dict[str, Timing], float]:
    """The times of a tower, of the plain network and of the bare products, and the networks' largest difference."""
    settings = TextCNNSettings.model_validate({"depth": depth})
    tower = settings.build(vocabulary + len(SPECIALS)).train()
    plain = Plain(tower).train()
    batches = [draw_texts(settings.length, vocabulary) for _ in range(BATCHES)]
    works: dict[str, Callable[[], object]] = {
        "ours": Passes(tower, tower.encode, batches),
        "plain": Passes(plain, plain, batches),
        "bare products": BareProducts(tower, batches[0]),
    }
    return interleaved(works, rounds), difference(tower, batches[0])


def gain(times: dict[str, Timing]) -> float:
    """The speedup over the plain network."""
    return times["plain"].wall / times["ours"].wall


def main() -> None:
    """Compare two depths and two vocabularies; the target applies to the paper's depth and the larger vocabulary."""
    options = arguments(__doc__)
    keep_freed_memory()
    torch.manual_seed(0)
    rounds = 4 if options.quick else 16
    times, apart = compare("resnet50", COCO, rounds)
    flickr, flickr_apart = compare("resnet50", FLICKR30K, rounds)
    small, small_apart = compare("small", FLICKR30K, rounds)
    farthest = max(apart, flickr_apart, small_apart)
    finish(
        "text_cnn",
        ratio=gain(times),
        target=TARGET,
        ok=gain(times) >= TARGET and farthest <= CLOSE,
        ratio_flickr30k=round(gain(flickr), 3),
        ratio_small=round(gain(small), 3),
        fraction_of_bare_rate=round(times["bare products"].wall / times["ours"].wall, 3),
        largest_difference=farthest,
        milliseconds={name: round(1000 * each.wall, 1) for name, each in times.items()},
        cpu_milliseconds={name: round(1000 * each.cpu, 1) for name, each in times.items()},
        milliseconds_flickr30k={name: round(1000 * each.wall, 1) for name, each in flickr.items()},
        milliseconds_small={name: round(1000 * each.wall, 1) for name, each in small.items()},
    )


if __name__ == "__main__":
    main()
