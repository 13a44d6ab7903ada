import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.data.phrases import find_mentions
from diptych.errors import ScoreError
from diptych.evaluation.analyses.batch_negatives import measured_misses
from diptych.evaluation.localisation.phrase_metrics import GroundingResult
from diptych.evaluation.runs import encoded_score, evaluate_encoded
from diptych.index.entries import Entry, Hit
from diptych.models.encodings import Encoded
from diptych.models.trained import Trained
from diptych.report.run_report import Examples, write_phrase_report, write_report
from diptych.report.sections.batch_negatives import sampling_rows
from diptych.report.sections.hard_negatives import hard_negatives
from diptych.training.engine.journal import Journal
from diptych.training.recipe_loader import load_recipe, trained_on_phrases
from diptych.training.train import train

TINY = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "model.image.width=2", "model.image.pixels=32"]


@pytest.fixture(scope="module")
def corpus():
    return make_scenes(train=12, val=6, test=8, texts=2)


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    return train(load_recipe("scenes", [*TINY, "stage.2.epochs=2"]), corpus, tmp_path_factory.mktemp("run") / "<b>run")


@pytest.fixture(scope="module")
def encoded(run, corpus):
    return Trained.open(run, "cpu").encode(corpus.split("test"))


def test_the_report_shows_what_the_run_left(run, corpus, encoded):
    result = evaluate_encoded([encoded])
    trained = Trained.open(run, "cpu")
    found = [Hit(Entry(id, "image", key, id), 0.5) for id, key in enumerate(encoded.corpus.image_ids[:3], 1)]
    asked = [("two red circles", found)]
    negatives = hard_negatives(run, trained, corpus)
    page = write_report(run, encoded, result, "test", asked, negatives).read_text()
    assert "&lt;b&gt;run" in page
    assert "<b>run" not in page
    assert "two red circles" in page
    assert f"{result.metrics.rsum:.1f}" in page
    assert "Recall on val" in page
    assert "Training loss, stage 2" in page
    assert "Training loss, stage 1" not in page  # one epoch is no curve
    assert ">stage 2</text>" in page  # where it begins
    assert "negatives = " in page  # the recipe
    assert "drawn as one batch" in page
    assert page.count('class="column"') == 8  # the intervals of the cross-retrieval rank
    assert 'id="attention"' not in page  # the model has none
    assert page.count('class="area"') == 2  # the scores of right and wrong pairs
    assert 'id="words"' in page
    assert 'id="correlation"' not in page  # the network began at random
    assert "Class error" not in page
    assert negatives.groups[0].cards[0].beside[1].text in page


def test_what_is_not_given_is_left_out(run, encoded):
    page = write_report(run, encoded, evaluate_encoded([encoded]), "test").read_text()
    assert "Hardest negatives" not in page
    assert "How hard" not in page  # the split does not fill a batch


def test_class_errors_are_drawn_where_the_journal_has_them(run, encoded, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    told = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    told = [
        line | ({"class_error": {"visual": 80.0, "textual": 95.5}} if line["event"] == "epoch" else {}) for line in told
    ]
    (tmp_path / "copy" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    page = write_report(tmp_path / "copy", encoded, evaluate_encoded([encoded]), "test").read_text()
    assert "Class error in training: images goes from 80 to 80; texts goes from 95.5 to 95.5" in page


def test_a_model_of_sets_on_stored_features_has_all_sections(tmp_path):
    corpus = make_scenes(train=8, val=4, test=6, texts=2)
    values = np.random.default_rng(0).normal(size=(len(corpus.image_ids), 3, 5)).astype(np.float32)
    corpus = replace(corpus, features=Features([values]))
    recipe = load_recipe("scan-t2i", ["model.joint=8", "model.text.word=4", "stage.1.epochs=1"])
    run = train(recipe, corpus, tmp_path / "scan", device="cpu", workers=0)
    encoded = Trained.open(run, "cpu").encode(corpus.split("test"))
    page = write_report(run, encoded, evaluate_encoded([encoded]), "test").read_text()
    for section in ("words", "separation", "correlation"):
        assert f'id="{section}"' in page
    assert "by the features of the corpus" in page


def test_sampling_is_measured_with_the_runs_own_scores(encoded):
    rows = sampling_rows(encoded_score(encoded), encoded.corpus, 4)
    assert [row.direction for row in rows[:2]] == ["image to text", "text to image"]
    for row in rows:
        score, groups = encoded_score(encoded), (encoded.corpus.image_groups, encoded.corpus.text_groups)
        found = measured_misses(score, *groups, batch=4, percentile=row.percentile)
        side = found.image_to_text if row.direction == "image to text" else found.text_to_image
        assert (row.measured.value, row.measured.interval) == (side.share, side.interval)
        assert row.predicted == pytest.approx(row.percentile**3)


def test_examples_are_the_extremes_and_mark_what_is_right(encoded, corpus):
    result = evaluate_encoded([encoded])
    examples = Examples(encoded, encoded.corpus, result)
    for best, end in ((True, min), (False, max)):
        chosen = examples.chosen(best)
        texts = [example for example in chosen if example.direction == "text to image"]
        assert texts[0].rank == end(result.folds[0].texts)
        row = encoded.corpus.texts.index(texts[0].query_text)
        own = encoded.corpus.image_ids[int(np.argmax(encoded.corpus.image_groups == encoded.corpus.text_groups[row]))]
        assert texts[0].truth.caption == own
        assert texts[0].truth.right
        for answer in texts[0].answers:
            assert answer.right == (answer.caption == own)
        groups = [encoded.corpus.text_groups[encoded.corpus.texts.index(example.query_text)] for example in texts]
        assert len(set(groups)) == len(groups)


def test_what_a_report_needs(run, encoded, tmp_path):
    with pytest.raises(ScoreError, match="without folds"):
        write_report(run, encoded, evaluate_encoded([encoded], folds=2), "test")
    encoded.save(tmp_path / "e.safetensors")
    loaded = Encoded.load(tmp_path / "e.safetensors")
    with pytest.raises(ScoreError, match="needs the corpus"):
        write_report(run, loaded, evaluate_encoded([loaded]), "test")


def test_a_run_trained_on_phrases_tells_of_phrases_alone(run, corpus, tmp_path):
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
    others = ("recall", "best", "worst", "questions", "negatives", "cross", "sampling", "attention")
    for left_out in (*others, "words", "separation", "correlation"):
        assert f'id="{left_out}"' not in page
