"""A GRU over a batch of texts that computes every distinct prefix once.

Texts are sorted, so that texts with a common prefix are neighbours and share its states: with `<start> a man ...` and
`<start> a dog ...` the first two states are computed once for the whole batch. The input projection is computed once
per distinct word, and the weight gradients of all steps are one matrix product. Values and gradients equal those of
`torch.nn.GRU` on packed sequences up to rounding; only the amount of arithmetic differs. Within `torch.autocast`, too,
it computes in single precision, as `torch.nn.GRU` does on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from diptych.models.layers.precision import without_autocast


@dataclass(frozen=True)
class PrefixTree:
    """The distinct prefixes of a batch of texts, level by level; a node is a prefix.

    Level t holds the prefixes of t + 1 words. `words[t]` is the last word of each node as a row of the table of
    distinct words, `inner[t]` the nodes with children, `parents[t + 1]` each node's parent as a row of `inner[t]`, and
    `path` the node of each text at each of its words, counted over all levels; it is undefined after a text's end.
    """

    distinct: Tensor  # (distinct words,)
    words: list[Tensor]
    parents: list[Tensor]
    inner: list[Tensor]
    path: Tensor  # (texts, length)

    @property
    def nodes(self) -> list[int]:
        """The number of nodes of each level."""
        return [len(words) for words in self.words]

    @property
    def before(self) -> list[int]:
        """The number of states that each level starts from; the first starts from a single zero state."""
        return [1, *(len(inner) for inner in self.inner)]

    @classmethod
    def from_ids(cls, ids: Tensor, lengths: Tensor) -> PrefixTree:
        """Find the prefixes of padded `ids` (texts, length), on their device and without a loop over texts."""
        texts, longest = ids.shape
        beyond = torch.arange(longest, device=ids.device) >= lengths[:, None]
        keys = ids.masked_fill(beyond, -1)  # a text sorts before its continuations
        order = torch.arange(texts, device=ids.device)
        for step in range(longest - 1, -1, -1):  # least significant column first, by stable sorts
            order = order[torch.argsort(keys[order, step], stable=True)]
        keys = keys[order]
        same = torch.zeros_like(keys, dtype=torch.bool)
        same[1:] = keys[1:] == keys[:-1]
        shares = same.to(torch.uint8).cumprod(1).bool()  # the prefix up to here equals that of the previous text
        first = ~shares & (keys >= 0)  # (texts, length): the first row of each node
        node = first.long().cumsum(0) - 1  # (texts, length): each row's node within its level

        distinct, rows = torch.unique(keys, return_inverse=True)
        padded = int(distinct[0] == -1)  # the padding's key is not a word
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
        starts = torch.tensor([0, *sizes[:-1]], device=ids.device).cumsum(0)
        path = torch.empty_like(node)
        path[order] = starts + node
        return cls(distinct[padded:], words, parents, inner, path)


class _Level(NamedTuple):
    """What the backward pass needs of one level; gates are (nodes, 2 hidden): reset, then update."""

    gates: Tensor
    new: Tensor  # (nodes, hidden)
    recurrent_new: Tensor  # (nodes, hidden)


class _PrefixStates(torch.autograd.Function):
    """States of all nodes, (nodes, hidden), from the input projection of each distinct word, (words, 3 hidden).

    The values of all levels are in one array each, of which a level's part is a view, so that products over all steps
    need no copy.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, weight: Tensor, bias: Tensor, tree: PrefixTree) -> Tensor:
        hidden = weight.shape[1]
        states = table.new_empty(sum(tree.nodes), hidden)
        previous = table.new_empty(sum(tree.before), hidden)
        state_of, previous_of = states.split_with_sizes(tree.nodes), previous.split_with_sizes(tree.before)
        levels: list[_Level] = []
        for step, (words, parents) in enumerate(zip(tree.words, tree.parents, strict=True)):
            if step:
                torch.index_select(state_of[step - 1], 0, tree.inner[step - 1], out=previous_of[step])
                recurrent = torch.addmm(bias, previous_of[step], weight.t())  # (inner, 3 hidden)
            else:  # all texts start from the same zero state, whose product is the bias
                previous_of[0].zero_()
                recurrent = bias[None]
            inputs = table.index_select(0, words)  # (nodes, 3 hidden)
            recurrent = _take(recurrent, parents)  # (nodes, 3 hidden)
            gates = (inputs[:, : 2 * hidden] + recurrent[:, : 2 * hidden]).sigmoid_()
            reset, update = gates.chunk(2, 1)
            recurrent_new = recurrent[:, 2 * hidden :]
            new = torch.addcmul(inputs[:, 2 * hidden :], reset, recurrent_new).tanh_()
            torch.lerp(new, _take(previous_of[step], parents), update, out=state_of[step])
            if any(ctx.needs_input_grad):
                levels.append(_Level(gates, new, recurrent_new))
        ctx.tree, ctx.levels, ctx.previous = tree, levels, previous
        ctx.save_for_backward(table, weight)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        table, weight = ctx.saved_tensors
        tree: PrefixTree = ctx.tree
        to_inputs = grad.new_empty(len(grad), table.shape[1])
        to_recurrents = grad.new_empty(len(ctx.previous), table.shape[1])
        to_state_of, to_input_of = grad.split_with_sizes(tree.nodes), to_inputs.split_with_sizes(tree.nodes)
        previous_of = ctx.previous.split_with_sizes(tree.before)
        to_recurrent_of = to_recurrents.split_with_sizes(tree.before)
        carried: Tensor | None = None  # the gradients of a level's inner nodes from their children
        for step in range(len(tree.words) - 1, -1, -1):
            to_state, parents = to_state_of[step], tree.parents[step]  # (nodes, hidden), (nodes,)
            if carried is not None:
                to_state = to_state.index_add(0, tree.inner[step], carried)
            previous, to_recurrent = previous_of[step], to_recurrent_of[step]
            alone = len(parents) == len(previous)  # every node is an only child
            to_node = to_recurrent if alone else torch.empty_like(to_input_of[step])
            through = _cell_gradients(ctx.levels[step], to_state, _take(previous, parents), to_input_of[step], to_node)
            if not alone:
                to_recurrent.zero_().index_add_(0, parents, to_node)
                through = torch.zeros_like(previous).index_add_(0, parents, through)
            if step:
                carried = torch.addmm(through, to_recurrent, weight)  # (inner, hidden)
        to_table = torch.zeros_like(table).index_add_(0, torch.cat(tree.words), to_inputs)
        return to_table, to_recurrents.t() @ ctx.previous, to_recurrents.sum(0), None


