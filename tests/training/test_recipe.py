import pytest

from diptych.data.sampling.regions import PhraseSettings
from diptych.errors import RecipeError
from diptych.training.recipe import parse_recipe
from diptych.training.recipe_loader import load_recipe

STAGE = {"objective": {"name": "hinge"}}


def test_what_is_missing_is_named():
    with pytest.raises(RecipeError, match=r"'stage\.1\.objective' is missing"):
        parse_recipe({"model": {"name": "vse"}, "stage": [{}]})
    with pytest.raises(RecipeError, match="a recipe needs a model or a stage"):
        parse_recipe({"title": "nothing"})


def test_a_recipe_without_stages_is_a_model(tmp_path):
    recipe = parse_recipe({"model": {"name": "vse"}})
    assert recipe.stage == ()
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    assert load_recipe(str(tmp_path / "recipe.toml")) == recipe


def test_a_recipe_needs_no_model():
    recipe = parse_recipe({"stage": [STAGE]})
    assert (recipe.model, recipe.seed, recipe.stage[0].epochs) == (None, 0, 30)


def test_the_first_stages():
    recipe = parse_recipe({"stage": [{**STAGE, "epochs": 1}, {**STAGE, "epochs": 2}]})
    assert [stage.epochs for stage in recipe.first(1).stage] == [1]
    assert recipe.first(2) == recipe


def test_every_value_is_written_out():
    written = parse_recipe({"stage": [STAGE]}).to_dict()
    assert written["stage"][0]["batches"] == {"size": 128, "neighbours": False, "rivals": 0, "buffer": 2048}
    assert "model" not in written
    assert parse_recipe(written) == parse_recipe({"stage": [STAGE]})


def test_a_figure_that_was_not_published_is_a_dash():
    row = {"number": "1", "data": "data", "i2t": [1.0, "-", 3.0]}
    content = {"paper": {"reference": "somebody", "row": [row]}, "stage": [STAGE]}
    assert parse_recipe(content).paper.row[0].i2t == (1.0, "-", 3.0)
    row["i2t"] = [1.0, "x", 3.0]
    with pytest.raises(RecipeError, match="i2t"):
        parse_recipe(content)


def test_momentum_is_of_gradient_descent():
    stage = {"objective": {"name": "hinge"}, "optimiser": {"momentum": 0.5}}
    with pytest.raises(
        RecipeError, match=r"stage\.1\.optimiser\.momentum = 0\.5: is only for name = 'sgd'.*leave it out"
    ):
        parse_recipe({"stage": [stage]})
    stage["optimiser"]["name"] = "sgd"
    assert parse_recipe({"stage": [stage]}).stage[0].optimiser.momentum == 0.5


def test_a_stage_on_phrases_is_selected_by_localisation_unless_told():
    def select(**stage):
        return parse_recipe({"stage": [{"objective": {"name": "neighbourhood"}, **stage}]}).stage[0].select

    assert (select(), select(phrases={}), select(phrases={"rivals": 3})) == ("rsum", "phrase_sum", "phrase_sum")
    assert select(phrases={}, select="phrase_r1") == "phrase_r1"
    recipe = parse_recipe({"stage": [{"objective": {"name": "neighbourhood"}, "phrases": {"positives": "all"}}]})
    assert recipe.stage[0].phrases == PhraseSettings(positives="all")


def test_a_recipe_trains_like_one_with_another_title_and_figures():
    recipe = load_recipe("vsepp")
    assert recipe.trains_like(recipe.model_copy(update={"title": "another", "paper": None}))
    assert not recipe.trains_like(recipe.model_copy(update={"seed": 1}))
    assert not recipe.trains_like(load_recipe("vsepp", ["stage.1.objective.margin=0.3"]))


@pytest.mark.parametrize("start", ["starter", "runs/vsepp", ["starter", "scratch"]])
def test_a_start_is_a_name_or_a_list_of_names(start):
    recipe = parse_recipe({"stage": [{**STAGE, "start": start}]})
    assert recipe.stage[0].start == (start if isinstance(start, str) else tuple(start))
    assert parse_recipe(recipe.to_dict()) == recipe


@pytest.mark.parametrize("start", [3, [], [3], {"name": "starter"}])
def test_any_other_start_is_refused(start):
    with pytest.raises(RecipeError, match=r"^stage\.1\.start = .*name 'scratch', 'previous', 'starter' or a run"):
        parse_recipe({"stage": [{**STAGE, "start": start}]})


def test_a_start_has_an_address_if_it_is_a_run_or_a_pair():
    address = lambda start: parse_recipe({"stage": [{**STAGE, "start": start}]}).stage[0].start_address  # noqa: E731
    assert address("scratch") is address("previous") is None
    for start in ("runs/vsepp", "starter", "open_clip:ViT-B-32/openai"):
        assert address(start) == start


def test_pieces_have_a_size_and_words_have_vectors():
    def text(**keys):
        return parse_recipe({"text": keys, "stage": [STAGE]}).text

    assert (text().tokeniser, text().size) == ("words", None)
    assert text(tokeniser="bpe", size=500, threshold=2).size == 500
    with pytest.raises(RecipeError, match=r"^text\.size = 500: is the number of pieces of 'bpe' and 'wordpiece'"):
        text(size=500)
    for key, value in {"grow": True, "vectors": "glove.txt", "use": "both"}.items():
        assert getattr(text(**{key: value}), key) == value
        with pytest.raises(RecipeError, match=rf"^text\.{key} = {value!r}: is for whole words; leave it out"):
            text(tokeniser="wordpiece", **{key: value})


def test_a_recipe_with_pieces_reads_back_to_itself():
    recipe = parse_recipe({"text": {"tokeniser": "bpe", "size": 500}, "stage": [STAGE]})
    assert parse_recipe(recipe.to_dict()) == recipe
    assert parse_recipe(parse_recipe({"stage": [STAGE]}).to_dict()).text.tokeniser == "words"
