"""What training and opening a run refuse, in one line, and what they leave as it is."""

import json
import shutil

import pytest
import torch

from diptych.data.formats.scenes import make_scenes
from diptych.errors import DataError, RecipeError, RunError
from diptych.model import Model
from diptych.models.storage import save_tensors
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train

SMALL = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "stage.1.batches.size=16"]
TINY = [*SMALL, "model.image.width=2", "model.image.pixels=32", "stage.2.batches.size=16", "stage.2.epochs=2"]


def test_refusals(whole, corpus, recipe, tmp_path):
    with pytest.raises(RunError, match="already holds a run; go on with --resume"):
        train(recipe, corpus, whole)
    with pytest.raises(RunError, match="no run to resume"):
        train(recipe, corpus, tmp_path / "none", resume=True)
    with pytest.raises(RunError, match="another recipe"):
        train(load_recipe("scenes", [*TINY, "seed=5"]), corpus, whole, resume=True)
    with pytest.raises(RunError, match="made with other data"):
        train(recipe, make_scenes(train=24, val=6, test=6, texts=2, seed=9), whole, resume=True)
    with pytest.raises(RecipeError, match=r"stage\.1\.select = 'rsun'.*did you mean 'rsum'"):
        train(load_recipe("scenes", [*TINY, "stage.1.select=rsun"]), corpus, tmp_path / "select")
    with pytest.raises(RecipeError, match="this is the first stage"):
        train(load_recipe("scenes", [*TINY, "stage.1.start=previous"]), corpus, tmp_path / "start")
    with pytest.raises(DataError, match="the val split is empty"):
        train(recipe, corpus.split("train", "test"), tmp_path / "val")
    with pytest.raises(DataError, match="reads stored features"):
        train(load_recipe("vsepp", [*SMALL, "model.image={name='features'}"]), corpus, tmp_path / "features")
    assert not (tmp_path / "select").exists()
    assert not (tmp_path / "val").exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: torch.save({"weights": torch.ones(2)}, path), "pickled checkpoint"),
        (lambda path: path.write_bytes(b"\x80\x04\x95rest"), "pickled checkpoint"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "damaged or truncated"),
        (lambda path: path.write_bytes(path.read_bytes()[:20]), "damaged or truncated"),
        (lambda path: path.write_bytes(b""), "damaged or truncated"),
        (lambda path: path.unlink(), "no such file"),
        (lambda path: save_tensors(path, {"a": torch.ones(1)}, {}), "another vocabulary"),
    ],
)
def test_checkpoints_that_are_refused(damage, words, whole, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    path = run / "best" / "weights.safetensors"
    damage(path)
    with pytest.raises(RunError) as raised:
        _ = Model.load(run).matcher
    assert words in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_checkpoints_of_another_shape_or_vocabulary_are_refused(whole, corpus, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    trained = Model.load(run, "cpu")
    path = run / "best" / "weights.safetensors"
    about = {"model": trained.matcher.settings.model_dump(mode="json"), "vocabulary": trained.vocabulary.digest}
    weights = trained.matcher.state_dict()
    save_tensors(path, {**weights, "project.bias": torch.zeros(3)}, about)
    with pytest.raises(RunError, match=r"project\.bias is \(3,\) in the file, \(16,\) in the model"):
        _ = Model.load(run).matcher
    save_tensors(path, {name: value for name, value in weights.items() if name != "project.bias"}, about)
    with pytest.raises(RunError, match=r"the model has project\.bias, the file has not"):
        _ = Model.load(run).matcher
    save_tensors(path, {**weights, "extra": torch.zeros(1)}, about)
    with pytest.raises(RunError, match="the file has extra, the model has not"):
        _ = Model.load(run).matcher
    save_tensors(path, weights, about)
    vocabulary = json.loads((run / "vocabulary.json").read_text())
    vocabulary["words"][0] = "other"
    (run / "vocabulary.json").write_text(json.dumps(vocabulary))
    with pytest.raises(RunError, match="another vocabulary"):
        _ = Model.load(run).matcher
    (run / "vocabulary.json").unlink()
    with pytest.raises(RunError, match=r"not a run: it has no vocabulary\.json"):
        _ = Model.load(run).matcher


def test_a_mistake_leaves_no_folder_behind(corpus, tmp_path):
    wrong = [
        ("stage.2.trainable=['txt']", RecipeError, r"stage\.2\.trainable: the model has no part 'txt'"),
        ("stage.2.start=nowhere", DataError, "nowhere"),
        ("text.vectors=nowhere.txt", DataError, r"nowhere\.txt"),
        ("text.threshold=100000", DataError, "100000"),
    ]
    for number, (change, error, words) in enumerate(wrong):
        folder = tmp_path / str(number)
        with pytest.raises(error, match=words):
            train(load_recipe("scenes", [*TINY, change]), corpus, folder, device="cpu")
        assert not folder.exists()


def test_what_cannot_be_resumed_is_left_as_it_is(whole, corpus, recipe, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "last")
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match="last/ is missing"):
        train(recipe, corpus, run, resume=True)
    (run / "recipe.toml").unlink()
    with pytest.raises(RunError, match="holds best of another run"):
        train(recipe, corpus, run)
    assert (run / "metrics.jsonl").read_bytes() == before
    assert Model.load(run, "cpu").matcher is not None


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("scenes", [*TINY, "stage.1.batches.chunk=4"], r"^stage\.1\.batches\.chunk: 'instance' needs all scores"),
        (
            "phrases-scenes",
            ["stage.1.batches={size=16}"],
            r"^stage\.1\.objective: 'instance' makes each group of images and texts a class; phrases have no groups",
        ),
        ("scan-t2i-small", [], r"^stage\.1\.objective: 'instance' classifies vectors; use an embedding model"),
    ],
    ids=["chunk", "phrases", "sets"],
)
def test_what_a_classifier_does_not_go_with(name, changes, words, corpus, tmp_path):
    recipe = load_recipe(name, [*changes, "stage.1.objective={name='instance'}"])
    with pytest.raises(RecipeError, match=words) as raised:
        train(recipe, corpus, tmp_path / "run", device="cpu")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "optimiser",
    ["{name='adam', nesterov=true}", "{nesterov=true}", "{name='sgd', momentum=0.0, nesterov=true}"],
    ids=["adam", "default", "no momentum"],
)
def test_nesterov_needs_the_momentum_of_sgd(optimiser):
    with pytest.raises(RecipeError, match=r"stage\.1\.optimiser\.nesterov = True: is only for name = 'sgd' with a mom"):
        load_recipe("scenes", [*TINY, f"stage.1.optimiser={optimiser}"])
    for fine in ("{name='sgd', nesterov=true}", "{name='sgd', momentum=0.5, nesterov=true}", "{nesterov=false}"):
        load_recipe("scenes", [*TINY, f"stage.1.optimiser={fine}"])
