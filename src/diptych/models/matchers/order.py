"""Order embeddings: a text is more general than the image it describes, and the score is how little that is violated.

    s(i, c) = -|| max(0, g(c) - f(i)) ||^2        (Vendrov et al. 2016, Eq. 2 and 3; Faghri et al. 2018, section 3.5)

Reference: Order-Embeddings of Images and Language, ICLR 2016; as Order0 and Order++ in VSE++, BMVC 2018.
Needs: what VSE needs.
When to use it: instead of the inner product if texts say less than their images show; section 3.5 finds it better.
Relation to others: the towers are those of VSE; only the score differs, and it is not symmetric. `absolute = true` with
the sum of hinges and a margin of 0.05 is Order0; the max of hinges without it is Order++. `root = true` is the score of
the authors' public code: the norm instead of its square. It ranks the same and trains differently: where embeddings are
nearly equal, as max of hinges makes them at first, the gradient of the square vanishes and that of the norm does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from diptych.models.matchers.vse import VSE, VSESettings
from diptych.models.tower import Tokens
from diptych.settings import Flag

# Differences in memory at once: 4 MB stay in the cache during three passes; measured, not critical.
BLOCK = 1 << 20

# Images per block if there are enough texts: few rows of both sides are then read again and again.
HEIGHT = 8


class OrderSettings(VSESettings):
    """The settings of VSE, `absolute` embeddings as in Order0, and the `root` of the public code."""

    name: Literal["order"] = "order"  # type: ignore[assignment]  # each file's own name, which its child replaces
    absolute: Flag = False
    root: Flag = False

    def build(self) -> Order:
        """A matcher with random weights."""
        return Order(self)


class Order(VSE):
    """See the module docstring. Its parts are those of VSE."""

    settings: OrderSettings

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images: (images, joint)."""
        return self._signed(super().encode_images(images))

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts: (texts, joint)."""
        return self._signed(super().encode_texts(tokens))

    @property
    def is_inner_product(self) -> bool:
        """Never: the order is not symmetric."""
        return False

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """Minus how far a text exceeds an image, at most 0: (images, texts)."""
        return order_scores(images, texts, root=self.settings.root)

    def _signed(self, joint: Tensor) -> Tensor:
        return joint.abs() if self.settings.absolute else joint


def order_scores(images: Tensor, texts: Tensor, *, root: bool = False) -> Tensor:
    """Minus how far each text exceeds each image, at most 0: (images, texts)."""
    beyond: Tensor = _Beyond.apply(images, texts, BLOCK)  # type: ignore[no-untyped-call]
    return -beyond if root else -beyond.square()


class _Beyond(torch.autograd.Function):
    """|| max(0, text - image) || for every image and text, and its gradient, which is 0 where the norm is 0.

    The differences, (images, texts, joint), are computed block by block and discarded; backward recomputes them.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, images: Tensor, texts: Tensor, block: int) -> Tensor:
        beyond = images.new_empty(len(images), len(texts))
        for rows, columns, positive in _positive_parts(images, texts, block):
            torch.linalg.vector_norm(positive, dim=2, out=beyond[rows, columns])
        ctx.save_for_backward(images, texts, beyond)
        ctx.block = block  # type: ignore[attr-defined]
        return beyond

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        images, texts, beyond = ctx.saved_tensors
        weights = (gradient / beyond).masked_fill_(beyond == 0, 0)  # (images, texts)
        of_images, of_texts = torch.zeros_like(images), torch.zeros_like(texts)
        for rows, columns, positive in _positive_parts(images, texts, ctx.block):
            positive.mul_(weights[rows, columns, None])
            of_images[rows] -= positive.sum(1)
            of_texts[columns] += positive.sum(0)
        return of_images, of_texts, None


def _positive_parts(images: Tensor, texts: Tensor, block: int) -> Iterator[tuple[slice, slice, Tensor]]:
    """Blocks of max(0, text - image), (rows, columns, joint), in one buffer that the next block overwrites."""
    pairs = max(1, block // max(1, images.shape[1]))
    width = max(1, min(len(texts), pairs // HEIGHT))
    height = max(1, min(len(images), pairs // width))
    buffer = images.new_empty(height * width * images.shape[1])
    for left in range(0, len(texts), width):
        columns = slice(left, min(left + width, len(texts)))
        for top in range(0, len(images), height):
            rows = slice(top, min(top + height, len(images)))
            shape = (rows.stop - rows.start, columns.stop - columns.start, images.shape[1])
            positive = buffer[: shape[0] * shape[1] * shape[2]].view(shape)
            torch.sub(texts[columns], images[rows, None], out=positive)
            yield rows, columns, positive.clamp_(min=0)
