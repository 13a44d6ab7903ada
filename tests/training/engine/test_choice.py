"""What is chosen on val, and which solution in closed form a matcher is left with."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from diptych.models.matcher import Matcher, Solution
from diptych.training.engine.choice import Choice, choose_solution


class Offers(nn.Module):
    """A matcher with solutions 1, 2, ... whose weight is the value, and which remembers what was solved."""

    adopt = Matcher.adopt

    def __init__(self, count):
        super().__init__()
        self.register_buffer("weight", torch.zeros(1))
        self.register_buffer("kept", torch.ones(1))
        self.count, self.solved = count, []

    def solutions(self):
        for value in range(1, self.count + 1):
            self.solved.append(value)
            yield Solution("ridge", value, {"weight": torch.tensor([float(value)], dtype=torch.float64)})


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_the_best_on_val_is_kept_and_each_is_measured_once_as_it_is_solved(results):
    matcher, measured = Offers(len(results)), []

    def validate():
        measured.append(int(matcher.weight))
        assert matcher.solved == measured, "the next one was solved before this one was measured"
        return {"rsum": results[measured[-1] - 1], "other": -results[measured[-1] - 1]}

    choice = choose_solution(matcher, "rsum", validate)
    assert measured == list(range(1, len(results) + 1))
    assert choice.kept == matcher.weight == results.index(max(results)) + 1  # the first of equal ones
    assert choice.metrics["rsum"] == max(results)
    assert [metrics["rsum"] for _, metrics in choice.measured] == results
    assert matcher.kept == 1
    assert choose_solution(matcher, "other", lambda: {"other": -float(matcher.weight)}).kept == 1


def test_of_equal_results_the_smallest_value_is_kept():
    measured = {1.0: {"rsum": 15.0}, 0.5: {"rsum": 20.0}, 0.25: {"rsum": 20.0}, 0.0: {"rsum": 10.0}}
    choice = Choice.best("share", "rsum", measured)
    assert choice.kept == 0.25
    assert [value for value, _ in choice.measured] == [0.0, 0.25, 0.5, 1.0]
    other = Choice.best("share", "i2t_r1", {1.0: {"rsum": 1.0, "i2t_r1": 2.0}, 0.5: {"rsum": 2.0, "i2t_r1": 1.0}})
    assert other.kept == 1.0


@pytest.mark.parametrize("setting", ["share", "ridge"])
def test_it_is_told_in_one_line_and_survives_json(setting):
    choice = Choice(setting, "rsum", ((0.0, {"rsum": 10.04}), (0.25, {"rsum": 20.0})), 0.25)
    assert str(choice) == "rsum on val 0: 10.0, 0.25: 20.0; kept 0.25"
    assert choice.to_json()["measured"][1] == {setting: 0.25, "val": {"rsum": 20.0}}
    assert Choice.from_json(setting, choice.to_json()) == choice
