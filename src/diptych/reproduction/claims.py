"""What the papers claim, as data: the files of `diptych.claims`, one per paper, read and checked.

    [run.max]                                   # a training, by the name that claims call it
    small = { recipe = "vsepp-small" }          # in the profile small ...
    full = { recipe = "vsepp-1c-vgg19" }        # ... and as in the paper
    [run.sum]
    like = "max"                                # laid over another run, in both profiles
    set.stage.1.objective.negatives = "sum"

    [claim.max-beats-sum]                       # vsepp.max-beats-sum
    says = "..."
    [[claim.max-beats-sum.compare]]
    higher = ["max"]                            # the metric of these is expected to exceed that of `lower`
    lower = ["sum"]

In `set`, `run:NAME` stands for the folder of another run of the file with the same seed, and `option:vectors` for the
file of --vectors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from diptych.errors import RecipeError
from diptych.settings import Count, Flag, Number, Settings, first_error

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Profile = Literal["small", "full"]
PROFILES: tuple[Profile, ...] = get_args(Profile)

# What a claim needs from the corpus, or from the user, beyond images with texts.
Need = Literal["val", "test", "texts", "identities", "boxes", "vectors"]

# first_epochs: the mean rsum on val over the first epochs, which is the area under that part of the curve; overlap: the
# area that the scores of positive and negative pairs share (dual-path, Eq. 10); seconds: the CPU time of an epoch.
Metric = Literal[
    "rsum",
    "i2t_r1",
    "i2t_r5",
    "i2t_r10",
    "t2i_r1",
    "t2i_r5",
    "t2i_r10",
    "t2t_r1",
    "t2t_r5",
    "t2t_r10",
    "phrase_r1",
    "phrase_r5",
    "phrase_r10",
    "phrase_sum",
    "first_epochs",
    "overlap",
    "seconds",
]

SixRecalls = tuple[Number, Number, Number, Number, Number, Number]
Figure = Number | SixRecalls  # six recalls stand for their sum, rsum


class Published(Settings):
    """What the paper printed for the two sides of a comparison: the table and rows, the data, and the figures.

    `metric` is that of the figures; it defaults to that of the comparison.
    """

    where: str
    data: str
    metric: Metric | None = None
    higher: tuple[Figure, ...]
    lower: tuple[Figure, ...]


class Compare(Settings):
    """The metric summed over `higher` minus the metric summed over `lower`, and what is expected of the difference.

    It is expected to be greater than `bound`, or less, or with "equal" to lie between -bound and bound. Two runs on
    each side compare two gaps. `epochs` is the number of first epochs for the metric `first_epochs`.
    """

    higher: tuple[str, ...]
    lower: tuple[str, ...]
    metric: Metric | None = None
    expect: Literal["greater", "less", "equal"] = "greater"
    bound: Number | None = None
    epochs: Count | None = None
    published: tuple[Published, ...] = ()

    @model_validator(mode="after")
    def _is_a_difference(self) -> Compare:
        for higher, lower in ((self.higher, self.lower), *((each.higher, each.lower) for each in self.published)):
            if len(higher) != len(lower) or not higher:
                raise PydanticCustomError("sides", "higher and lower need the same number of entries, at least one")
        if self.expect == "equal" and self.bound is None:
            raise PydanticCustomError("bound", "expect = 'equal' needs a bound: how large a difference makes none")
        if (self.metric == "first_epochs") != (self.epochs is not None):
            raise PydanticCustomError("epochs", "epochs belongs to metric = 'first_epochs', which needs it")
        return self


class Claim(Settings):
    """One claim of a paper, in our words, and the comparisons that all have to come out as expected.

    `where` names the paper's table or section. `fair` says which control makes the comparison fair; it is one of the
    runs. `unequal` says why two sides may train for different numbers of epochs or in other batches, if they do.
    """

    says: str
    where: str
    metric: Metric = "rsum"
    fair: str
    unequal: str | None = None
    needs: tuple[Need, ...] = ("val", "test")
    compare: Annotated[tuple[Compare, ...], Field(min_length=1)]

    def metric_of(self, compare: Compare) -> Metric:
        """The metric of one of the comparisons."""
        return compare.metric or self.metric

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of the runs that are compared, each once."""
        return tuple(dict.fromkeys(name for each in self.compare for name in (*each.higher, *each.lower)))


