import pytest

from diptych.errors import RecipeError
from diptych.training.recipe_catalogue import catalogue
from diptych.training.recipe_loader import load_recipe, paper_of_run, recipe_content, trained_on_phrases
from support.recipes import TINY


@pytest.mark.parametrize("name", catalogue().all_names())
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
        ("stage.1.schedule.name=cosin", "stage.1.schedule.name = 'cosin': use 'step', 'constant', 'cosine'"),
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
        ("stage.1.epochs.more=3", "'epochs' is not a table"),
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


def written(folder, **files):
    """Recipe files by name; the path of the first."""
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
    return str(folder / f"{next(iter(files))}.toml")


BASE = """
title = "beneath"
seed = 5
[paper]
reference = "somebody"
[[paper.row]]
number = "1.1"
data = "data"
i2t = [1.0, 2.0, 3.0, 4.0]
t2i = [1.0, 2.0, 3.0, 4.0]
[model]
name = "vse"
joint = 64
image = { name = "backbone", backbone = "lite1", crops = "10C" }
text = { name = "gru", word = 30, hidden = 64 }
[[stage]]
epochs = 3
objective = { name = "hinge", negatives = "sum", margin = 0.3 }
schedule = { name = "step", every = 2, factor = 0.5 }
[[stage]]
start = "previous"
epochs = 4
objective = { name = "hinge", negatives = "max", margin = 0.4 }
"""


def test_tables_lie_over_tables_and_stages_over_stages(tmp_path):
    top = """
    base = "beneath.toml"
    [model]
    image = { crops = "1C" }
    [[stage]]
    [[stage]]
    epochs = 9
    objective = { margin = 0.1 }
    [[stage]]
    start = "previous"
    objective = { name = "hinge", negatives = 0.5 }
    """
    recipe = load_recipe(written(tmp_path, top=top, beneath=BASE))
    beneath = load_recipe(str(tmp_path / "beneath.toml"))
    assert (recipe.title, recipe.seed) == ("beneath", 5)
    assert recipe.model.text == beneath.model.text
    assert recipe.model.image == beneath.model.image.model_copy(update={"crops": "1C"})
    assert recipe.stage[0] == beneath.stage[0]
    second = beneath.stage[1]
    laid = {"epochs": 9, "objective": second.objective.model_copy(update={"margin": 0.1})}
    assert recipe.stage[1] == second.model_copy(update=laid)
    assert len(recipe.stage) == 3
    assert (recipe.stage[2].epochs, recipe.stage[2].objective.negatives) == (30, 0.5)  # nothing beneath: the defaults


def test_fewer_stages_than_the_base_keep_the_rest(tmp_path):
    recipe = load_recipe(written(tmp_path, top='base = "beneath.toml"\n[[stage]]\nepochs = 1', beneath=BASE))
    assert [stage.epochs for stage in recipe.stage] == [1, 4]


def test_another_name_replaces_a_table(tmp_path):
    top = """
    base = "beneath.toml"
    [model]
    image = { name = "cnn", width = 5 }
    [[stage]]
    objective = { name = "contrastive" }
    schedule = { name = "cosine" }
    """
    recipe = load_recipe(written(tmp_path, top=top, beneath=BASE))
    assert (recipe.model.image.name, recipe.model.image.width) == ("cnn", 5)
    assert recipe.model.text.hidden == 64
    assert (recipe.stage[0].objective.name, recipe.stage[0].objective.temperature) == ("contrastive", 0.1)
    assert (recipe.stage[0].schedule.name, recipe.stage[0].schedule.warm_up) == ("cosine", 1.0)


def test_a_name_replaces_a_table_that_left_its_own_to_the_default(tmp_path):
    beneath = BASE.replace('name = "step", ', "")
    top = 'base = "beneath.toml"\n[[stage]]\nschedule = { name = "cosine" }'
    assert load_recipe(written(tmp_path, top=top, beneath=beneath)).stage[0].schedule.name == "cosine"


def test_the_rows_of_a_base_are_its_own(tmp_path):
    assert load_recipe(written(tmp_path, top='base = "beneath.toml"', beneath=BASE)).paper is None
    top = 'base = "beneath.toml"\n[paper]\nreference = "another"'
    paper = load_recipe(written(tmp_path, top=top, beneath=BASE)).paper
    assert (paper.reference, paper.row) == ("another", ())


def test_a_base_may_have_a_base_and_overrides_come_last(tmp_path):
    middle = 'base = "beneath.toml"\nseed = 6\n[[stage]]\nepochs = 7'
    file = written(tmp_path, top='base = "middle.toml"\ntitle = "top"', middle=middle, beneath=BASE)
    recipe = load_recipe(file)
    assert (recipe.title, recipe.seed, recipe.stage[0].epochs, recipe.model.joint) == ("top", 6, 7, 64)
    recipe = load_recipe(file, ["seed=8", "stage.1.epochs=9", "stage.2.objective.margin=0.9"])
    assert (recipe.seed, recipe.stage[0].epochs, recipe.stage[1].objective.margin) == (8, 9, 0.9)
    assert recipe.stage[1].objective.negatives == "max"


