"""A run notes its plug-ins, opens again with them, and is not resumed with others."""

import json
from importlib import import_module

import pytest

from diptych import plugins
from diptych.data.formats.scenes import make_scenes
from diptych.errors import RecipeError, RunError
from diptych.evaluation.runs import evaluate
from diptych.plugins import PluginWarning, allow_code
from diptych.training.recipe_loader import load_recipe, trained_on_phrases
from diptych.training.run_plugins import FILE, check_plugins, save_plugins
from diptych.training.sweep import train_runs
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.corpora import with_features
from support.plugins import LOSS, TOWER
from support.runs import assert_same_run

CHANGES = [
    *("model.joint=8", "model.text={name='my_towers:Words',word=4,hidden=8}", "model.image={name='features'}"),
    *("stage.1.objective={name='my_losses:Exponential',scale=2.0}", "stage.1.batches.size=8"),
]


@pytest.fixture
def own(own_modules):
    own_modules.write("my_losses", LOSS)
    own_modules.write("my_towers", TOWER)
    allow_code("my_losses", "my_towers")
    return own_modules


@pytest.fixture(scope="module")
def corpus():
    return with_features(make_scenes(train=12, val=4, test=4, texts=2))


def recipe():
    return load_recipe("scenes", CHANGES).first(1)


def test_a_run_records_its_plugins_and_opens_again(own, corpus, tmp_path):
    run = train(recipe(), corpus, tmp_path / "run", device="cpu", workers=0)
    recorded = json.loads((run / FILE).read_text())
    assert [(one["module"], one["class"], len(one["sha256"])) for one in recorded["plugins"]] == [
        ("my_losses", "Exponential", 64),
        ("my_towers", "Words", 64),
    ]
    own.forget()
    assert load_recipe(str(run / "recipe.toml")) == recipe()
    assert evaluate(run, corpus).metrics.image_to_text.recalls[1] >= 0
    assert not trained_on_phrases(run)


def test_the_objective_is_not_needed_to_measure_a_run(own, corpus, tmp_path):
    plain = load_recipe("scenes", [*CHANGES, "model.text={name='gru',word=4,hidden=8}"]).first(1)
    run = train(plain, corpus, tmp_path / "run", device="cpu", workers=0)
    own.write("my_losses", "1 / 0")
    assert evaluate(run, corpus).metrics.image_to_text.recalls[1] >= 0
    assert not trained_on_phrases(run)


def test_starting_from_a_run_names_its_file_if_its_plugin_has_changed_or_is_not_allowed(own, corpus, tmp_path):
    base = train(recipe(), corpus, tmp_path / "base", device="cpu", workers=0)
    file = own.write("my_towers", TOWER + "# edited")
    later = load_recipe("scenes", [*CHANGES, f"stage.1.start={base}", "stage.1.epochs=1"]).first(1)
    changed = rf"^{base}/best/weights.safetensors: the plug-in my_towers:Words has changed since \({file}\)"
    with pytest.warns(PluginWarning, match=changed):
        train(later, corpus, tmp_path / "later", device="cpu", workers=0)
    plugins._allowed.discard("my_towers")
    with pytest.raises(RunError, match=rf"^{base}/best/weights.safetensors: model.text.name = .* is not allowed"):
        train(later.model_copy(update={"model": None}), corpus, tmp_path / "none", device="cpu", workers=0)


def test_an_interrupted_run_resumes_with_its_plugins_only(own, corpus, tmp_path):
    whole = train(recipe(), corpus, tmp_path / "whole", device="cpu", workers=0)
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(recipe(), corpus, run, device="cpu", workers=0, callbacks=[RecordingCallback((2,))])
    file = own.write("my_losses", LOSS + "# edited")
    with pytest.raises(RunError) as raised:
        train(recipe(), corpus, run, resume=True, device="cpu", workers=0)
    assert str(raised.value) == (
        f"{run}: the plug-in my_losses:Exponential has changed since ({file}); restore it, "
        f"train --into another folder, or delete {run / FILE} to resume with the new code"
    )
    own.write("my_losses", LOSS)
    train(recipe(), corpus, run, resume=True, device="cpu", workers=0)
    assert_same_run(whole, run)


def test_a_changed_plugin_can_be_accepted(own, corpus, tmp_path):
    run = train(recipe(), corpus, tmp_path / "run", device="cpu", workers=0)
    before = (run / FILE).read_text()
    own.write("my_losses", LOSS + "# edited")
    (run / FILE).unlink()
    train(recipe(), corpus, run, resume=True, device="cpu", workers=0)
    assert (run / FILE).read_text() != before


def test_without_plugins_there_is_no_file(tmp_path):
    save_plugins(tmp_path, ())
    assert list(tmp_path.iterdir()) == []
    check_plugins(tmp_path, ())


@pytest.mark.parametrize("content", ["[]", '{"format": "diptych plugins", "version": 9}', "{"])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    with pytest.raises(RunError, match=FILE):
        check_plugins(tmp_path, ())


def test_settings_made_in_python_must_be_found_again(own, corpus, tmp_path, monkeypatch):
    named = recipe()

    def refusal(objective):
        chosen = named.stage[0].model_copy(update={"objective": objective})
        with pytest.raises(RecipeError) as raised:
            train(named.model_copy(update={"stage": (chosen,)}), corpus, tmp_path / "run", device="cpu")
        assert not (tmp_path / "run").exists()
        return str(raised.value)

    kind = import_module("my_losses").Exponential

    class Local(kind):
        pass

    assert "could not be opened again: stage.1.objective.name = " in refusal(Local())
    assert "could not be opened again: stage.1.objective.name = 'mine': no such name" in refusal(kind(name="mine"))
    monkeypatch.setattr("diptych.plugins._allowed", {"my_towers"})
    assert "the module 'my_losses' is not allowed" in refusal(kind())


def test_a_sweep_does_not_mix_runs_of_two_versions(own, corpus, tmp_path):
    def sweep():
        return [name for name, _ in train_runs({"a": recipe()}, corpus, tmp_path, device="cpu", workers=0)]

    assert sweep() == sweep() == ["a"]
    own.write("my_losses", LOSS + "# edited")
    with pytest.raises(RunError, match="the plug-in my_losses:Exponential has changed since"):
        sweep()
