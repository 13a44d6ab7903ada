"""Low-rank adaptation (LoRA): weight matrices stay frozen, and a product of two narrow matrices is trained beside each.

    W = W_0 + (alpha / rank) B A,  W_0 (m, n) frozen;  A (rank, n) random;  B (m, rank) zero, so that W starts at W_0

Reference: Hu et al. 2022, LoRA: Low-Rank Adaptation of Large Language Models, section 4.1.
It applies to linear layers and to the input projections of `nn.MultiheadAttention`. A matcher with low-rank factors
exists only in training; what is saved as a model are the matrices W, so that a run opens like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils import parametrize

from diptych.errors import RecipeError
from diptych.settings import Count, Number, Settings

_ATTENTION = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")  # one for all, or one each


class LoRASettings(Settings):
    """A stage's `lora` table: the rank, the scale `alpha`, and the parts whose matrices are adapted."""

    rank: Count = 8
    alpha: Annotated[Number, Field(gt=0)] = 16.0
    parts: Annotated[tuple[str, ...], Field(min_length=1)] = ("all",)


class LowRank(nn.Module):
    """The parametrisation of one matrix."""

    def __init__(self, weight: Tensor, settings: LoRASettings) -> None:
        super().__init__()
        (rows, columns), rank = weight.shape, settings.rank
        self.scale = settings.alpha / rank
        self.a = nn.Parameter(torch.empty(rank, columns, dtype=weight.dtype, device=weight.device))
        self.b = nn.Parameter(torch.zeros(rows, rank, dtype=weight.dtype, device=weight.device))
        nn.init.normal_(self.a, std=columns**-0.5)

    def forward(self, weight: Tensor) -> Tensor:
        """W, from W_0."""
        return torch.addmm(weight, self.b, self.a, alpha=self.scale)


def add_low_rank(matcher: nn.Module, settings: LoRASettings, includes: Mapping[str, Callable[[str], bool]]) -> None:
    """Add trainable factors to the frozen matrices of the settings' parts.

    `includes` says for each part whether it includes the weights of a name. Raises RecipeError for a part without a
    frozen matrix, and for a matrix that is too small for the rank.
    """
    chosen: dict[str, tuple[nn.Module, str]] = {}
    for part in settings.parts:
        found = {name: (module, matrix) for name, module, matrix in _frozen_matrices(matcher) if includes[part](name)}
        if not found:
            raise RecipeError(
                f"lora.parts: {part!r} has no frozen weight matrix (of a linear layer or of attention); name other "
                "parts, and leave them out of trainable"
            )
        chosen |= found
    for name, (module, matrix) in chosen.items():
        weight = getattr(module, matrix)
        _check_rank(settings.rank, name, weight)
        parametrize.register_parametrization(module, matrix, LowRank(weight, settings))


def merged_state(matcher: nn.Module) -> dict[str, Tensor]:
    """The state of a matcher with W in place of W_0, A and B; without factors, the state as it is."""
    state = dict(matcher.state_dict())
    for name, stored, factors in _adapted(matcher):
        state[name] = factors(state.pop(f"{stored}.original")).detach()
        for factor in ("a", "b"):
            del state[f"{stored}.0.{factor}"]
    return state


def load_merged_state(matcher: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a state that `merged_state` may have returned: W becomes W_0, and B zero."""
    loaded = dict(state)
    for name, stored, factors in _adapted(matcher):
        loaded[f"{stored}.original"] = loaded.pop(name)
        loaded[f"{stored}.0.a"], loaded[f"{stored}.0.b"] = factors.a.detach(), torch.zeros_like(factors.b)
    matcher.load_state_dict(loaded)


def _check_rank(rank: int, name: str, weight: Tensor) -> None:
    if rank > min(weight.shape):
        size, most = " x ".join(map(str, weight.shape)), min(weight.shape)
        raise RecipeError(f"lora.rank = {rank}: {name} is {size}; use at most {most}, or leave it out of lora.parts")


def _frozen_matrices(matcher: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """The matrices that can be adapted: the name of each, its module, and its name there."""
    for name, module in matcher.named_modules():
        attention = _ATTENTION if isinstance(module, nn.MultiheadAttention) else ()
        for matrix in ("weight",) if isinstance(module, nn.Linear) else attention:
            weight = module._parameters.get(matrix)  # None in attention of the other form, and if it is computed
            if weight is not None and not weight.requires_grad:
                yield f"{name}.{matrix}", module, matrix


def _adapted(matcher: nn.Module) -> Iterator[tuple[str, str, LowRank]]:
    """The matrices with factors: the name of each in a merged state, that of its parametrisation, and its factors."""
    for name, module in matcher.named_modules():
        if isinstance(module, parametrize.ParametrizationList) and isinstance(module[0], LowRank):
            owner, _, matrix = name.rpartition(".")
            yield f"{owner.removesuffix('parametrizations')}{matrix}", name, module[0]