class Variant(Settings):
    """A run in one profile: a packaged recipe, unless the run is `like` another, and changes to it.

    `pace` is the CPU time of one epoch in seconds per 1,000 pairs of training, measured on the machine that
    docs/reproduce.md names.
    """

    recipe: str | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    pace: Number | None = None


class RunSpec(Settings):
    """A training by its name: a recipe per profile, or what differs from another run."""

    title: str
    like: str | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    small: Variant | None = None
    full: Variant | None = None

    def variant(self, profile: Profile) -> Variant | None:
        """What the run is in one profile, if that differs."""
        return self.small if profile == "small" else self.full


class Combined(Settings):
    """Trained runs that are measured together, by the mean of their scores or, with `phrases`, by Eq. 8 of two-branch.

    With `next_seed`, the same run with the next seed takes part, too.
    """

    title: str
    run: str
    next_seed: Flag = False
    phrases: str | None = None
    share: Annotated[Number, Field(ge=0, le=1)] = 0.2


class ClaimFile(Settings):
    """A file of claims: the paper, its runs and its claims."""

    title: str
    reference: str
    run: dict[str, RunSpec]
    combined: dict[str, Combined] = Field(default_factory=dict)
    claim: dict[str, Claim]

    @model_validator(mode="after")
    def _names_exist(self) -> ClaimFile:
        for key, claim in self.claim.items():
            for name in claim.runs:
                if name not in self.run and name not in self.combined:
                    raise PydanticCustomError("run", f"claim {key} compares {name}, which is not a run of the file")
        for name, run in self.run.items():
            if run.like is not None and run.like not in self.run:
                raise PydanticCustomError("run", f"run {name} is like {run.like}, which is not a run of the file")
        return self


@dataclass(frozen=True)
class NamedClaim:
    """A claim with its id, such as `vsepp.max-beats-sum`, and the file that it stands in."""

    id: str
    claim: Claim
    file: ClaimFile

    @property
    def paper(self) -> str:
        """The paper's short name: that of the file."""
        return self.id.partition(".")[0]


@cache
def claim_files() -> dict[str, ClaimFile]:
    """The packaged files of claims, by the papers' short names."""
    return read_claim_files(resources.files("diptych.claims"))


def read_claim_files(folder: Traversable) -> dict[str, ClaimFile]:
    """All files of claims in a folder, by their names; an error names the file and the key."""
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml"))
    return {name.removesuffix(".toml"): _read(folder.joinpath(name), name) for name in names}


def _read(path: Traversable, name: str) -> ClaimFile:
    try:
        return ClaimFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"claims/{name}: not valid TOML: {error}") from None
    except ValidationError as error:
        entry = " ".join(str(part) for part in error.errors()[0]["loc"][:2])  # such as "claim max-beats-sum"
        raise RecipeError(f"claims/{name}: {entry}: {first_error(error, ClaimFile)}") from None


def all_claims(files: dict[str, ClaimFile] | None = None) -> list[NamedClaim]:
    """All claims, paper by paper, in the order of their files."""
    files = claim_files() if files is None else files
    return [
        NamedClaim(f"{paper}.{key}", claim, file) for paper, file in files.items() for key, claim in file.claim.items()
    ]


def find_claims(names: Sequence[str], files: dict[str, ClaimFile] | None = None) -> list[NamedClaim]:
    """The claims that ids, papers or `all` name, each once; an unknown name is an error that offers the nearest."""
    claims = all_claims(files)
    papers = dict.fromkeys(claim.paper for claim in claims)
    known = [*(claim.id for claim in claims), *papers, "all"]
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=3, cutoff=0.4) or _same_key(name, claims)
            offer = f"did you mean {' or '.join(map(repr, close))}?" if close else "see `diptych reproduce --list`"
            raise RecipeError(f"no claim {name!r}; {offer}")
    wanted = set(names)
    return [claim for claim in claims if wanted & {claim.id, claim.paper, "all"}]


def _same_key(name: str, claims: Sequence[NamedClaim]) -> list[str]:
    """The ids whose part after the paper is close to a name."""
    keys = {claim.id.partition(".")[2]: claim.id for claim in claims}
    return [keys[key] for key in get_close_matches(name, keys, n=2, cutoff=0.5)]