def _take(values: Tensor, rows: Tensor) -> Tensor:
    """`values[rows]`; `rows` is sorted and complete, so that equal lengths mean the identity."""
    return values if len(rows) == len(values) else values.index_select(0, rows)


def _cell_gradients(
    level: _Level, to_state: Tensor, previous: Tensor, to_input: Tensor, to_recurrent: Tensor
) -> Tensor:
    """Write the gradients of a level's input and recurrent projections, (nodes, 3 hidden); return that of `previous`.

    h = new + update (previous - new),  new = tanh(input_new + reset recurrent_new)
    """
    hidden = to_state.shape[1]
    reset, update = level.gates.chunk(2, 1)
    through = to_state * update
    to_reset, to_update, to_new = to_input.chunk(3, 1)
    torch.mul(to_state - through, 1 - level.new * level.new, out=to_new)
    torch.mul((previous - level.new).mul_(through), 1 - update, out=to_update)
    torch.mul(to_new * level.recurrent_new, reset * (1 - reset), out=to_reset)
    to_recurrent[:, : 2 * hidden] = to_input[:, : 2 * hidden]
    torch.mul(to_new, reset, out=to_recurrent[:, 2 * hidden :])
    return through


def prefix_states(
    tree: PrefixTree,
    embedding: Tensor,
    weight_input: Tensor,
    weight_hidden: Tensor,
    bias_input: Tensor,
    bias_hidden: Tensor,
) -> Tensor:
    """The GRU's state after each prefix: (nodes, hidden). A text's states are at its `path`."""
    with without_autocast(embedding.device):
        vectors = torch.nn.functional.embedding(tree.distinct, embedding)  # (distinct words, word size)
        table = torch.nn.functional.linear(vectors, weight_input, bias_input)  # (distinct words, 3 hidden)
        states: Tensor = _PrefixStates.apply(table, weight_hidden, bias_hidden, tree)  # type: ignore[no-untyped-call]
    return states


def last_states(ids: Tensor, lengths: Tensor, embedding: Tensor, *weights: Tensor) -> Tensor:
    """The state after the last word of each text, (texts, hidden), from padded `ids` (texts, length).

    The weights are those of a `torch.nn.GRU`, in its order.
    """
    tree = PrefixTree.from_ids(ids, lengths)
    ends = tree.path.gather(1, lengths[:, None] - 1).squeeze(1)
    return prefix_states(tree, embedding, *weights).index_select(0, ends)
