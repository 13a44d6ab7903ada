"""Verdicts: the rule on chosen intervals, and effects from records against a slow computation."""

import math

import numpy as np
import pytest

from diptych.errors import RunError
from diptych.evaluation.metrics.pooled_difference import PooledDifference
from diptych.evaluation.metrics.ranks import Ranks
from diptych.evaluation.metrics.recall import metrics_from_ranks
from diptych.evaluation.metrics.significance import draw_metrics
from diptych.reproduction.claims import Claim, ClaimFile, Compare, NamedClaim, Published, RunSpec
from diptych.reproduction.plan import PlannedClaim
from diptych.reproduction.records import QueryRanks, Record, RecordHeader
from diptych.reproduction.verdicts import Measured, judge, measure, published_effect

SEEDS = (0, 1, 2)


def compare(expect="greater", bound=None, metric=None, **more):
    return Compare(higher=("a",), lower=("b",), expect=expect, bound=bound, metric=metric, **more)


def measured(compared, queries, seeds, metric="rsum"):
    return Measured(compared, metric, PooledDifference(1.0, (1.0, 1.0), queries, seeds), {"a": 1.0, "b": 0.0})


@pytest.mark.parametrize(
    ("expect", "bound", "queries", "seeds", "verdict", "would_decide"),
    [
        ("greater", None, (1, 2), (0.5, 3), "holds", None),
        ("greater", None, (-2, -1), (-3, -0.5), "does not hold", None),
        ("greater", None, (1, 2), (-1, 3), "undecided", "more seeds"),
        ("greater", None, (-1, 2), (1, 3), "undecided", "more test queries"),
        ("greater", None, (-1, 2), (-1, 3), "undecided", "more test queries and more seeds"),
        ("greater", None, (1, 2), (-3, -1), "undecided", "nothing yet: the two intervals contradict each other"),
        ("greater", None, (1, 2), None, "holds", None),
        ("greater", 5, (1, 2), (1, 3), "does not hold", None),
        ("greater", 5, (6, 9), (5.1, 8), "holds", None),
        ("less", 5, (1, 4), (-3, 4.9), "holds", None),
        ("less", 5, (6, 9), (5.1, 8), "does not hold", None),
        ("less", 5, (4, 9), (1, 2), "undecided", "more test queries"),
        ("equal", 5, (-4, 4.9), (-4.9, 0), "holds", None),
        ("equal", 5, (6, 7), (5.5, 9), "does not hold", None),
        ("equal", 5, (-9, -6), (-7, -5.5), "does not hold", None),
        ("equal", 5, (-9, -4), (-1, 1), "undecided", "more test queries"),
    ],
)
def test_the_rule(expect, bound, queries, seeds, verdict, would_decide):
    found = measured(compare(expect, bound), queries, seeds)
    assert (found.verdict, found.would_decide) == (verdict, would_decide)


@pytest.mark.parametrize(
    ("expect", "bound", "seeds", "verdict"),
    [
        ("greater", None, (1.1, 2), "holds"),
        ("greater", None, (0.5, 0.9), "does not hold"),
        ("less", 2, (1.2, 1.9), "holds"),
        ("less", 2, (1.2, 2.1), "undecided"),
        ("equal", 1.5, (0.7, 1.4), "holds"),
        ("equal", 1.5, (0.6, 1.4), "undecided"),
        ("equal", 1.5, (0.4, 0.6), "does not hold"),
    ],
)
def test_ratios_are_compared_with_1(expect, bound, seeds, verdict):
    assert measured(compare(expect, bound, "seconds"), None, seeds, "seconds").verdict == verdict


def some_record(name, seed, queries=20, **header):
    """A record with random ranks; those of `a` are better."""
    random = np.random.default_rng([seed, len(name), ord(name)])
    most = 12 if name == "a" else 30
    groups = np.arange(queries)
    ranks = Ranks(
        *(random.integers(1, most, count) for count in (queries, 2 * queries)),
        *(groups, np.repeat(groups, 2), groups, np.arange(2 * queries)),
    )
    metrics = metrics_from_ranks(ranks).to_json() | {"overlap": 0.1 * seed + (name == "b")}
    values = {"curve": (10.0 * seed, 20.0, 90.0), "seconds": 30.0 if name == "a" else 20.0, "epochs": 10} | header
    about = RecordHeader(key=f"{name}-{seed}", title=name, diptych="1", corpus="", recipe={}, metrics=metrics, **values)
    return Record.of(about, QueryRanks(ranks)), ranks


RECORDS = {name: {seed: some_record(name, seed) for seed in SEEDS} for name in ("a", "b", "c", "d")}


def named(*compares, metric="rsum"):
    claim = Claim(says="", where="", fair="", metric=metric, compare=compares)
    runs = {name: RunSpec(title=name) for name in "abcd"}
    return NamedClaim("paper.claim", claim, ClaimFile(title="", reference="", run=runs, claim={"claim": claim}))


