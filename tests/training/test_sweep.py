"""Several runs below one folder: what is trained once, what goes on, and that each ends as if it were alone."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.errors import RecipeError, RunError
from diptych.files import locked_folder
from diptych.text.vocabulary import Vocabulary
from diptych.training import sweep as several
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.recipe_loader import load_recipe
from diptych.training.sweep import copy_run, train_runs
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.recipes import SMALL

TINY = [*SMALL, "model.image.width=2", "model.image.pixels=16", "stage.2.batches.size=16", "stage.2.epochs=1"]
STEPS = 2  # of an epoch: 32 pairs, 16 a step


def stop_at_once():
    raise KeyboardInterrupt


class SweepCallback(RecordingCallback):
    """Also records the title of each training."""

    def __init__(self, at=()):
        super().__init__(at, stop_at_once)
        self.titles = []

    def of_run(self, title):
        self.titles.append(title)
        return [self]


def variant(recipe, *margins):
    """A recipe whose n-th stage has the n-th margin."""
    first, second = recipe.stage
    stages = [first, *(second for _ in margins[1:])]
    changed = [
        stage.model_copy(update={"objective": stage.objective.model_copy(update={"margin": margin})})
        for stage, margin in zip(stages, margins, strict=True)
    ]
    return recipe.model_copy(update={"stage": tuple(changed)})


@pytest.fixture(scope="module")
def corpus():
    return make_scenes(train=16, val=4, test=4, texts=2)


@pytest.fixture(scope="module")
def tiny():
    return load_recipe("scenes", TINY)


@pytest.fixture(scope="module")
def runs(tiny):
    """All begin with the same stage, the first two with the same two."""
    return {
        "a": variant(tiny, 0.2, 0.1, 0.1),
        "b=1,c": variant(tiny, 0.2, 0.1, 0.3),
        "d": variant(tiny, 0.2, 0.4),
    }


@pytest.fixture(scope="module")
def alone(runs, corpus, tmp_path_factory):
    """The same runs, each trained for itself."""
    folder = tmp_path_factory.mktemp("alone")
    for name, recipe in runs.items():
        train(recipe, corpus, folder / name, device="cpu", workers=0)
    return folder


def train_all(runs, corpus, into, callback=None):
    callback = callback or SweepCallback()
    list(train_runs(runs, corpus, into, device="cpu", workers=0, callbacks=callback.of_run))
    return callback


def contents(run):
    """The bytes of all files of a run, but for the seconds that its epochs took."""
    files = {
        str(file.relative_to(run)): file.read_bytes()
        for file in run.rglob("*")
        if file.is_file() and file.name != ".lock"
    }
    lines = [json.loads(line) for line in files["metrics.jsonl"].splitlines()]
    return {**files, "metrics.jsonl": [{**line, "seconds": None} for line in lines]}


def assert_same(runs, one, other):
    for name in runs:
        first, second = contents(one / name), contents(other / name)
        assert first.keys() == second.keys()
        assert [file for file in first if first[file] != second[file]] == []


def state(folder):
    return {file: (file.stat().st_mtime_ns, file.stat().st_ino) for file in folder.rglob("*") if file.name != ".lock"}


@pytest.fixture(scope="module")
def together(runs, corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    return folder, train_all(runs, corpus, folder)


def test_shared_stages_are_trained_once_and_every_run_ends_as_if_alone(runs, alone, together):
    folder, callback = together
    # Stage 1 of all runs, stage 2 of the first two, their third stages, and stage 2 of the last.
    assert callback.steps == STEPS * (1 + 1 + 2 + 1)
    assert callback.titles == [
        "stage 1, shared by 3 runs",
        "stages 1 to 2, shared by 2 runs",
        "run 1 of 3: a",
        "run 2 of 3: b=1,c",
        "run 3 of 3: d",
    ]
    assert_same(runs, alone, folder)


@pytest.mark.parametrize("stop", [1, STEPS + 1, 3 * STEPS + 1])
def test_stopped_anywhere_the_same_call_goes_on_to_the_same_end(stop, runs, corpus, alone, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train_all(runs, corpus, tmp_path, SweepCallback((stop,)))
    again = train_all(runs, corpus, tmp_path)
    assert STEPS * 5 - stop <= again.steps <= STEPS * 5 - stop + STEPS  # at most the epoch in which it was stopped
    assert_same(runs, alone, tmp_path)


def test_a_finished_one_is_left_alone(runs, corpus, together, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(together[0], folder)
    shutil.rmtree(folder / "shared")  # nobody needs it any more
    before = state(folder)
    again = train_all(runs, corpus, folder)
    assert (again.steps, again.titles) == (0, [])
    assert state(folder) == before


def test_each_is_given_as_soon_as_it_is_finished(runs, corpus, together, tmp_path):
    shutil.copytree(together[0] / "shared", tmp_path / "shared")
    each = train_runs(runs, corpus, tmp_path, device="cpu", workers=0)
    assert next(each) == ("a", tmp_path / "a")
    assert not (tmp_path / "d").exists()
    each.close()
    with locked_folder(tmp_path, RunError):  # nobody holds it any more
        pass


def test_a_run_that_another_one_begins_with(tiny, corpus, alone, tmp_path):
    both = {"short": variant(tiny, 0.2, 0.1), "long": variant(tiny, 0.2, 0.1, 0.1)}
    callback = train_all(both, corpus, tmp_path)
    assert callback.steps == STEPS * 3
    assert contents(tmp_path / "long").keys() == contents(alone / "a").keys()
    assert snapshot_path(tmp_path / "long").read_bytes() == snapshot_path(alone / "a").read_bytes()


def test_runs_that_share_nothing_are_trained_each_for_itself(tiny, corpus, tmp_path):
    seeds = {f"seed-{seed}": tiny.model_copy(update={"seed": seed}) for seed in (0, 1)}
    assert train_all(seeds, corpus, tmp_path).steps == STEPS * 4
    assert not (tmp_path / "shared").exists()


def test_runs_that_start_from_another_run_and_have_its_model(tiny, corpus, alone, tmp_path):
    first = tiny.stage[0].model_copy(update={"start": str(alone / "a")})
    base = tiny.model_copy(update={"model": None, "stage": (first, tiny.stage[1])})
    both = {"x": variant(base, 0.2, 0.3), "y": variant(base, 0.2, 0.4)}
    assert train_all(both, corpus, tmp_path).steps == STEPS * 3
    assert train_all(both, corpus, tmp_path).steps == 0


def test_stages_are_not_cut_where_nobody_parts(runs, corpus, tmp_path):
    two = {name: runs[name] for name in ("a", "b=1,c")}
    assert train_all(two, corpus, tmp_path).titles == [
        "stages 1 to 2, shared by 2 runs",
        "run 1 of 2: a",
        "run 2 of 2: b=1,c",
    ]


def test_words_of_later_splits_are_not_lost(tiny, corpus, tmp_path):
    """A recipe cut to its first stage would count fewer words."""
    later = np.unique(corpus.image_groups[corpus.image_splits == "train"])[8:]
    mixed = replace(
        corpus,
        image_splits=np.where(np.isin(corpus.image_groups, later), "restval", corpus.image_splits),
        text_splits=np.where(np.isin(corpus.text_groups, later), "restval", corpus.text_splits),
    )
    words = [
        Vocabulary.from_texts(mixed.split(*splits).texts, 1).digest for splits in (["train"], ["train", "restval"])
    ]
    assert words[0] != words[1], "no word more in restval: this test would prove nothing"
    first, second = tiny.stage
    both = {
        str(margin): tiny.model_copy(
            update={
                "text": tiny.text.model_copy(update={"threshold": 1}),
                "stage": (
                    first,
                    second.model_copy(
                        update={
                            "splits": ("train", "restval"),
                            "objective": second.objective.model_copy(update={"margin": margin}),
                        }
                    ),
                ),
            }
        )
        for margin in (0.1, 0.2)
    }
    train_all(both, mixed, tmp_path / "together")
    train(both["0.2"], mixed, tmp_path / "0.2", device="cpu", workers=0)
    assert_same(["0.2"], tmp_path, tmp_path / "together")


def test_word_vectors_reach_a_later_stage_from_scratch(tiny, corpus, tmp_path):
    words = sorted({word for text in corpus.texts for word in text.lower().split() if word.isalpha()})
    rows = [" ".join([word, *(f"{(number + place) % 7}.5" for place in range(8))]) for number, word in enumerate(words)]
    (tmp_path / "vectors.txt").write_text("\n".join(rows) + "\n")
    first, second = tiny.stage
    text = tiny.text.model_copy(update={"vectors": str(tmp_path / "vectors.txt")})
    both = {
        str(epochs): tiny.model_copy(
            update={"text": text, "stage": (first, second.model_copy(update={"start": "scratch", "epochs": epochs}))}
        )
        for epochs in (1, 2)
    }
    train_all(both, corpus, tmp_path / "together")
    train(both["1"], corpus, tmp_path / "1", device="cpu", workers=0)
    assert_same(["1"], tmp_path, tmp_path / "together")


@pytest.mark.parametrize("files", [1, 3])
def test_a_copy_that_is_stopped_leaves_nothing_that_is_taken_for_a_run(
    files, runs, corpus, alone, together, tmp_path, monkeypatch
):
    shutil.copytree(together[0] / "shared", tmp_path / "shared")  # all that can be copied is there
    copied, copy = [], several._copy_file

    def stopped(source, target):
        if len(copied) == files:
            raise KeyboardInterrupt
        copied.append(target)
        copy(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(several, "_copy_file", stopped)
        if files == 3:  # as after kill -9: nobody cleans up
            patched.setattr(several.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            train_all(runs, corpus, tmp_path)
    assert len(copied) == files
    assert not any((tmp_path / name).exists() for name in runs)
    assert bool(list(tmp_path.rglob("*.copying"))) == (files == 3)
    train_all(runs, corpus, tmp_path)
    assert not list(tmp_path.rglob("*.copying"))
    assert_same(runs, alone, tmp_path)


def test_a_copy_is_no_second_half_of_a_tracked_run(alone, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(alone / "a", run)
    for name in ("wandb", "mlflow", "tensorboard"):
        (run / name).mkdir()
        (run / name / "file").touch()
    copy_run(run, tmp_path / "copy")
    assert [name for name in ("wandb", "mlflow", "tensorboard") if (tmp_path / "copy" / name).exists()] == [
        "tensorboard"
    ]


def test_a_copy_never_covers_something_else(alone, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".lock").touch()
    copy_run(alone / "a", tmp_path / "mine")  # a folder that was only held
    assert_same(["a"], alone, _as(tmp_path, "mine", "a"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="other: contains something that is not a run"):
        copy_run(alone / "a", tmp_path / "other")
    assert (tmp_path / "other" / "notes.txt").read_text() == "mine"


def _as(folder, name, other):
    (folder / name).rename(folder / other)
    return folder


def refused(kind, runs, corpus, into):
    callback = SweepCallback()
    before = state(into)
    with pytest.raises(kind) as error:
        train_all(runs, corpus, into, callback)
    assert "\n" not in str(error.value)
    assert (callback.titles, state(into)) == ([], before)
    return str(error.value)


def test_everything_is_checked_before_the_first_training(tiny, corpus, tmp_path):
    first, second = tiny.stage
    wrong = tiny.model_copy(update={"stage": (first, second.model_copy(update={"trainable": ("txt",)}))})
    message = refused(RecipeError, {"right": tiny, "lr=1": wrong}, corpus, tmp_path)
    assert message.startswith("lr=1: stage.2.trainable: the model has no part 'txt'; did you mean 'text'?")


def test_another_recipe_or_other_data_or_another_process(tiny, corpus, tmp_path):
    train_all({"mine": tiny}, corpus, tmp_path)
    other = {"new": tiny.model_copy(update={"seed": 5}), "mine": variant(tiny, 0.2, 0.5)}
    assert "mine: contains a run of another recipe; choose another folder" in refused(RunError, other, corpus, tmp_path)
    data = make_scenes(train=20, val=4, test=4, texts=2)
    assert "mine: contains a run on other data" in refused(RunError, {"new": tiny, "mine": tiny}, data, tmp_path)
    snapshot = snapshot_path(tmp_path / "mine")
    snapshot.write_bytes(snapshot.read_bytes()[:1000])
    assert "snapshot.safetensors: damaged" in refused(RunError, {"mine": tiny}, corpus, tmp_path)
    with locked_folder(tmp_path, RunError):
        assert "is writing to it" in refused(RunError, {"mine": tiny}, corpus, tmp_path)


def test_finished_runs_need_their_base_no_more_and_a_refusal_leaves_nothing(tiny, corpus, tmp_path):
    base = train(tiny.first(1), corpus, tmp_path / "base", device="cpu", workers=0)
    heads = load_recipe("convsepp-head", [f"stage.1.start={str(base)!r}", "stage.1.epochs=1"])
    train_all({"one": heads}, corpus, tmp_path / "heads")
    base.rename(tmp_path / "elsewhere")
    assert [name for name, _ in train_runs({"one": heads}, corpus, tmp_path / "heads", device="cpu")] == ["one"]
    with pytest.raises(RecipeError, match=r"stage\.1\.start = .*no such run"):
        train_all({"one": heads}, corpus, tmp_path / "others")
    wrong = tiny.model_copy(update={"stage": (tiny.stage[0].model_copy(update={"trainable": ("nose",)}),)})
    with pytest.raises(RecipeError, match="nose"):
        train_all({"one": wrong}, corpus, tmp_path / "others")
    assert not (tmp_path / "others").exists()


def test_each_run_takes_its_start_and_says_why(tiny, corpus, tmp_path):
    """Runs with the same alternatives share stages as if each had named the start that it takes."""
    first = tiny.stage[0].model_copy(update={"start": ("starter", "scratch")})
    recipe = tiny.model_copy(update={"stage": (first,)})
    titles = []
    runs = {f"seed-{seed}": recipe.model_copy(update={"seed": seed}) for seed in (0, 1)}
    for _ in range(2):  # finished runs are recognised
        for name, run in train_runs(
            runs, corpus, tmp_path, device="cpu", callbacks=lambda title: titles.append(title) or ()
        ):
            assert load_recipe(str(run / "recipe.toml")).stage[0].start == "scratch", name
    assert sum("starts from scratch: starter does not fit" in title for title in titles) == 2
