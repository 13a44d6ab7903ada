"""Training from shards: it learns what training from the same corpus does, resumes bit for bit, and survives damage."""

import json

import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.data.open import open_corpus
from diptych.data.shards import stream as reading
from diptych.data.shards.writing import write_shards
from diptych.errors import DataError, RunError
from diptych.text.tokenisers.stored import load_tokeniser
from diptych.text.vocabulary import Vocabulary
from diptych.training.engine.callbacks import Callback
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.recipes import TINY
from support.runs import assert_same_run

SMALL = [*TINY, "stage.1.epochs=2", "stage.1.batches.size=8", "stage.1.batches.buffer=12", "text.threshold=1"]
OPTIONS = {"device": "cpu", "workers": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    write_shards(make_scenes(train=40, val=6, test=6, texts=2), folder, 8)
    return folder


@pytest.fixture(scope="module")
def recipe():
    return load_recipe("scenes", SMALL)


@pytest.fixture(scope="module")
def whole(folder, recipe, tmp_path_factory):
    return train(recipe, str(folder), tmp_path_factory.mktemp("runs") / "whole", **OPTIONS)


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_it_trains_on_every_sample_and_measures_val(whole):
    epochs = [line for line in lines(whole) if line["event"] == "epoch"]
    assert [epoch["step"] for epoch in epochs] == [5, 5, 3, 3]
    assert all(0 < epoch["val"]["rsum"] <= 600 for epoch in epochs)
    assert epochs[1]["loss"] < epochs[0]["loss"]


def test_the_words_are_those_of_all_training_texts(whole, folder):
    texts = list(open_corpus(folder).stream(["train"]).texts())
    assert len(texts) == 80
    assert load_tokeniser(whole).digest == Vocabulary.from_texts(texts, 1).digest


def stopped(recipe, folder, run, step):
    """Train until Ctrl-C is pressed in a step."""
    with pytest.raises(KeyboardInterrupt):
        train(recipe, str(folder), run, callbacks=[RecordingCallback([step])], **OPTIONS)


@pytest.mark.parametrize("at", [1, 4, 5, 8, 11])
def test_it_resumes_bit_for_bit_at_any_step(at, whole, folder, recipe, tmp_path):
    stopped(recipe, folder, tmp_path, at)
    train(recipe, str(folder), tmp_path, resume=True, device="cpu", workers=0)
    assert_same_run(tmp_path, whole)


def test_damaged_shards_are_named_once_and_training_goes_on(folder, recipe, tmp_path):
    own = tmp_path / "shards"
    own.mkdir()
    for file in folder.iterdir():
        (own / file.name).write_bytes(file.read_bytes())
    (own / "train-000001.tar").unlink()
    cut = own / "train-000003.tar"
    cut.write_bytes(cut.read_bytes()[:-9000])
    train(recipe, str(own), tmp_path / "run", **OPTIONS)
    skipped = [line for line in lines(tmp_path / "run") if line["event"] == "skipped"]
    for stage in (1, 2):
        of_stage = {line["image"]: line["message"] for line in skipped if line["stage"] == stage}
        assert len(of_stage) == sum(line["stage"] == stage for line in skipped) == 2
        assert of_stage[str(own / "train-000001.tar")].endswith("missing; all of its 8 samples are left out")
        assert "cut short" in of_stage[str(cut)]
        assert of_stage[str(cut)].endswith("of its 8 samples are left out")
    assert len([line for line in lines(tmp_path / "run") if line["event"] == "epoch"]) == 4


def test_a_shard_that_is_lost_between_two_epochs_does_not_end_a_training(folder, recipe, tmp_path):
    own = tmp_path / "shards"
    own.mkdir()
    for file in folder.iterdir():
        (own / file.name).write_bytes(file.read_bytes())
    stopped(recipe, own, tmp_path / "run", 6)
    (own / "train-000002.tar").unlink()
    train(recipe, str(own), tmp_path / "run", resume=True, **OPTIONS)
    assert any("train-000002.tar" in line.get("image", "") for line in lines(tmp_path / "run"))


def test_other_shards_are_other_data(folder, recipe, tmp_path):
    stopped(recipe, folder, tmp_path / "run", 2)
    write_shards(make_scenes(train=40, val=6, test=6, texts=2), tmp_path / "other", 20)
    with pytest.raises(RunError, match="data"):
        train(recipe, str(tmp_path / "other"), tmp_path / "run", resume=True, **OPTIONS)


def test_a_pickle_that_appears_ends_the_training_with_a_loadable_run(folder, recipe, tmp_path, monkeypatch):
    original = reading.read_samples

    def with_pickle(file, shard, *arguments, **options):
        if "train-000004" in shard and reading_images[0]:
            raise reading.RefusedError(f"{shard}: 'x.pth' is a pickle")
        return original(file, shard, *arguments, **options)

    reading_images = [False]
    monkeypatch.setattr(reading, "read_samples", with_pickle)

    class Later(Callback):
        def on_epoch_end(self, epoch):
            reading_images[0] = True

    with pytest.raises(DataError, match="is a pickle"):
        train(recipe, str(folder), tmp_path / "run", callbacks=[Later()], **OPTIONS)
    reading_images[0] = False
    monkeypatch.setattr(reading, "read_samples", original)
    train(recipe, str(folder), tmp_path / "run", resume=True, **OPTIONS)
