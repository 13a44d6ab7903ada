import pytest

from diptych.errors import RecipeError
from diptych.training.recipe import load_recipe, parse_recipe, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_reads_back_to_itself(name, tmp_path):
    recipe = load_recipe(name)
    file = tmp_path / "again.toml"
    file.write_text(recipe.to_toml())
    assert load_recipe(str(file)) == recipe
    assert recipe.title


def test_the_papers_settings():
    recipe = load_recipe("vsepp")
    stage = recipe.stage[0]
    assert (recipe.model.joint, recipe.model.text.hidden, recipe.model.text.word) == (1024, 1024, 300)
    assert (stage.epochs, stage.batches.size, stage.select) == (30, 128, "rsum")
    assert (stage.optimiser.rate, stage.optimiser.clip) == (0.0002, 2.0)
    assert (stage.schedule.every, stage.schedule.factor) == (15, 0.1)
    assert (stage.objective.negatives, stage.objective.margin) == ("max", 0.2)
    zero = load_recipe("vse0")
    assert zero.stage[0].objective.negatives == "sum"
    assert not zero.model.normalise_images
    assert recipe.model.normalise_images


def test_overrides_change_one_value():
    recipe = load_recipe("scenes", ["stage.2.objective.margin=0.3", "model.image.width=8", "seed=7"])
    assert recipe.stage[1].objective.margin == 0.3
    assert recipe.stage[0].objective.margin == 0.2
    assert recipe.model.image.width == 8
    assert recipe.seed == 7
    assert load_recipe("vsepp", ["stage.1.patience=3"]).stage[0].patience == 3
    assert load_recipe("vsepp", "seed=3").seed == 3


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("stage.1.objective.margn=0.1", "stage.1.objective: unknown key 'margn'; did you mean 'margin'?"),
        ("stage.1.optimizer.rate=1", "unknown key 'stage.1.optimizer'; did you mean 'optimiser'?"),
        ("stage.1.batches.siz=3", "unknown key 'stage.1.batches.siz'; did you mean 'size'?"),
        ("model.image.crop=a", "model.image: unknown key 'crop'; did you mean 'crops'?"),
        ("model.image.name=cnnn", "model.image.name = 'cnnn': no such name; did you mean 'cnn'?"),
        ("model.text.name=gruu", "model.text.name = 'gruu': no such name; did you mean 'gru'?"),
        ("model.image=3", "model.image: needs a table with a name"),
        ("stage.1.crops=10C", "stage.1.crops = '10C'"),
        ("stage.1.schedule.name=cosin", "stage.1.schedule.name = 'cosin': use 'step', 'cosine'"),
        ("stage.1.optimiser.parts={image=0.0}", "stage.1.optimiser.parts"),
        ("modle.joint=5", "unknown key 'modle'; did you mean 'model'?"),
        ("model.name=vsee", "did you mean 'vse'?"),
        ("stage.1.epochs=-1", "stage.1.epochs = -1"),
        ("stage.1.epochs=many", "stage.1.epochs = 'many'"),
        ("stage.1.epochs=true", "stage.1.epochs = True"),
        ("stage.1.objective.mask_same_group=off", "mask_same_group = 'off'"),
        ("stage.1.optimiser.rate=inf", "stage.1.optimiser.rate = inf"),
        ("seed=-1", "seed = -1"),
        ("stage.9.epochs=1", "stages 1 to 1"),
        ("stage.0.epochs=1", "stages 1 to 1"),
        ("stage.1=3", "name a key of a stage"),
        ("stage.1.epochs.more=3", "'epochs' is no table"),
        ("seed", "KEY=VALUE"),
    ],
)
def test_a_mistake_is_one_line_with_its_key_and_remedy(override, words):
    with pytest.raises(RecipeError) as raised:
        load_recipe("vsepp", [override])
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_unknown_recipes_and_files(tmp_path):
    with pytest.raises(RecipeError, match="did you mean 'vsepp'"):
        load_recipe("vsep")
    with pytest.raises(RecipeError, match=r"none\.toml: cannot be read"):
        load_recipe(str(tmp_path / "none.toml"))
    broken = tmp_path / "broken.toml"
    broken.write_text("title = \nmodel")
    with pytest.raises(RecipeError, match=r"broken\.toml: not valid TOML.*line 1"):
        load_recipe(str(broken))


def test_what_is_missing_is_named():
    with pytest.raises(RecipeError, match="'model' is missing"):
        parse_recipe({"stage": [{"objective": {"name": "hinge"}}]})
    with pytest.raises(RecipeError, match=r"'stage\.1\.objective' is missing"):
        parse_recipe({"model": {"name": "vse"}, "stage": [{}]})
    with pytest.raises(RecipeError, match="stage"):
        parse_recipe({"model": {"name": "vse"}, "stage": []})
