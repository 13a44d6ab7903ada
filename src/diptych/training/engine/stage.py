"""One stage: what is trainable, the optimiser and its rates, and the progress for collapse."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD, Adam, Optimizer

from diptych.errors import RecipeError, did_you_mean
from diptych.models.matcher import Matcher
from diptych.objectives.correlation import Correlation
from diptych.objectives.instance import Instance
from diptych.objectives.neighbourhood import Neighbourhood
from diptych.objectives.objective import Objective, ObjectiveContext, Ranking, Summary
from diptych.training.engine.step import SolvingStep, Step
from diptych.training.inputs.classes import Classes
from diptych.training.inputs.sampled import SampledRows
from diptych.training.recipe import Optimiser, Stage

MOMENTUM = 0.9  # of gradient descent, unless told


def set_trainable(matcher: Matcher, parts: tuple[str, ...]) -> list[nn.Parameter]:
    """Make the named parts trainable and all others not; the trainable parameters."""
    for part in parts:
        if part != "all":
            _check_part(matcher, part, "trainable")
    for name, parameter in matcher.named_parameters():
        parameter.requires_grad_(any(part == "all" or name.startswith(f"{part}.") for part in parts))
    trainable = [parameter for parameter in matcher.parameters() if parameter.requires_grad]
    if not trainable:
        raise RecipeError(f"trainable = {list(parts)}: nothing in these parts can be trained; name others, or 'all'")
    return trainable


def _check_part(matcher: Matcher, part: str, where: str) -> None:
    known = {name for name, _ in matcher.named_modules() if name}
    if part not in known:
        if "backbone" in part.split(".") and matcher.pretrained is None:
            raise RecipeError(f"{where}: {part!r} is part of a backbone, and the model reads no photos through one")
        depth = part.count(".")
        near = {name for name in known if name.count(".") == depth} or known
        raise RecipeError(f"{where}: the model has no part {part!r}; {did_you_mean(part, near | {'all'})}")


def train_mode(matcher: Matcher) -> None:
    """Put what is trained into training mode; a frozen part stays as in evaluation, its statistics with it."""
    matcher.train()
    frozen = [
        module
        for module in matcher.modules()
        if any(True for _ in module.parameters()) and not any(p.requires_grad for p in module.parameters())
    ]
    for module in frozen:
        module.eval()


def check_chunks(matcher: Matcher, objective: Objective) -> None:
    """Refuse to train in chunks what has another result for each way to cut a batch."""
    if not isinstance(objective, Ranking):
        raise RecipeError(f"batches.chunk: {objective.name!r} needs all scores of a batch at once; leave chunk out")
    if matcher.extra_terms:
        terms = ", ".join(matcher.extra_terms)
        raise RecipeError(f"batches.chunk: the model has a loss of its own ({terms}); leave chunk out")
    train_mode(matcher)
    for name, module in matcher.named_modules():
        if isinstance(module, _BatchNorm) and module.training:
            raise RecipeError(
                f"batches.chunk: {name} normalises by the batch's statistics, which would be a chunk's; freeze it, "
                "or leave chunk out"
            )


def make_optimiser(matcher: Matcher, settings: Optimiser, learned: Iterable[nn.Parameter] = ()) -> Optimizer:
    """The optimiser of what is trainable, in torch's single-pass form where it has one; a group a multiple of the rate.

    `learned` are parameters of the objective, which have the rate itself; a classifier decays as layers do.
    """
    for part in settings.parts:
        _check_part(matcher, part, "optimiser.parts")
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    trained = [name for name, parameter in matcher.named_parameters() if parameter.requires_grad]
    for part in settings.parts:
        if not any(name.startswith(f"{part}.") for name in trained):
            raise RecipeError(f"optimiser.parts: nothing in {part!r} is trained; add it to trainable, or leave it out")
    for name, parameter in matcher.named_parameters():
        if parameter.requires_grad:
            inside = [part for part in settings.parts if name.startswith(f"{part}.")]
            multiple = settings.parts[max(inside, key=len)] if inside else 1.0
            decay = settings.decay if parameter.dim() > 1 else 0.0
            groups.setdefault((multiple, decay), []).append(parameter)
    for own in learned:
        groups.setdefault((1.0, settings.decay if own.dim() > 1 else 0.0), []).append(own)
    fused = next(matcher.parameters()).device.type in ("cpu", "cuda")
    named = [
        {"params": parameters, "multiple": multiple, "weight_decay": decay}
        for (multiple, decay), parameters in groups.items()
    ]
    if settings.name == "sgd":
        momentum = MOMENTUM if settings.momentum is None else settings.momentum
        return SGD(named, lr=settings.rate, momentum=momentum, nesterov=settings.nesterov, fused=fused)
    return Adam(named, lr=settings.rate, fused=fused)


def prepare_step(matcher: Matcher, stage: Stage, device: torch.device, classes: Classes | None = None) -> Step:
    """The steps of a stage on what is trainable now, with a fresh optimiser and fresh parameters of the objective."""
    objective = stage.objective
    given = ObjectiveContext() if classes is None else ObjectiveContext(matcher.embedding_dim or 0, classes.count)
    starts = {name: start.to(device) for name, start in objective.start_learned(given).items()}
    sampled = None
    if isinstance(objective, Instance) and objective.sampled is not None and objective.sampled < given.classes:
        sampled = SampledRows(starts, objective.sampled)
        learned = sampled.rows
    else:
        learned = nn.ParameterDict({name: nn.Parameter(start) for name, start in starts.items()})
    optimiser = make_optimiser(matcher, stage.optimiser, learned.values())
    kind = SolvingStep if isinstance(objective, Correlation) else Step
    numbers = stage.optimiser.clip, stage.batches.chunk
    return kind(matcher, objective, optimiser, device, *numbers, learned, classes, sampled)


def check_classes(stage: Stage, matcher: Matcher, before: Stage | None) -> None:
    """Refuse what an objective that classifies groups cannot work with; `before` is the stage before."""
    if not stage.objective.needs_classes:
        return
    name = stage.objective.name
    if stage.phrases is not None:
        raise RecipeError(f"objective: {name!r} makes each group of images and texts a class; phrases have no groups")
    if matcher.embedding_dim is None:
        raise RecipeError(f"objective: {name!r} classifies vectors, which needs an embedding model")
    backbone = matcher.pretrained
    moves = backbone is not None and any(parameter.requires_grad for parameter in backbone.parameters())
    if _clusters_anew(stage, before) and (moves or matcher.image_input.kind == "pixels"):
        raise RecipeError("objective.clusters: clusters are found among stored features; freeze the backbone first")


def _clusters_anew(stage: Stage, before: Stage | None) -> bool:
    """Whether a stage has to find clusters; one that starts from a run may have that run's."""
    if not isinstance(stage.objective, Instance) or stage.objective.clusters is None:
        return False
    if stage.start != "previous":
        return stage.start == "scratch"
    known = before.objective.clusters if before is not None and isinstance(before.objective, Instance) else None
    return known != stage.objective.clusters


