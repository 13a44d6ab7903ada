"""What is recorded of a run is what `evaluate` measures."""

import json

import numpy as np
import pytest

from diptych.data.open import open_corpus
from diptych.evaluation.analyses.score_overlap import score_overlap
from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
from diptych.evaluation.protocols.sentence_phrases import annotated_phrases, combined_score, phrase_score
from diptych.evaluation.protocols.within_modality import evaluate_within_modality
from diptych.evaluation.runs import cached_score, evaluate, evaluate_encoded
from diptych.model import Model
from diptych.reproduction.measuring import Cost, Measurer
from diptych.reproduction.planned_run import PlannedRun
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.recipes import TINY

DATA = "scenes:train=24,val=6,test=8,texts=2"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    recipe = load_recipe("scenes", TINY)
    train(recipe, DATA, folder, device="cpu", workers=0, features=folder.parent / "features")
    return PlannedRun("vse-0-x", "a run", recipe), folder


@pytest.fixture(scope="module")
def measurer(tmp_path_factory):
    return Measurer(open_corpus(DATA), tmp_path_factory.mktemp("stores"), "cpu")


def test_a_run_is_measured_as_evaluate_does(run, measurer):
    planned, folder = run
    record = measurer.run(planned, folder, Cost(12.345, 3, 48))
    expected = evaluate(folder, DATA, device="cpu", features=None)
    assert record.header.metrics["rsum"] == expected.metrics.rsum
    assert np.array_equal(record.arrays["text_ranks"], expected.folds[0].texts)
    encoded = Model.load(folder, "cpu").encode_corpus(open_corpus(DATA).split("test").matched())
    within = evaluate_within_modality([encoded], "texts")
    assert record.header.metrics["t2t_r5"] == within.metrics.recalls[5]
    overlap = score_overlap(cached_score([encoded]), encoded.image_groups, encoded.text_groups, draws=1)
    assert record.header.metrics["overlap"] == overlap.shared
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert list(record.header.curve) == [line["val"]["rsum"] for line in lines if line["event"] == "epoch"]
    header = record.header
    assert (header.seconds, header.epochs, header.pairs, header.key) == (12.35, 3, 48, "vse-0-x")
    assert header.val["rsum"] in header.curve


def test_runs_are_measured_together_by_the_mean_of_their_scores(run, measurer):
    _, folder = run
    record = measurer.together("together-0-x", "two", [folder, folder], None, 0.0)
    assert record.header.metrics["rsum"] == evaluate(folder, DATA, device="cpu", features=None).metrics.rsum
    assert record.header.seconds == 0


def test_a_run_on_phrases_and_its_combination(run, measurer, small_regions, tmp_path):
    corpus = open_corpus(DATA)
    settings = [
        *("model.image.side=64", "model.image.regions.count=40", "model.image_layers=[8, 4]", "stage.1.epochs=1"),
        *("model.text_layers=[8, 4]", "stage.1.batches.size=16"),
    ]
    recipe = load_recipe("phrases-scenes", settings)
    with small_regions(corpus):
        train(recipe, corpus, tmp_path / "phrases", device="cpu", workers=0, features=tmp_path / "features")
        record = measurer.run(PlannedRun("two_branch-0-x", "phrases", recipe), tmp_path / "phrases", Cost(1, 1, 1))
        found = evaluate_phrases(tmp_path / "phrases", corpus, device="cpu", features=None)
        together = measurer.together("together-0-y", "both", [run[1]], tmp_path / "phrases", 0.3)
        encoded = Model.load(run[1], "cpu").encode_corpus(corpus.split("test").matched())
        model = Model.load(tmp_path / "phrases", "cpu")
        part = corpus.split("test").matched()
        score = combined_score(cached_score([encoded]), phrase_score(model, part, annotated_phrases(part)), 0.3)
    assert record.header.metrics == {name: value for name, value in found.metrics.items() if name != "ceiling"}
    assert record.header.curve[0] == record.header.val["phrase_sum"]
    assert together.header.metrics["rsum"] == evaluate_encoded([encoded], score=score).metrics.rsum
