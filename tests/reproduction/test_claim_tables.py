"""Results as rows, Markdown and JSON."""

import json
from dataclasses import replace

import pytest

from diptych.reproduction.claim_tables import claims_json, claims_markdown, commands_of, effect_rows, format_effect
from diptych.reproduction.plan import NotApplicable


def test_rows_say_what_is_compared_expected_and_published(reproduced):
    _, found = reproduced
    first, second = found.results
    (row,) = effect_rows(first)
    measured = first.measured[0]
    assert row.sides == f"max {measured.values['max']:.1f} − sum {measured.values['sum']:.1f}"
    assert row.expected == "more than 0"
    assert row.published == ["+12.0 (rsum, COCO; Table 1, rows 1 and 2)"]
    assert row.effect == format_effect(measured.effect.value, "rsum")
    assert " to " in row.over_queries
    texts, two, ratio, curve, overlap = effect_rows(second)
    assert texts.sides.count(" + ") == 2
    assert two.metric == "rsum"
    assert (ratio.expected, ratio.over_queries) == ("less than 1000 times", "none")
    assert ratio.effect.startswith("×")
    assert " / " in ratio.sides
    assert curve.metric == "mean rsum on val over the first 1 epochs"
    assert curve.expected == "within ±600"
    assert len(overlap.effect.rpartition(".")[2]) == 3


@pytest.mark.parametrize(
    ("value", "metric", "text"),
    [(1.25, "rsum", "+1.2"), (-0.01, "rsum", "+0.0"), (-3.0, "i2t_r1", "−3.0"), (0.5, "seconds", "×0.50")],
)
def test_effects_have_a_sign(value, metric, text):
    assert format_effect(value, metric) == text


def test_json_has_everything_and_the_same_names_for_all(reproduced):
    request, found = reproduced
    content = json.loads(json.dumps(claims_json(found)))
    assert [claim["id"] for claim in content["claims"]] == ["tiny.max-beats-sum", "tiny.many-things"]
    claim = content["claims"][0]
    assert claim["seeds"] == [0, 1, 2]
    assert len(claim["records"]["max"]) == 3
    (comparison,) = claim["comparisons"]
    assert comparison["published"][0]["effect"] == 12
    assert len(comparison["effect"]["by_seed"]) == 3
    assert content["not_applicable"] == [{"id": "tiny.people", "reason": "no identity of train has several images"}]
    assert content["data"] == {"name": "scenes", "address": request.corpus.address, "split": "test"}


def test_commands_repeat_the_claim_and_each_run(reproduced):
    request, found = reproduced
    claim, *runs = commands_of(found, found.results[0])
    assert claim.startswith(f"diptych reproduce tiny.max-beats-sum --data {request.corpus.address} --profile small")
    assert len(runs) == 6
    for run in runs:
        recipe = run.split()[2]
        assert recipe.startswith(str(request.into / "recipes"))
        assert (request.into / "recipes" / recipe.rpartition("/")[2]).is_file()


def test_markdown_lists_verdicts_details_and_what_is_not_applicable(reproduced):
    _, found = reproduced
    text = claims_markdown(found)
    assert "| `tiny.max-beats-sum` |" in text
    assert r"Many \<things\>." in text
    assert "- published: +12.0" in text
    assert "- `tiny.people`: no identity of train has several images" in text
    unmeasured = replace(found, results=[replace(found.results[0], measured=(), reason="it failed")])
    assert "Not measured: it failed" in claims_markdown(unmeasured)
    nothing = replace(found, not_applicable=[NotApplicable(found.results[0].named, "a | b")], results=[])
    assert r"a \| b" in claims_markdown(nothing)
