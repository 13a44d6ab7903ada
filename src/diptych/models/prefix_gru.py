"""A GRU over a batch of texts that computes every distinct prefix once.

Texts are sorted, so that texts with a common beginning lie side by side and share the states of that beginning: with
`<start> a man ...` and `<start> a dog ...` the first two states are computed once for the whole batch. The input
projection is computed once a distinct word, and the weight gradients of all steps are one matrix product. Values and
gradients equal `torch.nn.GRU` on packed sequences up to rounding; only the amount of arithmetic differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class PrefixTree:
    """The distinct prefixes of a batch of texts, level by level; a node is a prefix.

    Level t holds the prefixes of t + 1 words. `words[t]` is the last word of each node as a row of the table of
    distinct words, `inner[t]` the nodes that go on, `parents[t + 1]` each node's parent as a row of `inner[t]`, and
    `ends` the node of each whole text, counted over all levels.
    """

    distinct: Tensor  # (distinct words,)
    words: list[Tensor]
    parents: list[Tensor]
    inner: list[Tensor]
    ends: Tensor  # (texts,)

    @classmethod
    def of(cls, ids: Tensor, lengths: Tensor) -> PrefixTree:
        """Find the prefixes of padded `ids` (texts, length); runs where the ids are, without a loop over texts."""
        texts, longest = ids.shape
        beyond = torch.arange(longest, device=ids.device) >= lengths[:, None]
        keys = ids.masked_fill(beyond, -1)  # a text that ends sorts before the ones that go on
        order = torch.arange(texts, device=ids.device)
        for step in range(longest - 1, -1, -1):  # least significant first: a stable sort a column
            order = order[torch.argsort(keys[order, step], stable=True)]
        keys = keys[order]
        same = torch.zeros_like(keys, dtype=torch.bool)
        same[1:] = keys[1:] == keys[:-1]
        shares = same.to(torch.uint8).cumprod(1).bool()  # the prefix up to here equals the text before
        first = ~shares & (keys >= 0)  # (texts, length): the row that stands for a new node
        node = first.long().cumsum(0) - 1  # (texts, length): each row's node within its level

        distinct, rows = torch.unique(keys, return_inverse=True)
        padded = int(distinct[0] == -1)  # the padding's key is no word
        words, parents, inner, sizes = [], [], [], []
        for step in range(longest):
            new = first[:, step]
            words.append(rows[new, step] - padded)
            sizes.append(len(words[-1]))
            if step:
                going, parent = torch.unique(node[new, step - 1], return_inverse=True)
                inner.append(going)
                parents.append(parent)
            else:
                parents.append(torch.zeros_like(words[0]))
        starts = torch.tensor([0, *sizes], device=ids.device).cumsum(0)
        last = lengths[order] - 1
        ends = torch.empty_like(last)
        ends[order] = starts[last] + node.gather(1, last[:, None]).squeeze(1)
        return cls(distinct[padded:], words, parents, inner, ends)


class _PrefixStates(torch.autograd.Function):
    """States of all nodes, (nodes, hidden), from the input projection of each distinct word, (words, 3 hidden)."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, weight: Tensor, bias: Tensor, tree: PrefixTree) -> Tensor:
        hidden = weight.shape[1]
        transposed = weight.t()
        states, saved = [], []
        previous = table.new_zeros(1, hidden)  # the state before the first word, shared by all texts
        recurrent = bias[None]  # the product with a zero state is its bias
        for words, parents in zip(tree.words, tree.parents, strict=True):
            if states:
                previous = states[-1][tree.inner[len(states) - 1]]  # (inner, hidden)
                recurrent = torch.addmm(bias, previous, transposed)  # (inner, 3 hidden)
            inputs, recur = table[words], recurrent[parents]  # (nodes, 3 hidden)
            gates = (inputs[:, : 2 * hidden] + recur[:, : 2 * hidden]).sigmoid_()
            reset, update = gates[:, :hidden], gates[:, hidden:]
            recur_new = recur[:, 2 * hidden :]
            new = torch.addcmul(inputs[:, 2 * hidden :], reset, recur_new).tanh_()
            states.append(torch.lerp(new, previous[parents], update))
            if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
                saved.append((gates, new, recur_new))
        out = torch.cat(states)
        ctx.tree, ctx.gates = tree, saved
        ctx.save_for_backward(table, weight, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        table, weight, out = ctx.saved_tensors
        tree: PrefixTree = ctx.tree
        hidden = weight.shape[1]
        sizes = [len(words) for words in tree.words]
        states, grads = out.split(sizes), list(grad.split(sizes))
        inputs: list[Tensor] = []
        recurrents: list[Tensor] = []
        carried: Tensor | None = None  # gradient that a level's inner nodes get from their children
        for step in range(len(sizes) - 1, -1, -1):
            gates, new, recur_new = ctx.gates.pop()
            reset, update = gates[:, :hidden], gates[:, hidden:]
            parents = tree.parents[step]
            here = grads[step]  # (nodes, hidden)
            if carried is not None:
                here = here.index_add(0, tree.inner[step], carried)
            first = step == 0
            previous = here.new_zeros(1, hidden) if first else states[step - 1][tree.inner[step - 1]]
            to_gates = here.new_empty(len(here), 3 * hidden)
            to_reset, to_update, to_new = to_gates.split(hidden, 1)
            through = here * update  # straight through the update gate to the previous state
            torch.mul(here - through, 1 - new * new, out=to_new)
            torch.mul((previous[parents] - new).mul_(through), 1 - update, out=to_update)
            torch.mul(to_new * recur_new, reset * (1 - reset), out=to_reset)
            inputs.append(to_gates)
            to_recurrent = torch.cat([to_gates[:, : 2 * hidden], to_new * reset], 1)
            summed = here.new_zeros(len(previous), 3 * hidden).index_add_(0, parents, to_recurrent)
            recurrents.append(summed)  # (inner, 3 hidden)
            if not first:
                carried = torch.addmm(
                    here.new_zeros(len(previous), hidden).index_add_(0, parents, through), summed, weight
                )
        to_table = torch.zeros_like(table).index_add_(0, torch.cat(tree.words[::-1]), torch.cat(inputs))
        to_bias = torch.cat(recurrents).sum(0)
        if len(sizes) > 1:  # the first step's previous state is zero: it adds nothing
            before = torch.cat([states[t - 1][tree.inner[t - 1]] for t in range(len(sizes) - 1, 0, -1)])
            to_weight = torch.cat(recurrents[:-1]).t() @ before  # all steps in one product
        else:
            to_weight = torch.zeros_like(weight)
        return to_table, to_weight, to_bias, None


def last_states(
    ids: Tensor,
    lengths: Tensor,
    embedding: Tensor,
    weight_input: Tensor,
    weight_hidden: Tensor,
    bias_input: Tensor,
    bias_hidden: Tensor,
) -> Tensor:
    """The GRU's state after the last word of each text, (texts, hidden), from padded `ids` (texts, length)."""
    tree = PrefixTree.of(ids, lengths)
    vectors = torch.nn.functional.embedding(tree.distinct, embedding)  # (distinct words, word size)
    table = torch.nn.functional.linear(vectors, weight_input, bias_input)  # (distinct words, 3 hidden)
    states: Tensor = _PrefixStates.apply(table, weight_hidden, bias_hidden, tree)  # type: ignore[no-untyped-call]
    return states[tree.ends]
