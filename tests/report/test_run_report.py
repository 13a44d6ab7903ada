import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.data.phrases import find_mentions
from diptych.errors import ScoreError
from diptych.evaluation.localisation.phrase_metrics import GroundingResult
from diptych.evaluation.runs import evaluate_encoded
from diptych.index.entries import Entry, Hit
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.report.run_report import write_phrase_report, write_report
from diptych.report.sections.hard_negatives import hard_negatives_section
from diptych.training.engine.journal import Journal
from diptych.training.recipe_loader import load_recipe, trained_on_phrases
from diptych.training.train import train
from support.made_runs import random_run


def test_the_report_shows_the_results_and_the_training(run, corpus, encoded):
    result = evaluate_encoded([encoded])
    trained = Model.load(run, "cpu")
    found = [Hit(Entry(id, "image", key, id), 0.5) for id, key in enumerate(encoded.corpus.image_ids[:3], 1)]
    asked = [("two red circles", found)]
    negatives = hard_negatives_section(run, trained, corpus)
    page = write_report(run, encoded, result, "test", questions=asked, hard_negatives=negatives).read_text()
    assert "&lt;b&gt;run" in page
    assert "<b>run" not in page
    assert "two red circles" in page
    assert f"{result.metrics.rsum:.1f}" in page
    assert "Recall on val" in page
    assert "Training loss, stage 2" in page
    assert "Training loss, stage 1" not in page  # one epoch is no curve
    assert ">stage 2</text>" in page  # where it begins
    assert "negatives = " in page  # the recipe
    assert "sampled with seed 0" in page
    assert page.count('class="column"') == 8  # the intervals of the cross-retrieval rank
    assert 'id="attention"' not in page  # the model has none
    assert page.count('class="area"') == 2  # the scores of positive and negative pairs
    assert 'id="word-importance"' in page
    assert 'id="correlations"' not in page  # the network began at random
    assert "Class error" not in page
    assert negatives.groups[0].cards[0].entries[1].text in page


def test_sections_without_data_are_omitted(run, encoded):
    page = write_report(run, encoded, evaluate_encoded([encoded]), "test").read_text()
    assert "Hardest negatives" not in page
    assert "How hard" not in page  # the split does not fill a batch


def test_class_errors_are_drawn_if_the_journal_has_them(run, encoded, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    told = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    told = [
        line | ({"class_error": {"visual": 80.0, "textual": 95.5}} if line["event"] == "epoch" else {}) for line in told
    ]
    (tmp_path / "copy" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    page = write_report(tmp_path / "copy", encoded, evaluate_encoded([encoded]), "test").read_text()
    assert "Class error in training: images goes from 80 to 80; texts goes from 95.5 to 95.5" in page


def test_the_precision_is_a_fact_if_a_stage_trained_in_another_than_float32(run, encoded, tmp_path):
    copied = shutil.copytree(run, tmp_path / "copy")
    assert "float32, float16" not in write_report(copied, encoded, evaluate_encoded([encoded]), "test").read_text()
    before, _, last = (recipe := copied / "recipe.toml").read_text().rpartition('precision = "float32"')
    recipe.write_text(f'{before}precision = "float16"{last}')
    assert "float32, float16" in write_report(copied, encoded, evaluate_encoded([encoded]), "test").read_text()


def test_a_model_of_sets_on_stored_features_has_all_sections(tmp_path):
    corpus = make_scenes(train=8, val=4, test=6, texts=2)
    values = np.random.default_rng(0).normal(size=(len(corpus.image_ids), 3, 5)).astype(np.float32)
    corpus = replace(corpus, features=Features([values]))
    recipe = load_recipe("scan-t2i", ["model.joint=8", "model.text.word=4", "stage.1.epochs=1"])
    run = train(recipe, corpus, tmp_path / "scan", device="cpu", workers=0)
    encoded = Model.load(run, "cpu").encode_corpus(corpus.split("test"))
    page = write_report(run, encoded, evaluate_encoded([encoded]), "test").read_text()
    for section in ("word-importance", "score-distributions", "correlations"):
        assert f'id="{section}"' in page
    assert "computed from the features of the corpus" in page


def test_a_report_needs_one_gallery_and_the_corpus(run, encoded, tmp_path):
    with pytest.raises(ScoreError, match="without folds"):
        write_report(run, encoded, evaluate_encoded([encoded], folds=2), "test")
    encoded.save(tmp_path / "e.safetensors")
    loaded = EncodedCorpus.load(tmp_path / "e.safetensors")
    with pytest.raises(ScoreError, match="needs the corpus"):
        write_report(run, loaded, evaluate_encoded([loaded]), "test")


def test_the_report_of_a_run_on_phrases_has_phrase_localisation_only(run, corpus, tmp_path):
    assert not trained_on_phrases(run)
    (tmp_path / "recipe.toml").write_text(load_recipe("two-branch-phrases-small").to_toml())
    assert trained_on_phrases(tmp_path)
    for stage in (1, 2):
        for epoch in (1, 2):
            metrics = {"phrase_r1": 10.0 * epoch, "ceiling": 90.0}
            line = {"event": "epoch", "stage": stage, "epoch": epoch, "step": 0, "seconds": 60.0, "loss": 0.5}
            Journal(tmp_path).add({**line, "val": metrics})
    test = corpus.split("test")
    said = find_mentions(test)
    ranks = np.where(np.arange(len(said)) % 3, 1.0, np.inf)
    skipped = {"a.jpg": "a.jpg: truncated"}
    found = GroundingResult(ranks, said.images, said.kinds, np.arange(len(said)), said.boxes, skipped=skipped)
    page = write_phrase_report(tmp_path, found, test, "test").read_text()
    assert 'id="phrases"' in page
    assert f"{found.metrics['phrase_r1']:.1f}" in page
    assert "phrases R@1" in page
    assert "image to text R@1" not in page
    assert "4.0 min" in page
    assert f"<dd>{len(said)}</dd>" in page
    assert "skipped a.jpg: truncated" in page
    others = (
        "recall",
        "best",
        "worst",
        "questions",
        "hard-negatives",
        "cross-retrieval",
        "batch-negatives",
        "attention",
    )
    for left_out in (*others, "word-importance", "score-distributions", "correlations"):
        assert f'id="{left_out}"' not in page


def test_a_run_that_was_not_trained_has_a_report_without_a_training(corpus, tmp_path):
    made = random_run(tmp_path / "made", corpus.texts)
    trained = Model.load(made, "cpu")
    encoded = trained.encode_corpus(corpus.split("test"), 0)
    assert hard_negatives_section(made, trained, corpus) is None
    page = write_report(made, encoded, evaluate_encoded([encoded]), "test").read_text()
    assert "Recall on val" not in page
    assert f"{evaluate_encoded([encoded]).metrics.rsum:.1f}" in page
