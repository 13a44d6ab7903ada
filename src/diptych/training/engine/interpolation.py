"""Weight interpolation: between what a stage started from and its best snapshot, the best share is chosen on val.

    theta(share) = (1 - share) theta_start + share theta_best

Reference: Wortsman et al. 2022, Robust fine-tuning of zero-shot models (WiSE-FT), section 3.
Statistics of batch normalisation are interpolated like weights; counters keep the value of the best snapshot. Of equal
results, the one closest to the start is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diptych.files import write_json
from diptych.models.lora import load_merged_state
from diptych.models.matcher import Matcher
from diptych.models.storage import load_tensors, save_matcher
from diptych.training.context import StageContext, best_file, start_file
from diptych.training.inputs.pairs import StageData

Metrics = dict[str, float]


@dataclass(frozen=True)
class Interpolation:
    """The metrics on val of each share, and the share that was kept."""

    select: str
    measured: tuple[tuple[float, Metrics], ...]
    kept: float

    @property
    def score(self) -> float:
        """The value of the selecting metric that was kept."""
        return dict(self.measured)[self.kept][self.select]

    def __str__(self) -> str:
        figures = ", ".join(f"{share:g}: {metrics[self.select]:.1f}" for share, metrics in self.measured)
        return (
            f"interpolated from the start (0) to the best epoch (1): {self.select} on val {figures}; kept {self.kept:g}"
        )

    def to_json(self) -> dict[str, Any]:
        """All figures, as the journal and the header of the best weights hold them."""
        measured = [{"share": share, "val": metrics} for share, metrics in self.measured]
        return {"select": self.select, "measured": measured, "kept": self.kept}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Interpolation:
        """The inverse of `to_json`."""
        measured = tuple((each["share"], each["val"]) for each in content["measured"])
        return cls(content["select"], measured, content["kept"])


def interpolate_stage(context: StageContext, data: StageData) -> Interpolation | None:
    """Replace a stage's best snapshot by the best interpolation; None if the best is what the stage started from.

    The matcher is left as it was. If the best snapshot is an interpolation already, because training was killed after
    it was saved, nothing is done again.
    """
    run, number, shares = context.training.run, context.number, context.stage.interpolate
    assert shares is not None, "called for stages that interpolate"
    best, about = load_tensors(best_file(run))
    if about["stage"] == number and "interpolation" in about:
        return Interpolation.from_json(about["interpolation"])
    start, _ = load_tensors(start_file(run))
    if all(torch.equal(start[name], value) for name, value in best.items()):
        return None
    matcher = context.model.matcher
    trained = {name: value.clone() for name, value in matcher.state_dict().items()}
    try:
        measured = _measure(matcher, start, best, shares, lambda: _validate(context, data))
        kept = _best_share(measured, context.stage.select)
        found = Interpolation(context.stage.select, tuple(measured.items()), kept)
        load_merged_state(matcher, mixed(start, best, kept))
        _save(context, {**about, "val": measured[kept], "interpolation": found.to_json()})
    finally:
        matcher.load_state_dict(trained)
    return found


def mixed(start: Mapping[str, Tensor], end: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """The tensors between two states; exactly the first at 0 and the second at 1.

    What training has not changed stays the same bit for bit, negative zeros included, which the sum would turn into
    positive ones: stored features belong to a digest of the backbone's bytes.
    """
    return {name: _between(start[name], value, share) for name, value in end.items()}


def _between(start: Tensor, end: Tensor, share: float) -> Tensor:
    is_same = not end.is_floating_point() or torch.equal(start, end)
    return end if is_same else torch.lerp(start, end, share)


def _measure(
    matcher: Matcher,
    start: Mapping[str, Tensor],
    end: Mapping[str, Tensor],
    shares: Sequence[float],
    validate: Callable[[], Metrics],
) -> dict[float, Metrics]:
    """The metrics of each share, in ascending order."""
    measured = {}
    for share in sorted(shares):
        load_merged_state(matcher, mixed(start, end, share))
        measured[share] = validate()
    return measured


def _best_share(measured: Mapping[float, Metrics], select: str) -> float:
    return max(measured, key=lambda share: (measured[share][select], -share))


def _validate(context: StageContext, data: StageData) -> Metrics:
    context.model.matcher.eval()
    return data.validate(lambda _done, _total: context.training.stop_if_interrupted())


def _save(context: StageContext, about: dict[str, Any]) -> None:
    """Save the matcher as the best; the weights last, since their header says that all of it is done."""
    weights, model = best_file(context.training.run), context.model
    place = {key: about[key] for key in ("stage", "epoch", "step", "val", "interpolation")}
    write_json(weights.with_name("metrics.json"), place)
    save_matcher(weights, model.matcher, model.tokeniser, place)
