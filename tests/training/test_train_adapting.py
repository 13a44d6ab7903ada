"""Adapting a trained model: residual heads, low-rank factors, the last blocks, interpolation, lists of the start."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from diptych.data.formats.scenes import make_scenes
from diptych.errors import RecipeError, RunError
from diptych.evaluation.runs import validation_metrics
from diptych.mining.lists import HardNegativeLists
from diptych.model import Model
from diptych.models.lora import LowRank
from diptych.models.towers import pretrained
from diptych.training.engine import interpolation as interpolation_module
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.backbones import LayeredBackbone
from support.callbacks import RecordingCallback, press_ctrl_c
from support.corpora import with_features
from support.recipes import BASE
from support.runs import assert_same_run, epoch_lines, journal, last_weights, load_weights

MODEL = """
[model]
name = "vse"
joint = 16
image = { name = "features" }
text = { name = "words", word = 8, hidden = 16, dropout = 0.2 }
"""
ADAPT = """
[[stage]]
start = "START"
include_start = true
epochs = 2
objective = { name = "contrastive", temperature = 0.1 }
batches = { size = 16 }
optimiser = { rate = 0.005 }
"""
LORA = "stage.1.lora={rank=2, alpha=4}"
SHARES = ("stage.1.interpolate=[0.0, 0.5, 1.0]", "stage.1.include_start=false")  # so that an epoch is the best
HEADS = ("stage.1.head={residual=true, hidden=12}", "stage.1.trainable=['head_images', 'head_texts']")
OFFLINE = "stage.1.offline={lists='start', top_texts=10, top_images=5}"


@pytest.fixture(scope="module")
def corpus():
    return with_features(make_scenes(train=24, val=6, test=6, texts=2))


@pytest.fixture(scope="module")
def base(recipes, corpus, tmp_path_factory):
    """A run to start from."""
    return train(recipes(MODEL + BASE), corpus, tmp_path_factory.mktemp("runs") / "base", device="cpu", workers=0)


@pytest.fixture(scope="module")
def adapt(recipes, base, corpus):
    """Trains a recipe that starts from the base, with changes."""

    def adapt(into, *changes, start=base, **options):
        recipe = recipes(ADAPT.replace("START", str(start)), *changes)
        return train(recipe, corpus, into, device="cpu", workers=0, **options)

    return adapt


INTERPOLATED = ("interpolated", "interpolated heads", "interpolated lora", "out of patience")
WAYS = {
    "heads": HEADS,
    "lora": (LORA,),
    "lora of a part": ("stage.1.lora={rank=2, parts=['text']}", "stage.1.trainable=['project']"),
    "interpolated": SHARES,
    "interpolated heads": (*HEADS, *SHARES),
    "interpolated lora": (LORA, *SHARES),
    "negatives of the start": ("stage.1.objective={name='quintuplet'}", OFFLINE),
    "out of patience": (*SHARES, "stage.1.patience=1", "stage.1.epochs=9", "stage.1.optimiser.rate=1.0"),
}


@pytest.fixture(scope="module")
def adapted(adapt, tmp_path_factory):
    """A run of each way to adapt; trained when first asked for."""
    folder, runs = tmp_path_factory.mktemp("adapted"), {}

    def run(way):
        if way not in runs:
            runs[way] = adapt(folder / way.replace(" ", "-"), *WAYS[way])
        return runs[way]

    return run


@pytest.mark.parametrize("way", [way for way in WAYS if way not in INTERPOLATED])
def test_what_is_measured_first_is_the_base(way, adapted, base):
    best = json.loads((base / "best" / "metrics.json").read_text())
    assert epoch_lines(adapted(way))[0]["val"] == pytest.approx(best["val"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", [1, 4], ids=["first epoch", "second epoch"])
def test_an_interrupted_run_ends_bit_for_bit_like_one_that_was_not(way, at, adapted, adapt, tmp_path):
    whole, callback = adapted(way), RecordingCallback((at,))
    with pytest.raises(KeyboardInterrupt):
        adapt(tmp_path / "run", *WAYS[way], callbacks=[callback])
    adapt(tmp_path / "run", *WAYS[way], resume=True, callbacks=[callback])
    assert_same_run(whole, tmp_path / "run")
    assert (whole / "best/metrics.json").read_bytes() == (tmp_path / "run/best/metrics.json").read_bytes()


@pytest.mark.parametrize("way", WAYS)
def test_the_run_opens_like_any_other(way, adapted, base):
    matcher = Model.load(adapted(way), "cpu").matcher
    assert not any(isinstance(part, LowRank) for part in matcher.modules())
    names = {name.removeprefix("base.") for name in load_weights(adapted(way)) if not name.startswith("head_")}
    assert names == load_weights(base).keys()


def test_only_the_factors_and_the_named_parts_are_trained(adapted):
    for way, plain in (("lora", set()), ("lora of a part", {"project.weight", "project.bias"})):
        tensors = load_file(snapshot_path(adapted(way)))
        trained = {name.removeprefix("optimiser.") for name in tensors if name.endswith(".exp_avg")}
        factors = {name for name in trained if "parametrizations" in name}
        assert {name.removesuffix(".exp_avg") for name in trained - factors} == plain
        assert all(name.endswith((".0.a.exp_avg", ".0.b.exp_avg")) for name in factors)
        owners = {name.partition(".parametrizations")[0] for name in factors}
        assert owners == {"text.layers.0", "text.layers.3"} | ({"project"} if way == "lora" else set())


def test_the_best_weights_are_the_merged_ones(adapt, base, tmp_path):
    run = adapt(tmp_path, LORA, "stage.1.include_start=false", "stage.1.epochs=1")
    before, best, last = load_weights(base), load_weights(run), last_weights(run)
    for name in ("project", "text.layers.0", "text.layers.3"):
        original, a, b = (last[f"{name}.parametrizations.weight.{part}"] for part in ("original", "0.a", "0.b"))
        assert torch.equal(original, before[f"{name}.weight"])
        torch.testing.assert_close(best[f"{name}.weight"], original + 2 * b @ a, rtol=0, atol=1e-6)
        assert not torch.equal(best[f"{name}.weight"], original)
    for name in ("project.bias", "text.words.weight", "text.layers.0.bias"):
        assert torch.equal(best[name], before[name])


def test_a_stage_after_low_rank_factors_trains_what_they_became(recipes, corpus, base, tmp_path):
    second = ADAPT.replace('"START"', '"previous"').replace("include_start = true\n", "")
    changes = (
        LORA,
        "stage.1.epochs=1",
        "stage.2.epochs=1",
        "stage.2.optimiser.rate=1e-12",
        "stage.2.trainable=['text']",
    )
    recipe = recipes(ADAPT.replace("START", str(base)) + second, *changes)
    run = train(recipe, corpus, tmp_path, device="cpu", workers=0)
    first, last = load_weights(run, "stage-1"), last_weights(run)
    assert first.keys() == last.keys()
    for name, value in first.items():
        torch.testing.assert_close(last[name], value, rtol=0, atol=1e-6)


@pytest.fixture
def photos(monkeypatch, recipes, tmp_path):
    """Drawn scenes, a folder of stores, and a run whose backbone has layers, which is frozen."""
    for name in ("build_backbone", "load_backbone"):
        monkeypatch.setattr(pretrained, name, lambda *_: LayeredBackbone().eval())
    scenes = make_scenes(train=6, val=3, test=1, texts=1)
    model = MODEL.replace('"features"', '"backbone"')
    recipe = recipes(model + BASE, "stage.1.trainable=['project', 'text']", "stage.1.epochs=1")
    run = train(recipe, scenes, tmp_path / "base", device="cpu", workers=0, features=tmp_path / "stores")
    assert list((tmp_path / "stores").iterdir())
    return scenes, run


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        (("stage.1.lora={rank=2, parts=['text']}",), None),
        (("stage.1.lora={rank=2, parts=['image']}",), {f"blocks.{n}.{m}" for n in range(3) for m in (0, 2)}),
        ((LORA,), {f"blocks.{n}.{m}" for n in range(3) for m in (0, 2)}),
        (("stage.1.trainable=['last:1']",), {"blocks.2.0", "blocks.2.2", "norm"}),
        (("stage.1.trainable=['last:2']",), {*(f"blocks.{n}.{m}" for n in (1, 2) for m in (0, 2)), "norm"}),
        (("stage.1.lora={rank=2, parts=['last:1']}",), {"blocks.2.0", "blocks.2.2"}),
    ],
    ids=["factors of texts", "of images", "of all", "last block", "last two blocks", "factors of the last block"],
)
def test_features_are_stored_only_while_the_backbone_is_frozen(changes, moved, photos, recipes, tmp_path):
    scenes, start = photos
    callback, stores = RecordingCallback(), tmp_path / "others"
    more = ("stage.1.include_start=false", "stage.1.epochs=1", *changes)
    recipe = recipes(ADAPT.replace("START", str(start)), *more)
    run = train(recipe, scenes, tmp_path / "run", device="cpu", workers=0, features=stores, callbacks=[callback])
    if "last" in str(changes):
        (told,) = callback.messages_with("last:")
        assert told.endswith("image.backbone.blocks.2, image.backbone.norm, text, project, project_text")
    is_stored = any(what == "features" for what, _, _ in callback.preparations)
    assert is_stored == stores.exists() == (moved is None)
    before, after = load_weights(start), load_weights(run)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    of_images = {name.rpartition(".")[0].removeprefix("image.backbone.") for name in changed if "backbone" in name}
    assert of_images == (moved or set())
    assert any(name.startswith("text.") for name in changed) == ("image" not in str(changes))


def interpolation(run):
    (line,) = (line for line in journal(run) if line["event"] == "interpolation")
    return line


@pytest.mark.parametrize("way", INTERPOLATED)
def test_the_best_share_is_kept_and_told(way, adapted, base, corpus):
    run = adapted(way)
    assert len(epoch_lines(run)) == 2  # also if patience has ended nine epochs after two
    line = interpolation(run)
    shares = {each["share"]: each["val"] for each in line["measured"]}
    assert list(shares) == [0.0, 0.5, 1.0]
    assert shares[0.0] == pytest.approx(json.loads((base / "best" / "metrics.json").read_text())["val"])
    assert shares[1.0] == pytest.approx(max((line["val"] for line in epoch_lines(run)), key=lambda val: val["rsum"]))
    kept = max(shares, key=lambda share: (shares[share]["rsum"], -share))
    assert line["kept"] == kept
    best = json.loads((run / "best" / "metrics.json").read_text())
    assert best["val"] == shares[kept]
    assert best["interpolation"]["kept"] == kept
    encoded = Model.load(run, "cpu").encode_corpus(corpus.split("val"))
    assert validation_metrics(encoded) == pytest.approx(shares[kept])


def test_each_weight_lies_between_before_and_after(adapt, base, tmp_path):
    options = ("stage.1.include_start=false", "stage.1.epochs=1")
    after = load_weights(adapt(tmp_path / "after", *options))
    run = adapt(tmp_path / "between", *options, "stage.1.interpolate=[0.25]")
    before, between = load_weights(base), load_weights(run)
    assert before.keys() == between.keys() == load_weights(run, "start").keys()
    for name, start in before.items():
        torch.testing.assert_close(between[name], 0.75 * start + 0.25 * after[name], rtol=0, atol=1e-6)
        assert torch.equal(load_weights(run, "start")[name], start)
    assert not torch.equal(before["project.weight"], between["project.weight"])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("saves_before_the_end", [0, 1], ids=["snapshot", "best weights"])
def test_kill_9_while_the_interpolation_is_saved(saves_before_the_end, adapted, adapt, tmp_path, kill_in_a_save):
    whole, ways = adapted("interpolated lora"), WAYS["interpolated lora"]
    # start, first snapshot, then best and snapshot of each epoch, as far as it is the best; at last both once more
    epochs = sum(1 + line["best"] for line in epoch_lines(whole))
    kill_in_a_save(2 + epochs + 2 - saves_before_the_end, lambda: adapt(tmp_path / "run", *ways))
    assert list((tmp_path / "run").rglob(".*.tmp")), "the kill did not hit a save: this test would prove nothing"
    assert len(epoch_lines(tmp_path / "run")) == 2
    adapt(tmp_path / "run", *ways, resume=True)
    assert_same_run(whole, tmp_path / "run")


def test_ctrl_c_while_interpolations_are_measured(adapted, adapt, tmp_path, monkeypatch):
    whole, ways, measured = adapted("interpolated lora"), WAYS["interpolated lora"], []
    validate = interpolation_module._validate

    def interrupted(context, data):
        measured.append(validate(context, data))
        if len(measured) == 2:
            press_ctrl_c()
        return measured[-1]

    monkeypatch.setattr(interpolation_module, "_validate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        adapt(tmp_path / "run", *ways)
    assert not [line for line in journal(tmp_path / "run") if line["event"] == "interpolation"]
    adapt(tmp_path / "run", *ways, resume=True)
    assert_same_run(whole, tmp_path / "run")


def test_a_start_that_nothing_beats_stays_as_it_is(adapt, base, tmp_path):
    callback = RecordingCallback()
    changes = ("stage.1.interpolate=[0.5]", "stage.1.optimiser.rate=1e-12", "stage.1.epochs=1")
    run = adapt(tmp_path, *changes, callbacks=[callback])
    assert callback.messages_with("the best snapshot is what the stage started from: nothing to interpolate")
    before, best = load_weights(base), load_weights(run)
    assert all(torch.equal(best[name], value) for name, value in before.items())
    assert not [line for line in journal(run) if line["event"] == "interpolation"]


def test_a_later_stage_interpolates_with_what_it_started_from(recipes, corpus, base, tmp_path):
    stages = ADAPT.replace("START", str(base)) + ADAPT.replace("START", "previous")
    changes = [f"stage.{number}.{key}" for number in (1, 2) for key in ("epochs=1", "include_start=false")]
    changes += ["stage.1.interpolate=[0.5]", "stage.2.interpolate=[0.25]", "stage.2.objective.temperature=0.2"]
    run = train(recipes(stages, *changes), corpus, tmp_path, device="cpu", workers=0)
    first, start = load_weights(run, "stage-1"), load_weights(run, "start")
    assert all(torch.equal(start[name], value) for name, value in first.items())
    assert [line["kept"] for line in journal(run) if line["event"] == "interpolation"] == [0.5, 0.25]


def test_the_start_mines_its_own_negatives(adapted, base, corpus):
    run = adapted("negatives of the start")
    mined = HardNegativeLists.load(run / "start" / "lists.safetensors")
    assert mined.texts.shape == (24, 10)
    train_part = corpus.split("train").matched()
    encoded = Model.load(base, "cpu").encode_corpus(train_part)
    scores = encoded.images @ encoded.texts.t()
    scores[torch.from_numpy(train_part.image_groups)[:, None] == torch.from_numpy(train_part.text_groups)] = -9
    hardest = {train_part.texts[text] for text in mined.texts[:, 0]}
    assert hardest == {train_part.texts[text] for text in scores.argmax(1)}


def test_a_resumed_run_needs_its_start_no_longer(adapted, adapt, base, tmp_path):
    ways = (*WAYS["negatives of the start"], *SHARES)
    whole = adapt(tmp_path / "whole", *ways)
    start = shutil.copytree(base, tmp_path / "start")
    with pytest.raises(KeyboardInterrupt):
        adapt(tmp_path / "run", *ways, start=start, callbacks=[RecordingCallback((2,))])
    shutil.rmtree(start)
    adapt(tmp_path / "run", *ways, start=start, resume=True)
    one, other = (load_file(snapshot_path(run)) for run in (whole, tmp_path / "run"))
    assert all(torch.equal(one[name], value) for name, value in other.items())
    assert (tmp_path / "run/best/weights.safetensors").read_bytes() == (whole / "best/weights.safetensors").read_bytes()


def test_stopped_while_the_start_mines_leaves_the_folder_free(adapted, adapt, tmp_path):
    ways = WAYS["negatives of the start"]
    with pytest.raises(KeyboardInterrupt):
        adapt(tmp_path / "run", *ways, callbacks=[RecordingCallback(preparation="mining")])
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {".lock"}
    adapt(tmp_path / "run", *ways)
    assert_same_run(adapted("negatives of the start"), tmp_path / "run")


def test_what_remains_of_another_run_is_named(adapt, tmp_path):
    (tmp_path / "start").mkdir()
    with pytest.raises(RunError, match="holds start of another run"):
        adapt(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["stage.1.lora={rank=9}"], "stage.1.lora.rank = 9: text.layers.0.weight is 16 x 8; use at most 8"),
        (["stage.1.lora={parts=['text.words']}"], "stage.1.lora.parts: 'text.words' has no frozen weight matrix"),
        (["stage.1.lora={parts=['txt']}"], "stage.1.lora.parts: the model has no part 'txt'; did you mean 'text'"),
        (["stage.1.lora={parts=[]}"], "stage.1.lora.parts = []: "),
        ([LORA, "stage.1.trainable=['all']"], "'all' has no frozen weight matrix"),
        (
            ["stage.1.trainable=['last:2']"],
            "stage.1.trainable: 'last:2': no tower of the model is a sequence of blocks",
        ),
        (["stage.1.interpolate=[]"], "stage.1.interpolate = []: name different shares"),
        (["stage.1.interpolate=[0.5, 0.5]"], "name different shares"),
        (["stage.1.interpolate=[1.5]"], "stage.1.interpolate.1 = 1.5: "),
        (
            ["stage.1.head={residual=true, output=8}"],
            "stage.1.head.output = 8: a residual head adds to vectors of size 16",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(changes, words, adapt, tmp_path):
    with pytest.raises(RecipeError) as caught:
        adapt(tmp_path / "run", *changes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_low_rank_survives_a_recipe(recipes, tmp_path):
    recipe = recipes(ADAPT, LORA, "stage.1.interpolate=[1.0, 0.5]")
    assert recipe.stage[0].trainable == ()
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    assert load_recipe(str(tmp_path / "recipe.toml")) == recipe
    assert recipes(ADAPT, LORA, "stage.1.trainable=['project']").stage[0].trainable == ("project",)
