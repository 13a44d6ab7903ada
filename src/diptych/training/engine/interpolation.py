"""Weight interpolation: between what a stage started from and its best snapshot, the best share is chosen on val.

    theta(share) = (1 - share) theta_start + share theta_best

Reference: Wortsman et al. 2022, Robust fine-tuning of zero-shot models (WiSE-FT), section 3.
Statistics of batch normalisation are interpolated like weights; counters keep the value of the best snapshot. Of equal
results, the one closest to the start is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from diptych.files import write_json
from diptych.models.lora import load_merged_state
from diptych.models.matcher import Matcher
from diptych.models.storage import load_tensors, save_matcher
from diptych.training.context import StageContext, best_file, start_file
from diptych.training.engine.choice import Choice, Metrics
from diptych.training.inputs.pairs import StageData


def interpolate_stage(context: StageContext, data: StageData) -> Choice | None:
    """Replace a stage's best snapshot by the best interpolation; None if the best is what the stage started from.

    The matcher is left as it was. If the best snapshot is an interpolation already, because training was killed after
    it was saved, nothing is done again.
    """
    run, number, shares = context.training.run, context.number, context.stage.interpolate
    assert shares is not None, "called for stages that interpolate"
    best, about = load_tensors(best_file(run))
    if about["stage"] == number and "interpolation" in about:
        return Choice.from_json("share", about["interpolation"])
    start, _ = load_tensors(start_file(run))
    if all(torch.equal(start[name], value) for name, value in best.items()):
        return None
    matcher = context.model.matcher
    trained = {name: value.clone() for name, value in matcher.state_dict().items()}
    try:
        measured = _measure(matcher, start, best, shares, lambda: _validate(context, data))
        found = Choice.best("share", context.stage.select, measured)
        load_merged_state(matcher, mixed(start, best, found.kept))
        _save(context, {**about, "val": found.metrics, "interpolation": found.to_json()})
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


def _validate(context: StageContext, data: StageData) -> Metrics:
    context.model.matcher.eval()
    return data.validate(lambda _done, _total: context.training.stop_if_interrupted())


def _save(context: StageContext, about: dict[str, Any]) -> None:
    """Save the matcher as the best; the weights last, since their header says that all of it is done."""
    weights, model = best_file(context.training.run), context.model
    place = {key: about[key] for key in ("stage", "epoch", "step", "val", "interpolation")}
    write_json(weights.with_name("metrics.json"), place)
    save_matcher(weights, model.matcher, model.tokeniser, place)
