"""Fusing runs: the figures of each trial against the fused model itself, and runs that do not fit each other."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.formats.scenes import make_scenes
from diptych.data.origin import Origin
from diptych.errors import DataError, DiptychError, RecipeError, RunError
from diptych.evaluation.runs import evaluate
from diptych.model import Model
from diptych.models.matchers.order import OrderSettings
from diptych.models.towers import pretrained
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.training import fusion as fusing
from diptych.training.fusion import Fusion, FusionTrial, fuse, score_deviation, share_grid
from diptych.training.recipe_loader import load_recipe
from support.backbones import TinyBackbone
from support.made_runs import random_run, tiny_settings


@pytest.fixture(scope="module")
def scenes():
    return make_scenes(train=4, val=12, test=6, texts=2)


@pytest.fixture(scope="module")
def runs(scenes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    texts = scenes.texts
    return {
        "first": random_run(folder / "first", texts, seed=1),
        "second": random_run(folder / "second", texts, seed=2, joint=7, normalise_images=False),
        "third": random_run(folder / "third", texts, seed=3, joint=3),
    }


def fused(runs, corpus, into, **options):
    return fuse([runs[0], runs[1], *runs[2:]], corpus, into, device="cpu", features=None, workers=0, **options)


@pytest.fixture(scope="module")
def pair(runs, scenes, tmp_path_factory):
    """A fusion of two runs with given shares, and the folder that it wrote."""
    into = tmp_path_factory.mktemp("fused") / "run"
    return fused([runs["first"], runs["second"]], scenes, into, shares=(0.25, 0.75)), into


def test_a_written_run_scores_the_weighted_sum_of_its_parts(pair, runs, scenes):
    fusion, into = pair
    part = scenes.split("test")
    encoded = [Model.load(run, "cpu").encode_corpus(part, 0) for run in (into, runs["first"], runs["second"])]
    scores, first, second = (each.matcher().score(each.images, each.texts) for each in encoded)
    torch.testing.assert_close(scores, fusion.best.weights[0] * first + fusion.best.weights[1] * second)
    assert fusion.best.shares == (0.25, 0.75)
    assert sum(fusion.best.weights) == pytest.approx(1)


def test_scores_are_standardised_by_their_deviation_on_val(pair, runs, scenes):
    fusion, _ = pair
    for run, spread in zip((runs["first"], runs["second"]), fusion.spreads, strict=True):
        encoded = Model.load(run, "cpu").encode_corpus(scenes.split("val"), 0)
        scores = encoded.matcher().score(encoded.images, encoded.texts)
        assert spread == pytest.approx(scores.double().std(correction=0).item(), rel=1e-4)
    influence = [weight * spread for weight, spread in zip(fusion.best.weights, fusion.spreads, strict=True)]
    assert influence[1] / influence[0] == pytest.approx(3)  # as the shares are to each other


def test_every_trial_has_the_figures_of_the_model_with_its_shares(runs, scenes, tmp_path):
    parts = [runs["first"], runs["second"], runs["third"]]
    fusion = fused(parts, scenes, tmp_path / "best", step=0.5)
    assert [trial.shares for trial in fusion.trials] == share_grid(3, 0.5)
    assert len({trial.metrics["rsum"] for trial in fusion.trials}) > 2
    alone = fusion.trials[0]
    assert alone.shares == alone.weights == (1, 0, 0)
    assert alone.metrics["rsum"] == pytest.approx(evaluate(parts[0], scenes, "val", device="cpu").metrics.rsum)
    mixed = fused(parts, scenes, tmp_path / "mixed", shares=(0.5, 0.3, 0.2))
    found = evaluate(tmp_path / "mixed", scenes, "val", device="cpu").metrics.to_json()
    assert mixed.best.metrics == {name: value for name, value in found.items() if name in mixed.best.metrics}


def test_raw_scores_are_weighted_by_the_shares(runs, scenes, tmp_path):
    fusion = fused([runs["first"], runs["second"]], scenes, tmp_path / "raw", shares=(0.25, 0.75), standardise=False)
    assert fusion.best.weights == fusion.best.shares
    assert Model.load(tmp_path / "raw", "cpu").matcher.settings.spreads == ()


def test_what_a_fused_run_holds(pair, scenes):
    fusion, into = pair
    recipe = load_recipe(str(into / "recipe.toml"))
    assert recipe.title == "first and second, fused"
    assert recipe.stage == ()
    assert recipe.model == Model.load(into, "cpu").matcher.settings
    assert recipe.model.spreads == pytest.approx(fusion.spreads)
    written = json.loads((into / "best/metrics.json").read_text())
    assert written["val"] == fusion.best.metrics
    assert written["fusion"]["runs"] == list(fusion.runs)
    assert len(written["fusion"]["trials"]) == 1
    assert Origin.read(into).digest == scenes.digest()


def test_the_best_trial_wins_and_of_equals_the_first():
    values = [(1.0, 30.0), (0.75, 50.0), (0.5, 50.0), (0.0, 40.0)]
    trials = tuple(FusionTrial((one, 1 - one), (one, 1 - one), {"rsum": rsum, "i2t_r1": one}) for one, rsum in values)
    fusion = Fusion(("a", "b"), (1, 1), trials, "rsum")
    assert fusion.best is trials[1]
    assert fusion.best.is_mixture
    assert not replace(fusion, select="i2t_r1").best.is_mixture


def test_nothing_is_written_if_a_run_alone_is_best(runs, scenes, tmp_path, monkeypatch):
    monkeypatch.setattr(fusing, "share_grid", lambda parts, step: [(0.0, 1.0)])
    fusion = fused([runs["first"], runs["second"]], scenes, tmp_path / "none")
    assert not fusion.best.is_mixture
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("parts", "step"), [(2, 0.5), (2, 0.05), (3, 0.1), (4, 0.25)])
def test_a_grid_has_all_shares_that_sum_to_one(parts, step):
    grid = share_grid(parts, step)
    steps = round(1 / step)
    assert len(grid) == len(set(grid)) == math.comb(steps + parts - 1, parts - 1)
    assert all(sum(shares) == pytest.approx(1) for shares in grid)
    assert all(share * steps == pytest.approx(round(share * steps)) for shares in grid for share in shares)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(0, 1000))
def test_the_deviation_is_that_of_all_products(images, texts, size, seed):
    random = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(count, size, generator=random) for count in (images, texts))
    expected = np.std((left.double() @ right.double().t()).numpy())
    if expected > 1e-6:
        assert score_deviation(left, right) == pytest.approx(expected, rel=1e-6)


def test_equal_scores_cannot_be_standardised():
    with pytest.raises(DataError, match="a run gives all images and texts of val the same score; leave it out"):
        score_deviation(torch.ones(3, 2), torch.ones(4, 2))


@pytest.fixture
def tiny(monkeypatch):
    """Backbones are tiny, and each that is built has weights of its own."""

    def build(*_):
        backbone = TinyBackbone().eval()
        backbone.scale.data.uniform_(0.001, 0.01)
        return backbone

    monkeypatch.setattr(pretrained, "build_backbone", build)


def order(words, **changes):
    return OrderSettings(**tiny_settings(words, **changes).model_dump(exclude={"name"}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"image": CNNSettings(pixels=32, width=2)}, "'vse' reads pixels of 3 x 16 x 16, 'vse' pixels of 3 x 32 x 32"),
        ({"settings": order}, "the score of 'order' is not an inner product; leave it out"),
        ({"texts": ["other words"]}, "their tokenisers differ; fuse runs whose text towers read the same ids"),
    ],
)
def test_runs_that_do_not_fit_are_refused_in_one_sentence(changes, reason, runs, scenes, tmp_path):
    texts = changes.pop("texts", scenes.texts)
    other = random_run(tmp_path / "other", texts, **changes)
    with pytest.raises(RunError, match=f"first and .*other cannot be fused: .*{reason}") as error:
        fused([runs["first"], other], scenes, tmp_path / "fused")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "fused").exists()


@pytest.mark.usefixtures("tiny")
def test_runs_whose_backbones_were_trained_apart_are_refused(scenes, tmp_path):
    image = BackboneSettings(backbone="lite0")
    parts = [random_run(tmp_path / f"run-{seed}", scenes.texts, seed=seed, image=image) for seed in (0, 1)]
    with pytest.raises(RunError, match="their backbones have different weights; fuse runs that leave the backbone as"):
        fused(parts, scenes, tmp_path / "fused")
    same = random_run(tmp_path / "same", scenes.texts, seed=0, joint=6, image=image)
    shared = Model.load(parts[0], "cpu").matcher
    other = Model.load(same, "cpu")
    other.matcher.image.backbone.load_state_dict(shared.image.backbone.state_dict())
    other.save(tmp_path / "frozen")
    fusion = fused([parts[0], tmp_path / "frozen"], scenes, tmp_path / "fused", shares=(0.5, 0.5))
    assert fusion.best.metrics["rsum"] == pytest.approx(
        evaluate(tmp_path / "fused", scenes, "val", device="cpu").metrics.rsum
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shares": (0.5, 0.4)}, RecipeError, r"shares = 0\.5, 0\.4: give each of the 2 runs a positive share"),
        ({"shares": (1.0, 0.0)}, RecipeError, r"shares = 1, 0: give each of the 2 runs a positive share"),
        ({"shares": (1.0,)}, RecipeError, r"shares = 1: give each of the 2 runs a positive share"),
        ({"step": 0.3}, RecipeError, r"step = 0\.3: not a fraction of one, such as 0\.1"),
        ({"step": 0.0}, RecipeError, r"step = 0: not a fraction of one"),
        ({"select": "rsun"}, RecipeError, r"select = 'rsun': not a metric of retrieval; did you mean 'rsum'\?"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_encoded(options, error, message, runs, tmp_path):
    with pytest.raises(error, match=message):
        fused([runs["first"], runs["second"]], None, tmp_path / "fused", **options)


def test_wrong_runs_and_folders_are_refused(runs, scenes, tmp_path):
    first = runs["first"]
    for parts, message in (
        ([first], "first: name at least two runs to fuse"),
        ([first, first / ".." / "first"], "the run was named twice"),
        ([first, tmp_path / "none"], "none: no such run"),
    ):
        with pytest.raises(DiptychError, match=message):
            fuse(parts, scenes, tmp_path / "fused", device="cpu")
    with pytest.raises(RunError, match="second: exists already; choose another folder"):
        fused([first, runs["third"]], scenes, runs["second"])