def effect_of(compared, metric="rsum"):
    records = {name: {seed: record for seed, (record, _) in seeds.items()} for name, seeds in RECORDS.items()}
    return measure(named(compared, metric=metric), compared, records, SEEDS)


@pytest.mark.parametrize("metric", ["rsum", "i2t_r1", "t2i_r10"])
def test_an_effect_is_the_mean_over_seeds_with_draws_that_all_runs_share(metric):
    compared = Compare(higher=("a", "b"), lower=("c", "d"))
    found = effect_of(compared, metric)
    by_seed, drawn = [], []
    for seed in SEEDS:
        values = {name: metrics_from_ranks(RECORDS[name][seed][1]).to_json()[metric] for name in "abcd"}
        by_seed.append(values["a"] + values["b"] - values["c"] - values["d"])
        draws = {name: draw_metrics([RECORDS[name][seed][1]], (1, 5, 10), 1000, 0)[metric] for name in "abcd"}
        drawn.append(draws["a"] + draws["b"] - draws["c"] - draws["d"])
    pooled = np.mean(drawn, axis=0)
    assert found.effect.by_seed == pytest.approx(by_seed)
    assert found.effect.value == pytest.approx(np.mean(by_seed))
    assert found.effect.over_queries == pytest.approx(tuple(np.quantile(pooled, [0.025, 0.975])))
    assert found.values["a"] == pytest.approx(
        np.mean([metrics_from_ranks(RECORDS["a"][seed][1]).to_json()[metric] for seed in SEEDS])
    )


def test_metrics_of_runs_have_an_interval_over_seeds_alone():
    overlap = effect_of(compare(metric="overlap"))
    assert overlap.effect.value == pytest.approx(-1)
    assert overlap.effect.over_queries is None
    curve = effect_of(Compare(higher=("a",), lower=("b",), metric="first_epochs", epochs=2))
    assert curve.values["a"] == pytest.approx(np.mean([10 * seed / 2 + 10 for seed in SEEDS]))
    assert curve.effect.by_seed == (0.0, 0.0, 0.0)
    ratio = effect_of(compare(metric="seconds"))
    assert ratio.effect.value == pytest.approx(1.5)
    assert ratio.effect.over_seeds == pytest.approx((1.5, 1.5))
    assert ratio.is_ratio


def test_what_cannot_be_compared_is_refused():
    records = {"a": {seed: some_record("a", seed)[0] for seed in SEEDS}}
    records["b"] = {seed: some_record("b", seed, queries=19)[0] for seed in SEEDS}
    with pytest.raises(RunError, match="a and b: measured on different test queries"):
        measure(named(compare()), compare(), records, SEEDS)
    with pytest.raises(RunError, match="a: has no metric phrase_r1"):
        effect_of(compare(metric="phrase_r1"))


def judged(*compares, missing=()):
    planned = PlannedClaim(named(*compares), {name: {seed: f"{name}-{seed}" for seed in SEEDS} for name in "ab"})
    records = {f"{name}-{seed}": RECORDS[name][seed][0] for name in "ab" for seed in SEEDS}
    return judge(planned, lambda key: None if key in missing else records[key], "it failed")


def test_a_claim_holds_if_all_of_its_comparisons_do():
    holds, opposite, undecided = compare(bound=0), compare("less", 0), compare("equal", 1e-3, "first_epochs", epochs=2)
    assert judged(holds).verdict == "holds"
    assert judged(holds, opposite).verdict == "does not hold"
    assert judged(holds, undecided).verdict == "holds"  # seeds differ alike: the interval is a point at 0
    assert judged(holds, compare("greater", None, "first_epochs", epochs=2)).verdict == "undecided"
    assert judged(holds).seconds == 150
    assert judged(holds).reason is None


def test_seeds_that_lack_a_record_are_left_out():
    assert judged(compare(), missing=("b-1",)).seeds == [0, 2]
    few = judged(compare(), missing=("b-1", "a-2"))
    assert (few.verdict, few.reason, few.seeds) == ("not measured", "it failed", [0])


def test_published_figures_are_combined_as_measured_ones_are():
    gap = Published(where="", data="", higher=((1, 2, 3, 4, 5, 6), 2.5), lower=(1.0, 2.0))
    assert published_effect(gap, "rsum") == 21 + 2.5 - 3
    assert published_effect(Published(where="", data="", higher=(1.604,), lower=(1.096,)), "seconds") == pytest.approx(
        1.604 / 1.096
    )
    found = measured(compare(published=(gap.model_copy(update={"higher": (3.0,), "lower": (1.0,)}),)), (1, 2), (1, 2))
    assert found.published[0][1] == 2
    assert found.to_json()["published"][0]["effect"] == 2
    assert math.isclose(found.to_json()["bound"], 0)
