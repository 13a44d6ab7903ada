"""Training with offline negatives: two rounds in one recipe, a teacher's lists, what is refused, what a step scores."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.data.sampling.batch import PairBatch
from diptych.data.sampling.extras import Extras
from diptych.data.sampling.offline import OfflineNegatives
from diptych.errors import DataError, DiptychError, RecipeError, RunError
from diptych.mining.lists import HardNegativeLists, lists_file, weights_digest
from diptych.models.matchers.order import OrderSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.matchers.vsrn import VSRNSettings
from diptych.models.storage import load_tensors, save_tensors
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.extras import OfflineScores
from diptych.objectives.objective import Loss
from diptych.objectives.quintuplet import Quintuplet
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.engine.scoring import tokens_to_device
from diptych.training.engine.trainable import set_trainable
from diptych.training.needs.offline import Offline
from diptych.training.prepare import make_step
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback

MODEL = """
[model]
name = "vse"
joint = 8
text = { name = "words", word = 8, hidden = 8 }
image = { name = "features" }

[text]
threshold = 1
"""
ONLINE = """
[[stage]]
epochs = 1
objective = { name = "hinge", negatives = "sum" }
batches = { size = 16 }
optimiser = { rate = 0.005 }
"""
OFFLINE = """
[[stage]]
epochs = 2
objective = { name = "quintuplet" }
offline = { lists = "previous", top_texts = 20, top_images = 6 }
batches = { size = 16 }
optimiser = { rate = 0.005 }
"""


@pytest.fixture(scope="module")
def corpus():
    scenes = make_scenes(24, seed=2)
    rows = [np.asarray(picture.load().resize((2, 2))).reshape(-1) / 255 for picture in scenes.pictures]
    return replace(scenes, pictures=None, features=Features([np.array(rows, np.float32)]))


def recipe(folder, *parts, overrides=()):
    file = folder / "recipe.toml"
    file.write_text("".join(parts), encoding="utf-8")
    return load_recipe(str(file), overrides)


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return train(recipe(folder, MODEL, ONLINE, OFFLINE), corpus, folder / "run", device="cpu")


def test_the_best_of_the_first_round_mines_for_the_second(whole, corpus):
    lists = HardNegativeLists.load(lists_file(whole / "stage-1"))
    groups = corpus.split("train").matched()
    for image, row in enumerate(lists.texts):
        assert (groups.text_groups[row[row >= 0]] != groups.image_groups[image]).all()
    assert lists.texts.shape[1] == 20
    assert lists.images.shape[1] == 6


@pytest.mark.parametrize(
    "stop", [{"preparation": "mining"}, {"at": (6,)}, {"at": (9,)}], ids=["mining", "step 6", "step 9"]
)
def test_stopped_while_mining_or_training_it_ends_with_the_same_weights(whole, corpus, tmp_path, stop):
    how = recipe(tmp_path, MODEL, ONLINE, OFFLINE)
    with pytest.raises(KeyboardInterrupt):
        train(how, corpus, tmp_path / "run", device="cpu", callbacks=[RecordingCallback(**stop)])
    train(how, corpus, tmp_path / "run", device="cpu", resume=True)
    one, other = (load_file(snapshot_path(run)) for run in (whole, tmp_path / "run"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_offline_negatives_change_what_is_learned(whole, corpus, tmp_path):
    """A second round with one draw for both lists has other weights: what is drawn is used."""
    how = recipe(tmp_path, MODEL, ONLINE, OFFLINE, overrides=["stage.2.offline.single_draw=true"])
    other = train(how, corpus, tmp_path / "run", device="cpu")
    first, second = (load_file(run / "best" / "weights.safetensors") for run in (whole, other))
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_any_stage_before_can_mine(corpus, tmp_path):
    warm_up = ONLINE.replace("epochs = 1", "epochs = 2")
    how = recipe(tmp_path, MODEL, ONLINE, warm_up, OFFLINE, overrides=["stage.3.offline.lists=stage-1"])
    run = train(how, corpus, tmp_path / "run", device="cpu")
    assert lists_file(run / "stage-1").is_file()
    assert not lists_file(run / "stage-2").exists()


@pytest.fixture
def teacher(whole, tmp_path):
    """A run whose best is that of the first stage, which has mined."""
    run = tmp_path / "teacher"
    shutil.copytree(whole, run)
    shutil.copy(whole / "stage-1" / "lists.safetensors", lists_file(run))
    shutil.copy(whole / "stage-1" / "weights.safetensors", run / "best" / "weights.safetensors")
    return run


def test_a_teachers_lists(whole, teacher, corpus, tmp_path):
    shutil.copy(whole / "best" / "weights.safetensors", teacher / "best" / "weights.safetensors")
    how = recipe(tmp_path, MODEL, OFFLINE, overrides=[f"stage.1.offline.lists='{teacher}'"])
    with pytest.raises(
        RunError, match="mined by another run, or by weights that the run no longer has"
    ):  # those of stage 1, not its best
        train(how, corpus, tmp_path / "run", device="cpu")
    shutil.copy(whole / "stage-1" / "weights.safetensors", teacher / "best" / "weights.safetensors")
    train(how, corpus, tmp_path / "run", device="cpu")
    with pytest.raises(RunError, match="mined on other data"):
        train(how, corpus_of_other_texts(corpus), tmp_path / "other", device="cpu")
    assert not (tmp_path / "other" / "recipe.toml").exists()


def corpus_of_other_texts(corpus):
    return replace(corpus, texts=[f"{text} indeed" for text in corpus.texts])


@pytest.mark.parametrize(
    ("parts", "overrides", "words"),
    [
        ((OFFLINE,), [], "stage.1.offline.lists = 'previous': not an earlier stage"),
        ((ONLINE, OFFLINE), ["stage.2.offline.lists=stage-2"], "'stage-2': not an earlier stage"),
        ((OFFLINE,), ["stage.1.offline.lists=runs/none"], "runs/none: no such run"),
        ((ONLINE,), ["stage.1.offline.lists=previous"], "'hinge' reads no offline negatives"),
        ((ONLINE, OFFLINE), ["stage.2.batches.chunk=4"], "'quintuplet' needs all scores"),
        ((ONLINE, OFFLINE), ["stage.2.offline.top_text=4"], "top_texts"),
        ((ONLINE, OFFLINE), ["stage.2.offline.draw=gauss"], "uniform"),
    ],
    ids=["no stage before", "own stage", "no run", "hinge", "chunk", "unknown key", "draw"],
)
def test_what_cannot_work_is_refused_before_anything_is_written(corpus, tmp_path, parts, overrides, words):
    with pytest.raises(DiptychError) as error:
        train(recipe(tmp_path, MODEL, *parts, overrides=overrides), corpus, tmp_path / "run", device="cpu")
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_a_corpus_of_one_group_is_refused_at_once(corpus, tmp_path):
    images, texts = np.zeros_like(corpus.image_groups), np.zeros_like(corpus.text_groups)
    alone = replace(corpus, image_groups=images, text_groups=texts)
    with pytest.raises(DataError, match="belong to one group, so there are no negatives"):
        train(recipe(tmp_path, MODEL, ONLINE, OFFLINE), alone, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_lists_that_are_shorter_than_the_stage_draws_from_are_refused(teacher, corpus, tmp_path):
    changes = [f"stage.1.offline.lists='{teacher}'", "stage.1.offline.top_texts=25"]
    with pytest.raises(RunError, match=r"lists of 20 texts and 6 images, .* --top-texts 25 --top-images 6`"):
        train(recipe(tmp_path, MODEL, OFFLINE, overrides=changes), corpus, tmp_path / "run", device="cpu")


def test_a_resumed_run_must_find_the_lists_it_began_with(teacher, corpus, tmp_path):
    how = recipe(tmp_path, MODEL, OFFLINE, overrides=[f"stage.1.offline.lists='{teacher}'"])
    with pytest.raises(KeyboardInterrupt):
        train(how, corpus, tmp_path / "run", device="cpu", callbacks=[RecordingCallback(at=(2,))])
    lists = HardNegativeLists.load(lists_file(teacher))
    weights = teacher / "best" / "weights.safetensors"
    before = weights.read_bytes()
    save_tensors(weights, *load_tensors(teacher / "stage-1" / "weights.safetensors")[:1], {"other": "weights"})
    replace(lists, header=lists.header.model_copy(update={"weights": weights_digest(teacher)})).save(
        lists_file(teacher)
    )
    with pytest.raises(RunError, match=r"stage 1 began with lists of .* that other weights had mined"):
        train(how, corpus, tmp_path / "run", device="cpu", resume=True)
    weights.write_bytes(before)
    lists.save(lists_file(teacher))
    train(how, corpus, tmp_path / "run", device="cpu", resume=True)


def test_a_stage_with_another_objective_keeps_its_own_best(corpus, tmp_path):
    """OnlyOffline may be worse than what it starts from; what it learned is what is told."""
    hopeless = OFFLINE.replace('{ name = "quintuplet" }', '{ name = "quintuplet", online = false, adaptive = "none" }')
    changes = ["stage.1.epochs=12", "stage.2.start=previous", "stage.2.optimiser.rate=0.2"]
    run = train(recipe(tmp_path, MODEL, ONLINE, hopeless, overrides=changes), corpus, tmp_path / "run", device="cpu")
    best = json.loads((run / "best" / "metrics.json").read_text())
    assert best["stage"] == 2


def test_an_objective_that_needs_lists_says_so(corpus, tmp_path):
    table = OFFLINE.replace('offline = { lists = "previous", top_texts = 20, top_images = 6 }', "")
    with pytest.raises(RecipeError, match="draws from mined lists"):
        train(recipe(tmp_path, MODEL, ONLINE, table), corpus, tmp_path / "run", device="cpu")


def test_a_run_that_has_not_mined_is_named_with_the_command(whole, corpus, tmp_path):
    how = recipe(tmp_path, MODEL, OFFLINE, overrides=[f"stage.1.offline.lists='{whole}'"])
    with pytest.raises(RunError, match=r"has mined no lists yet; mine them with `diptych mine "):
        train(how, corpus, tmp_path / "run", device="cpu")


def test_fewer_negatives_than_requested_are_reported_and_used(corpus, tmp_path):
    callback = RecordingCallback()
    how = recipe(tmp_path, MODEL, ONLINE, OFFLINE, overrides=["stage.2.offline.top_texts=5000"])
    train(how, corpus, tmp_path / "run", device="cpu", callbacks=[callback])
    assert callback.messages_with("fewer negatives than requested")


TOWERS = {"joint": 5, "text": GRUSettings(hidden=5, word=3), "image": FeatureSettings(shape=(6,)), "words": 9}
REGIONS = {"image": RegionFeatureSettings(shape=(3, 2)), "joint": 5, "words": 9}
MODELS = {
    "vse": VSESettings(**TOWERS),
    "order": OrderSettings(**TOWERS),
    "scan": SCANSettings(**REGIONS),
    "vsrn": VSRNSettings(**REGIONS, text=GRUSettings(hidden=5, word=3)),
}
OFF = OfflineNegatives(
    images=np.array([[3, 1], [0, 4], [2, 3]]),
    texts=np.array([[1, 3], [4, 0], [3, 4]]),
    is_drawn=np.array([True, True, False]),
    is_negative=np.array([True, False, False]),
)


def batch_of(settings):
    random = np.random.default_rng(3)
    lengths = np.array([3, 2, 4, 2, 3])
    ids = random.integers(4, 9, (5, 4))
    ids[np.arange(4) >= lengths[:, None]] = 0
    shape = settings.image.shape
    return PairBatch(
        images=random.normal(size=(5, *shape)).astype(np.float32),
        image_of=np.array([0, 1, 2]),
        ids=ids,
        lengths=lengths,
        text_of=np.array([0, 1, 2]),
        groups=np.array([0, 1, 2]),
        extras=Extras(OFF),
    )


class Spy(Quintuplet):
    """Remembers what it was given."""

    def loss(self, batch) -> Loss:
        seen.append(batch)
        return super().loss(batch)


seen = []


@pytest.mark.parametrize("name", MODELS)
def test_a_step_scores_each_pair_with_its_offline_negatives(name):
    """Each score by itself, of one encoded image and one encoded text; each image and text is encoded once."""
    torch.manual_seed(0)
    settings = MODELS[name]
    matcher = settings.build().eval()
    set_trainable(matcher, ("all",))
    stage = load_recipe("vsepp").stage[0].model_copy(update={"objective": Spy()})
    batch = batch_of(settings)
    images, texts = torch.from_numpy(batch.images), batch.ids
    counts = []
    matcher.text.register_forward_pre_hook(lambda _, inputs: counts.append(len(inputs[0].ids)))
    step = make_step(matcher, stage, torch.device("cpu"), [Offline(sampler=None)])
    seen.clear()
    loss, _ = step.gradients(batch)
    assert counts == [5]
    offline = seen[0].extras[OfflineScores]

    def score(image, text):
        length = batch.lengths[text]
        tokens = tokens_to_device(texts[[text], :length], batch.lengths[[text]], None, torch.device("cpu"))
        encoded = matcher.encode_texts(tokens)
        return matcher.score(matcher.encode_images(images[[image]]), encoded).item()

    for k in range(3):
        assert seen[0].scores[k, k].item() == pytest.approx(score(k, k), abs=1e-5)
        assert offline.text[k].item() == pytest.approx(score(k, OFF.texts[k, 0]), abs=1e-5)
        assert offline.image[k].item() == pytest.approx(score(OFF.images[k, 0], k), abs=1e-5)
        assert offline.both[k].item() == pytest.approx(score(OFF.images[k, 0], OFF.texts[k, 0]), abs=1e-5)
        assert offline.derived[k].item() == pytest.approx(score(OFF.images[k, 1], OFF.texts[k, 1]), abs=1e-5)
    assert offline.is_drawn.tolist() == OFF.is_drawn.tolist()
    assert offline.is_negative.tolist() == OFF.is_negative.tolist()
    assert seen[0].scores.shape == (3, 3)
    assert set(loss.model_terms) == set(matcher.extra_terms)
    assert all(parameter.grad is not None for parameter in matcher.parameters())