def check_pairs(stage: Stage, matcher: Matcher) -> None:
    """Refuse what does not go together in how a stage draws its pairs and what its objective reads of them."""
    batches, name = stage.batches, stage.objective.name
    drawn = batches.neighbours or batches.rivals or stage.phrases is not None
    if stage.objective.pairs_only and not (batches.rivals or stage.phrases):
        raise RecipeError(f"batches.rivals: {name!r} scores each pair and drawn rivals; set batches.rivals = 1")
    if batches.rivals and stage.phrases is not None:
        raise RecipeError("batches.rivals: the rivals of a phrase are regions of its photo; set phrases.rivals")
    if drawn and (stage.offline is not None or batches.chunk is not None or matcher.extra_terms):
        raise RecipeError(
            "batches: neighbours, rivals and phrases go with no offline, no chunk and no captioning model"
        )
    if batches.neighbours and stage.phrases is not None and stage.phrases.positives == "all":
        raise RecipeError("phrases.positives = 'all': every positive is in the batch; leave out batches.neighbours")
    if isinstance(stage.objective, Neighbourhood) and stage.objective.needs_within and not batches.neighbours:
        raise RecipeError("batches.neighbours: neighbourhood constraints need neighbours in the batch; set it to true")
    if isinstance(stage.objective, Correlation) != matcher.solves_in_closed_form:
        raise RecipeError(
            f"objective: {name!r} and the model {matcher.settings.name!r} do not go together; "
            "'correlation' is solved by 'cca' alone"
        )
    if isinstance(stage.objective, Correlation) and (stage.epochs != 1 or batches.neighbours):
        raise RecipeError("epochs: 'correlation' is solved in one pass over the pairs; set epochs = 1, no neighbours")


def set_rate(optimiser: Optimizer, rate: float) -> None:
    """Give each group its multiple of a rate."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group["multiple"]


class CollapseWatch:
    """Notices when a training has been stuck in a trap of its objective for a number of steps in a row."""

    def __init__(self, objective: Objective, steps: int, stuck: int = 0) -> None:
        self._objective = objective
        self._steps = steps
        self.stuck = stuck

    def collapsed(self, total: float, batch: Summary) -> bool:
        """Whether this step completes the number of steps; true once for each such row."""
        self.stuck = self.stuck + 1 if self._objective.stuck(batch, total) else 0
        return self.stuck == self._steps
