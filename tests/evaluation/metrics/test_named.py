from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field

import pytest

from diptych.evaluation.metrics.named import NamedValues


@dataclass(frozen=True)
class Recalls(NamedValues[float]):
    values: dict[str, float] = field(default_factory=lambda: {"i2t_r1": 40.0, "rsum": 99.5})

    def by_name(self):
        return self.values


def test_every_value_is_an_attribute_by_its_name():
    assert (Recalls().i2t_r1, Recalls().rsum) == (40.0, 99.5)
    assert {"i2t_r1", "rsum", "values", "by_name"} <= set(dir(Recalls()))
    assert len(set(dir(Recalls()))) == len(dir(Recalls()))


def test_a_name_that_was_not_measured_is_an_error_that_names_those_that_were():
    with pytest.raises(AttributeError, match=r"^Recalls has no i2t_r2; it has i2t_r1, rsum$"):
        _ = Recalls().i2t_r2
    assert not hasattr(Recalls(), "_repr_html_")


def test_copies_and_pickles_are_equal():
    assert copy.deepcopy(Recalls()) == pickle.loads(pickle.dumps(Recalls())) == Recalls()  # noqa: S301
