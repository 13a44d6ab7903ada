"""What a recipe may say: a model and a list of stages, checked key by key before anything starts.

`recipe_loader` reads recipes from files; `parse_recipe` checks what was read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, SerializeAsAny, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from diptych import registry
from diptych.data.sampling.offline import OfflineSettings
from diptych.data.sampling.regions import PhraseSettings
from diptych.errors import RecipeError
from diptych.features.choices import RandomCrop
from diptych.models.lora import LoRASettings
from diptych.models.matcher import ModelSettings
from diptych.models.matchers.projected import Head
from diptych.objectives.objective import Objective
from diptych.settings import Count, Flag, Number, Settings, first_error
from diptych.training.engine.precision import Precision
from diptych.training.engine.schedule import Schedule, StepSchedule


class Batches(Settings):
    """How pairs are drawn: a random order each epoch, `size` pairs per step.

    With `chunk`, that many pairs are encoded at a time, but the whole batch is compared: the memory of a small batch,
    the gradients of a large one, and a second pass through the towers. `neighbours` adds pairs, so that every image and
    text of a batch has two positives if the data has them. `rivals` is the number of other texts drawn for each pair,
    for objectives that score single pairs. Of a stream of shards, `buffer` samples are shuffled at a time.
    """

    size: Annotated[int, Field(ge=2, strict=True)] = 128
    chunk: Count | None = None
    neighbours: Flag = False
    rivals: Annotated[int, Field(ge=0, strict=True)] = 0
    buffer: Count = 2048


class Optimiser(Settings):
    """Adam, or gradient descent with `momentum` (`sgd`), with the gradient's norm clipped; `clip = 0` does not clip.

    `nesterov` is Nesterov momentum, for `sgd` only.
    `decay` is weight decay (L2): `decay` times the weight is added to the gradient of weights, not of biases.
    `parts` gives parts of the matcher other rates, as multiples of `rate`: `{ image = 0.1 }`.
    """

    name: Literal["adam", "sgd"] = "adam"
    rate: Annotated[Number, Field(gt=0)] = 0.0002
    clip: Annotated[Number, Field(ge=0)] = 2.0
    momentum: Annotated[Number, Field(ge=0, lt=1)] | None = Field(default=None, validate_default=True)
    nesterov: Flag = False
    decay: Annotated[Number, Field(ge=0)] = 0.0
    parts: dict[str, Annotated[Number, Field(gt=0)]] = Field(default_factory=dict)

    @field_validator("momentum")
    @classmethod
    def _of_sgd(cls, momentum: float | None, fields: ValidationInfo) -> float | None:
        if momentum is not None and fields.data.get("name") == "adam":
            raise PydanticCustomError("momentum", "is only for name = 'sgd'; leave it out")
        return momentum

    @field_validator("nesterov")
    @classmethod
    def _with_momentum(cls, nesterov: bool, fields: ValidationInfo) -> bool:
        if nesterov and (fields.data.get("name") != "sgd" or fields.data.get("momentum") == 0):
            raise PydanticCustomError("nesterov", "is only for name = 'sgd' with a momentum; leave it out")
        return nesterov


class Stage(Settings):
    """One uninterrupted training with one objective, one set of trainable parts, one schedule.

    `start` is `"scratch"`, `"previous"` (the best snapshot of the stage before), `"starter"` (the model that comes with
    Diptych), the path of a run, or the address of a pretrained pair. In the first stage it may be a list: the first
    whose model fits is taken.
    `include_start` measures what the stage starts from before the first step: it is the best snapshot if no epoch is
    better. From scratch there is nothing to measure.
    `head` attaches projection heads to both sides of the matcher that the stage starts from.
    `crops` trains on random crops, drawn anew each time an image is read: `"RC"` as in VSE++, `"window"` from the
    resized image, `"one"` of the fixed crops that `model.image.crops` names. With `"one"`, what the frozen first blocks
    of the backbone compute is stored, so that fine-tuning the last blocks takes minutes instead of hours.
    `trainable` names parts of the matcher: modules, `"last:2"` (the last two blocks of each tower), or `"all"`.
    `lora` adds trainable low-rank factors to frozen weight matrices; nothing else is then trainable by default.
    `interpolate` measures (1 - share) * start + share * best after the last epoch, for each of these shares, and keeps
    the best of them as the stage's best snapshot (WiSE-FT, Wortsman et al. 2022).
    `precision` is that of the towers in training; weights, scores, losses and val stay in float32.
    `offline` adds hard negatives from mined lists to each pair, for objectives that use them.
    `phrases` trains on phrases and regions instead of texts and images, and measures localisation.
    `select` is the metric on val that chooses the best snapshot; `patience` stops after that many epochs without a
    better one.
    """

    start: str | tuple[str, ...] = "scratch"
    include_start: Flag = False
    head: Head | None = None
    crops: RandomCrop | None = None
    trainable: tuple[str, ...] = ("all",)
    lora: LoRASettings | None = None
    splits: tuple[Literal["train", "restval"], ...] = ("train",)
    epochs: Count = 30
    objective: SerializeAsAny[Objective]
    batches: Batches = Batches()
    offline: OfflineSettings | None = None
    phrases: PhraseSettings | None = None
    optimiser: Optimiser = Optimiser()
    precision: Precision = "float32"
    schedule: Schedule = StepSchedule()
    select: str = "rsum"
    patience: Count | None = None
    interpolate: tuple[Annotated[Number, Field(ge=0, le=1)], ...] | None = None

    @property
    def start_address(self) -> str | None:
        """The address of the run or pair that the stage starts from; None from scratch and from the previous stage."""
        assert isinstance(self.start, str), "chosen by start_run.choose_start"
        return None if self.start in ("scratch", "previous") else self.start

    @property
    def first_epoch(self) -> int:
        """0 if what the stage starts from is measured as epoch 0, else 1."""
        return 0 if self.include_start and self.start != "scratch" else 1

    @field_validator("start", mode="before")
    @classmethod
    def _one_or_more_names(cls, start: Any) -> Any:
        names = [start] if isinstance(start, str) else start
        if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
            raise PydanticCustomError("start", "name 'scratch', 'previous', 'starter' or a run, or a list of them")
        return start

    @field_validator("interpolate")
    @classmethod
    def _distinct_shares(cls, shares: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if shares is not None and (not shares or len(set(shares)) < len(shares)):
            raise PydanticCustomError("interpolate", "name different shares, such as [0.0, 0.25, 0.5, 0.75, 1.0]")
        return shares

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, content: Any) -> Any:
        """A stage on phrases defaults to a metric of localisation, and one with `lora` trains nothing else."""
        if isinstance(content, dict) and content.get("phrases") is not None:
            content = {"select": "phrase_sum", **content}
        if isinstance(content, dict) and content.get("lora") is not None:
            content = {"trainable": (), **content}
        return content


class Text(Settings):
    """How texts become ids: words seen at least `threshold` times in train; `vectors` is a file of word vectors.

    With `tokeniser = "bpe"` or `"wordpiece"`, texts are read in pieces of words, `size` of them, learned from train; a
    path is that of a `tokenizer.json` to use instead. A pretrained text tower brings its own tokeniser.
    `use = "start"` initialises words from that file; `"filter"` keeps only words that are in it, initialised at random;
    `"both"` does both.
    A stage that starts from a run has the words of that run; `grow` adds the words of the training texts that the run
    does not know.
    """

    tokeniser: str = "words"
    size: Count | None = None
    threshold: Count = 4
    grow: Flag = False
    vectors: str | None = None
    use: Literal["start", "filter", "both"] = "start"

    @field_validator("size")
    @classmethod
    def _of_pieces(cls, size: int | None, fields: ValidationInfo) -> int | None:
        if size is not None and fields.data.get("tokeniser") == "words":
            raise PydanticCustomError("size", "is the number of pieces of 'bpe' and 'wordpiece'; leave it out")
        return size

    @field_validator("grow", "vectors", "use")
    @classmethod
    def _of_words(cls, value: Any, fields: ValidationInfo) -> Any:
        if value not in (False, None, "start") and fields.data.get("tokeniser") != "words":
            raise PydanticCustomError("words", "is for whole words; leave it out, or set text.tokeniser = 'words'")
        return value


Figure = Number | Literal["-"]  # a dash if the paper does not give it
Figures = tuple[Figure, Figure, Figure] | tuple[Figure, Figure, Figure, Figure]


class Row(Settings):
    """A row of a paper's table: recall at 1, 5 and 10 in percent for each direction, and the median rank, if given.

    `i2t` and `t2i` are retrieval, `t2t` is text-to-text retrieval, `phrases` is localisation. `reference` is the source
    of the figures if it is not the paper that the recipe follows.
    """

    reference: str | None = None
    number: str
    data: str
    i2t: Figures | None = None
    t2i: Figures | None = None
    t2t: Figures | None = None
    phrases: Figures | None = None


class Paper(Settings):
    """The paper that a recipe follows, and the figures that were published for it."""

    reference: str
    row: tuple[Row, ...] = ()


class Recipe(Settings):
    """What to train and how; without a `model`, stage 1 starts from a run and takes its model.

    A recipe without stages is a model that needs no training; `make` writes its run.
    """

    title: str = ""
    seed: Annotated[int, Field(ge=0, le=2**31, strict=True)] = 0
    paper: Paper | None = None
    model: SerializeAsAny[ModelSettings] | None = None
    text: Text = Text()
    stage: tuple[Stage, ...] = ()

    @model_validator(mode="after")
    def _has_something(self) -> Recipe:
        if self.model is None and not self.stage:
            raise PydanticCustomError("recipe", "a recipe needs a model or a stage; see `diptych recipes show scenes`")
        return self

    def first(self, stages: int) -> Recipe:
        """The recipe with its first stages only."""
        return self.model_copy(update={"stage": self.stage[:stages]})

    def trains_like(self, other: Recipe) -> bool:
        """Whether both train the same; titles and published figures make no difference."""
        wording = {"title": "", "paper": None}
        return self.model_copy(update=wording) == other.model_copy(update=wording)

    def to_dict(self) -> dict[str, Any]:
        """Every value, defaults too, as TOML could hold it."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_toml(self) -> str:
        """The recipe as TOML that reads back to the same recipe."""
        return tomli_w.dumps(self.to_dict())


def parse_recipe(content: dict[str, Any]) -> Recipe:
    """Check a recipe's content; an error names the first wrong key and the nearest known one."""
    content = dict(content)
    if "model" in content:
        content["model"] = registry.resolve("models.matchers", content["model"], "model", ModelSettings)
    if isinstance(content.get("stage"), list):
        content["stage"] = [
            _with_objective(stage, f"stage.{number}.objective") for number, stage in enumerate(content["stage"], 1)
        ]
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        raise RecipeError(first_error(error, Recipe)) from None


def _with_objective(stage: Any, where: str) -> Any:
    if not isinstance(stage, dict) or "objective" not in stage:
        return stage
    return {**stage, "objective": registry.resolve("objectives", stage["objective"], where, Objective)}
