"""Generates a caption from an image's regions, word by word; its loss teaches the regions what captions say.

    m, s_0 = GRU(W_r v),  a_t = softmax_j( u . tanh(W_a [m_j; s_t] + b_a) ),  s_t+1 = GRU([word_t; sum_j a_tj m_j], s_t)
    loss = - sum over captions and their words after the first of log softmax(W_o s_t + b_o)[word_t], per caption

Each word is predicted from the true words before it (teacher forcing). Padding is not computed, and everything that
does not depend on the decoder's state is one product for all words.

Reference: the sequence-to-sequence video captioner of Venugopalan et al. 2015, as Li et al. 2019 (VSRN) use it.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, linear
from torch.nn.utils.rnn import pack_padded_sequence

from diptych.models.layers.precision import at_least_float32
from diptych.models.layers.region_reasoning import Layout
from diptych.models.tower import Tokens
from diptych.settings import Count, Number, Settings
from diptych.text.tokenisers.token_table import PAD


class Generation(Settings):
    """The generation loss: its weight (0 for no decoder) and the decoder's sizes.

    `dropout` applies to the inputs of the two GRUs in training.
    """

    weight: Annotated[Number, Field(ge=0)] = 1.0
    hidden: Count = 512
    word: Count = 300
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.2


class Captioner(nn.Module):
    """See the module docstring. Called with regions and captions, it returns the loss per caption."""

    def __init__(self, settings: Generation, size: int, words: int) -> None:
        """For regions of this size and a vocabulary of this many words."""
        super().__init__()
        hidden = settings.hidden
        self.dropout = settings.dropout
        self.read = nn.Linear(size, hidden)
        self.memory = nn.GRU(hidden, hidden, batch_first=True)
        self.attend = nn.Linear(2 * hidden, hidden)  # for a region's memory, then for the state
        self.weigh = nn.Linear(hidden, 1, bias=False)
        self.words = nn.Embedding(words, settings.word, padding_idx=PAD)
        self.cell = nn.GRUCell(settings.word + hidden, hidden)
        self.output = nn.Linear(hidden, words)
        for layer in (self.read, self.attend, self.output):
            nn.init.xavier_normal_(layer.weight)

    def forward(self, rows: Tensor, layout: Layout, captions: Tokens, image_of: Tensor) -> Tensor:
        """The loss per caption, summed over its words; caption k describes image `image_of[k]`."""
        lengths, order = torch.sort(captions.lengths, descending=True)  # so that longer captions come first
        ids, image, steps = captions.ids[order], image_of[order], (lengths - 1).cpu()
        given, sizes, _, _ = pack_padded_sequence(ids, steps, batch_first=True)  # (words,): step by step
        wanted = pack_padded_sequence(ids[:, 1:], steps, batch_first=True).data  # (words,)
        memory, last = self._remember(rows, layout)
        states = self._states(memory, last, layout, image, given, sizes.tolist())
        return cross_entropy(at_least_float32(self.output(states)), wanted, reduction="sum") / len(ids)

    def _remember(self, rows: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """The memory of each region, (images, most, hidden), and of each image, (images, hidden)."""
        padded = layout.pad(dropout(self.read(rows), self.dropout, self.training))
        states: Tensor = self.memory(padded)[0]  # not meaningful, and not used, after an image's last region
        return states, layout.last(states)

    def _states(
        self, memory: Tensor, last: Tensor, layout: Layout, image: Tensor, given: Tensor, sizes: list[int]
    ) -> Tensor:
        """The decoder's state after each input word, (words, hidden); step t has the first `sizes[t]` captions."""
        hidden = last.shape[1]
        of_memory, of_state = self.attend.weight.chunk(2, 1)
        of_word, of_context = self.cell.weight_ih.split_with_sizes([self.words.embedding_dim, hidden], 1)
        words = dropout(self.words(given), self.dropout, self.training)
        inputs = linear(words, of_word, self.cell.bias_ih).split_with_sizes(sizes)  # (captions, 3 hidden) each
        keys = linear(memory, of_memory, self.attend.bias).index_select(0, image)  # (captions, most, hidden)
        memory, state = memory.index_select(0, image), last.index_select(0, image)
        absent = torch.arange(layout.most, device=image.device) >= layout.counts[image][:, None]  # (captions, most)
        # One product of the state serves the attention and the GRU.
        recurrent = torch.cat([of_state, self.cell.weight_hh])
        bias = torch.cat([self.cell.bias_hh.new_zeros(hidden), self.cell.bias_hh])
        states = []
        for step in inputs:
            if len(step) < len(state):
                keys, memory, absent, state = (values[: len(step)] for values in (keys, memory, absent, state))
            queries, gates = linear(state, recurrent, bias).split_with_sizes([hidden, 3 * hidden], 1)
            scores = torch.tanh(keys + queries[:, None]) @ self.weigh.weight[0]  # (captions, most)
            shares = scores.masked_fill(absent, -torch.inf).softmax(1)
            context = dropout(torch.bmm(shares[:, None], memory)[:, 0], self.dropout, self.training)
            state = _gru_step(step + linear(context, of_context), gates, state)
            states.append(state)
        return torch.cat(states)


def _gru_step(inputs: Tensor, gates: Tensor, state: Tensor) -> Tensor:
    """The next state from the projections of the input and of the state, (captions, 3 hidden) each."""
    hidden = state.shape[1]
    reset, update = (inputs[:, : 2 * hidden] + gates[:, : 2 * hidden]).sigmoid().chunk(2, 1)
    new = torch.addcmul(inputs[:, 2 * hidden :], reset, gates[:, 2 * hidden :]).tanh()
    return torch.lerp(new, state, update)
