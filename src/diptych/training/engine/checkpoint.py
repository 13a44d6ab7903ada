"""Snapshots: everything that the next training step depends on, in one file that is complete or absent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diptych.errors import RunError
from diptych.models.storage import check_tokeniser, load_tensors, load_weights, matcher_header, save_tensors
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.training.context import OBJECTIVE_FILE
from diptych.training.engine.step import Step


@dataclass(frozen=True)
class Position:
    """How far a training has come: `step` batches of epoch `epoch` of stage `stage` (both from 1) are done.

    In epoch 0, what the stage starts from has yet to be measured (`include_start`); `best_epoch` 0 is that start.
    `sums` and `errors` are the loss terms and error rates of the epoch so far, summed over `pairs`; `stuck` counts
    consecutive steps that look collapsed, and `overflows` the epoch's steps that were skipped in float16.
    """

    stage: int = 1
    epoch: int = 1
    step: int = 0
    best: float | None = None
    best_epoch: int = 0
    stuck: int = 0
    pairs: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    stage_done: bool = False
    overflows: int = 0

    def next_epoch(self) -> Position:
        """The start of the next epoch."""
        return replace(self, epoch=self.epoch + 1, step=0, pairs=0, sums={}, errors={}, overflows=0)


def snapshot_path(run: Path) -> Path:
    """Where a run keeps its last snapshot."""
    return run / "last" / "snapshot.safetensors"


def save_snapshot(run: Path, tokeniser: Tokeniser, step: Step, position: Position, corpus: str) -> None:
    """Write all that the next step depends on; the previous file stays until this one is complete."""
    matcher, optimiser = step.matcher, step.optimiser
    names: dict[Tensor, str] = {parameter: name for name, parameter in _parameters(step)}
    tensors = {f"model.{name}": tensor for name, tensor in matcher.state_dict().items()}
    tensors |= {f"objective.{name}": parameter for name, parameter in step.parameters.items()}
    for need in step.needs:
        tensors |= need.state()
    for parameter, state in optimiser.state.items():
        for key, value in state.items():
            tensors[f"optimiser.{names[parameter]}.{key}"] = torch.as_tensor(value)
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    about = {**matcher_header(matcher, tokeniser), "position": asdict(position), "corpus": corpus}
    about["loss_scaler"] = step.scaler.state()
    save_tensors(snapshot_path(run), tensors, about)


def save_objective_state(weights: Path, step: Step) -> None:
    """Save beside the best weights what the needs keep for a later stage; remove what an earlier stage left."""
    tensors: dict[str, Tensor] = {}
    header: dict[str, Any] = {}
    for need in step.needs:
        kept, about = need.saved_with_weights(dict(step.parameters))
        tensors, header = tensors | kept, header | about
    path = weights.with_name(OBJECTIVE_FILE)
    if tensors:
        save_tensors(path, tensors, header)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that was read back."""

    path: Path
    tensors: dict[str, Tensor]
    about: dict[str, Any]

    @classmethod
    def read(cls, run: Path) -> Snapshot:
        """Read a run's last snapshot."""
        path = snapshot_path(run)
        return cls(path, *load_tensors(path))

    @property
    def position(self) -> Position:
        """How far the training had come."""
        return Position(**self.about["position"])

    def check(self, tokeniser: Tokeniser, corpus: str) -> None:
        """Refuse to resume with another tokeniser or other data."""
        check_tokeniser(self.path, self.about, tokeniser)
        if self.about.get("corpus") != corpus:
            raise RunError(f"{self.path}: made with other data; resume with the same data or train into another folder")

    @torch.no_grad()
    def restore(self, step: Step) -> None:
        """Restore weights, optimiser state, the scale of the loss and random state."""
        optimiser = step.optimiser
        load_weights(step.matcher, self._under("model."), self.about, self.path)
        for name, parameter in step.parameters.items():
            parameter.copy_(self.tensors[f"objective.{name}"])
        for need in step.needs:
            need.load_state(self.tensors)
        saved = self._under("optimiser.")
        fused = optimiser.param_groups[0]["fused"]
        for name, parameter in _parameters(step):
            prefix = f"{name}."
            state = {key[len(prefix) :]: value for key, value in saved.items() if key.startswith(prefix)}
            if state:  # frozen parts have none
                optimiser.state[parameter] = {
                    # Adam keeps its step count on the CPU unless it is fused
                    key: value if key == "step" and not fused else value.to(parameter.device)
                    for key, value in state.items()
                }
        step.scaler.load_state(self.about.get("loss_scaler", {}))
        torch.set_rng_state(self.tensors["random.cpu"])
        if "random.cuda" in self.tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.tensors["random.cuda"])

    def _under(self, prefix: str) -> dict[str, Tensor]:
        return {name[len(prefix) :]: value for name, value in self.tensors.items() if name.startswith(prefix)}


def _parameters(step: Step) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters that an optimiser may have a state for, by stable names."""
    yield from step.matcher.named_parameters()
    yield from ((f"objective.{name}", parameter) for name, parameter in step.parameters.items())
