"""`diptych mine` as people use it."""

import os
import shutil
import signal

import numpy as np
import pytest

from diptych.data.open import open_corpus
from diptych.mining import lists as mined
from diptych.mining import score_pass
from diptych.mining.lists import HardNegativeLists, weights_digest
from diptych.model import Model

SCENES = "scenes:train=24,val=6,test=6,texts=2"


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


def test_the_hardest_negatives_of_a_run(run, invoke):
    result = invoke("mine", run, SCENES, "--top-texts", 5, "--top-images", 4, "--device", "cpu")
    assert result.exit_code == 0, result.output
    corpus = open_corpus(SCENES).split("train").matched()
    lists = HardNegativeLists.load(run / mined.LISTS_FILE)
    lists.check(corpus.digest(), weights_digest(run), run / mined.LISTS_FILE)
    encoded = Model.load(run, "cpu").encode_corpus(corpus)
    scores = (encoded.images @ encoded.texts.T).numpy()
    said = [
        {corpus.texts[text] for text in np.flatnonzero(corpus.text_groups == group)} for group in corpus.image_groups
    ]
    for image, texts in enumerate(said):
        scores[image, [text in texts for text in corpus.texts]] = -np.inf
    best = np.take_along_axis(scores, lists.texts, 1)
    np.testing.assert_allclose(best, -np.sort(-scores, axis=1)[:, :5], atol=1e-5)
    assert "lists of 24 images and 48 texts" in result.output
    assert corpus.texts[lists.texts[0, 0]] in result.output
    assert f"{lists.header.hardness.first_image:.3f}" in result.output
    assert "fewer negatives" not in result.output
    assert "is not what" not in result.output


def test_too_few_negatives_are_reported(run, tmp_path, invoke):
    into = tmp_path / "elsewhere" / "val.safetensors"
    result = invoke("mine", run, SCENES, "--split", "val", "--into", into)
    assert result.exit_code == 0, result.output
    assert "fewer negatives than requested" in result.stderr
    lists = HardNegativeLists.load(into)
    assert lists.header.splits == ("val",)
    assert lists.texts.shape == (6, 12)


def test_several_splits_are_mined_as_one(run, invoke):
    assert invoke("mine", run, SCENES, "--split", "train", "--split", "val").exit_code == 0
    assert HardNegativeLists.load(run / mined.LISTS_FILE).texts.shape == (30, 60)


def test_existing_lists_are_not_computed_again(run, monkeypatch, invoke):
    first = invoke("mine", run, SCENES)
    monkeypatch.setattr(Model, "encode_images", None)
    assert invoke("mine", run, SCENES).stdout == first.stdout


def test_after_an_interrupt_the_same_command_continues(run, monkeypatch, invoke):
    offer, offered = score_pass.TopScores.offer, []

    def interrupted(*given):
        if not offered:  # a second Ctrl-C would stop at once
            os.kill(os.getpid(), signal.SIGINT)
        offered.append(given)
        return offer(*given)

    with monkeypatch.context() as patch:
        patch.setattr(score_pass.TopScores, "offer", interrupted)
        result = invoke("mine", run, SCENES)
    assert result.exit_code == 130
    assert "run the same command again" in result.stderr
    assert (run / f"{mined.LISTS_FILE}.partial").is_file()
    assert invoke("mine", run, SCENES).exit_code == 0
    assert not (run / f"{mined.LISTS_FILE}.partial").exists()


def test_other_data_than_that_of_the_training_is_reported(run, invoke):
    result = invoke("mine", run, "scenes:train=20,val=6,test=6,texts=2")
    assert result.exit_code == 0
    assert "was trained on other data" in result.stderr


def test_errors_are_one_line(run, tmp_path, refused):
    assert "no such run" in refused("mine", tmp_path / "nothing", SCENES)
    assert "no split 'trian'; did you mean 'train'?" in refused("mine", run, SCENES, "--split", "trian")
    assert "one group; there are no negatives" in refused("mine", run, "scenes:train=1,val=6,test=6,texts=2")
    weights = run / "best" / "weights.safetensors"
    before = weights.read_bytes()
    assert "not a file of lists" in refused("mine", run, SCENES, "--into", weights)
    assert weights.read_bytes() == before


def test_help_has_examples(invoke):
    assert "diptych mine runs/first scenes" in invoke("mine", "--help").output


def test_a_run_on_phrases_mines_as_any_other(phrase_runs, phrase_scenes, phrase_backbone, tmp_path, invoke):
    file = tmp_path / "lists.safetensors"
    assert invoke("mine", phrase_runs[0], phrase_scenes, "--into", file, "--device", "cpu").exit_code == 0
    assert len(HardNegativeLists.load(file).texts) == 8
