"""A GRU that remembers from the start: the biases of its update gate are drawn for a range of time scales.

    h_t = z h_t-1 + (1 - z) n_t,  z = sigmoid(... + b_z),  b_z = log(u),  u uniform from 1 to steps - 1

With b_z near 0, as torch draws it, z is about 1/2: after ten steps a state holds a thousandth of what it began with.
With b_z = log(u), z = u / (1 + u), and a unit's state lasts about 1 + u steps.

Reference: Tallec and Ollivier 2018, Can Recurrent Neural Networks Warp Time?, section 2 (chrono initialisation), where
the gate of a GRU is written the other way round.
"""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def remember(gru: nn.GRU, steps: int) -> None:
    """Initialise the update gates of a GRU of one layer so that its states last up to this many steps."""
    biases = dict(gru.named_parameters())
    _, input_gate, _ = biases["bias_ih_l0"].chunk(3)  # reset, update, new
    _, state_gate, _ = biases["bias_hh_l0"].chunk(3)
    input_gate.zero_()
    state_gate.uniform_(1, steps - 1).log_()