def test_a_base_file_is_found_beside_the_recipe_that_names_it(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "elsewhere").mkdir()
    written(tmp_path, shared=BASE)
    file = written(tmp_path / "mine", top='base = "../shared.toml"')
    assert load_recipe(file).model.joint == 64
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_recipe("../mine/top.toml").model.joint == 64
    named = written(tmp_path / "mine", named='base = "vsepp"')
    assert load_recipe(named).model.joint == 1024


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("vsep", "no recipe 'vsep'; did you mean 'vsepp'"),
        ("none.toml", "none.toml: cannot be read"),
        ("middle.toml", "middle.toml: base = 'vsep': no recipe 'vsep'; did you mean 'vsepp'"),
        ("broken.toml", "broken.toml: not valid TOML"),
    ],
)
def test_a_base_that_cannot_be_had_is_named_with_the_file_that_holds_it(base, words, tmp_path):
    file = written(tmp_path, top=f'base = "{base}"', middle='base = "vsep"', broken="title =")
    with pytest.raises(RecipeError) as raised:
        load_recipe(file)
    message = str(raised.value)
    assert message.startswith(f"{file}: base = {base!r}: ")
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize("around", ["a.toml", "./a.toml", "../here/a.toml"])
def test_a_base_that_leads_back_to_itself_is_one_line(around, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    with pytest.raises(RecipeError) as raised:
        load_recipe(written(here, a='base = "b.toml"', b=f'base = "{around}"'))
    assert "leads back to itself" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 2000


def test_a_base_is_a_name(tmp_path):
    with pytest.raises(RecipeError, match=r"top\.toml: base = 3: name a recipe"):
        load_recipe(written(tmp_path, top="base = 3"))


def test_a_mistake_in_a_recipe_over_another_names_the_file_that_was_asked_for(tmp_path):
    file = written(tmp_path, top='base = "beneath.toml"\n[[stage]]\nepoch = 3', beneath=BASE)
    with pytest.raises(RecipeError, match=r"top\.toml: unknown key 'stage\.1\.epoch'; did you mean 'epochs'"):
        load_recipe(file)


def test_stages_by_number_change_those_of_the_base_and_add_one(tmp_path):
    top = """
    base = "beneath.toml"
    stage.2.epochs = 9
    [stage.3]
    start = "previous"
    objective = { name = "hinge", negatives = 0.5 }
    """
    recipe = load_recipe(written(tmp_path, top=top, beneath=BASE))
    beneath = load_recipe(str(tmp_path / "beneath.toml"))
    assert recipe.stage[:2] == (beneath.stage[0], beneath.stage[1].model_copy(update={"epochs": 9}))
    assert recipe.stage[2].objective.negatives == 0.5
    with pytest.raises(RecipeError, match=r"top\.toml: stage\.4: there are stages 1 to 2; a new one is 3"):
        load_recipe(written(tmp_path, top='base = "beneath.toml"\nstage.4.epochs = 1'))


def test_stages_by_number_need_no_base(tmp_path):
    recipe = load_recipe(written(tmp_path, top='stage.1.objective = { name = "hinge" }\nstage.1.epochs = 2'))
    assert [stage.epochs for stage in recipe.stage] == [2]


def test_a_profile_is_an_argument_or_the_end_of_a_name():
    small = load_recipe("vsepp-rc-vgg19", profile="small")
    assert small == load_recipe("vsepp-rc-vgg19-small")
    assert small.model.image.backbone == "lite0"
    assert load_recipe("vsepp-rc-vgg19-small", profile="small") == small
    assert load_recipe("vsepp", ["seed=4"], profile="small").seed == 4
    assert load_recipe("orderpp", profile="small") == load_recipe("orderpp-small")
    assert load_recipe("vse-small", profile="small") == load_recipe("vse-small")


def test_a_base_may_have_a_profile(tmp_path):
    recipe = load_recipe(written(tmp_path, top='base = "vsepp-small"\nseed = 3'))
    assert recipe.stage == load_recipe("vsepp-small").stage


@pytest.mark.parametrize(
    ("name", "profile", "message"),
    [
        ("vsepp", "smal", "--profile smal: no such profile for the recipes of vsepp; did you mean 'small'?"),
        ("vsep", "small", "no recipe 'vsep'; did you mean 'vsepp'"),
        ("mine.toml", "small", 'mine.toml: --profile is for packaged recipes; in the file write base = "NAME-small"'),
        ("vsepp-small-small", None, "no recipe 'vsepp-small-small'; did you mean 'vsepp-small'"),
        ("nothing-like-it", None, "no recipe 'nothing-like-it'; see `diptych recipes list`"),
    ],
)
def test_a_profile_or_recipe_that_does_not_exist(name, profile, message):
    with pytest.raises(RecipeError) as raised:
        load_recipe(name, profile=profile)
    assert str(raised.value).startswith(message)


def test_a_mistake_in_a_packaged_recipe_names_its_file():
    with pytest.raises(RecipeError, match=r"^recipe vsepp-small \(vsepp/methods\.toml\): stage\.1\.epochs = 0"):
        load_recipe("vsepp-small", ["stage.1.epochs=0"])


def test_the_content_can_be_changed_without_changing_the_recipe():
    content = recipe_content("vsepp")
    content["stage"][0]["epochs"] = content["model"]["joint"] = 1
    assert recipe_content("vsepp")["stage"][0]["epochs"] == 30
    assert recipe_content("vsepp")["model"]["joint"] == 1024


def test_a_run_that_was_trained_on_phrases(tmp_path):
    assert not trained_on_phrases(tmp_path)
    for name, on_phrases in (("scenes", False), ("phrases-scenes", True)):
        (tmp_path / "recipe.toml").write_text(load_recipe(name).to_toml())
        assert trained_on_phrases(tmp_path) == on_phrases


def test_the_paper_of_a_run(tmp_path):
    assert paper_of_run(tmp_path) is None
    recipe, file = load_recipe("vsepp"), tmp_path / "recipe.toml"
    file.write_text(recipe.to_toml())
    assert paper_of_run(tmp_path) == recipe.paper
    file.write_text("[paper]\nreferenc = 'x'")
    with pytest.raises(RecipeError, match=r"recipe\.toml: paper: .*referenc"):
        paper_of_run(tmp_path)


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
