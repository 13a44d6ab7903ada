import pytest

from diptych.errors import RecipeError
from diptych.training.recipe_layers import apply_override, lay_over


def test_tables_are_laid_over_tables_key_by_key():
    assert lay_over({"a": {"b": 1}}, {"a": {"b": 0, "c": 2}, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}
    assert lay_over({"a": 1}, {"a": {"b": 0}}) == {"a": 1}
    assert lay_over({"a": [1]}, {"a": [2, 3]}) == {"a": [1]}


@pytest.mark.parametrize("beneath", [{"name": "x", "key": 1}, {"key": 1}])
def test_another_name_replaces_the_table(beneath):
    assert lay_over({"name": "y"}, beneath) == {"name": "y"}
    assert lay_over({"other": 2}, beneath) == {**beneath, "other": 2}


def test_stages_are_laid_over_stages_in_a_list_or_by_number():
    stages = [{"epochs": 1, "start": "scratch"}, {"epochs": 2}]
    assert lay_over([{}, {"epochs": 5}], stages) == [stages[0], {"epochs": 5}]
    assert lay_over({"2": {"epochs": 5}}, stages) == [stages[0], {"epochs": 5}]
    assert lay_over({"3": {"epochs": 5}, "1": {"epochs": 4}}, stages) == [
        {"epochs": 4, "start": "scratch"},
        {"epochs": 2},
        {"epochs": 5},
    ]
    assert stages == [{"epochs": 1, "start": "scratch"}, {"epochs": 2}]


def test_changes_by_number_add_up_before_they_meet_a_list():
    changes = lay_over({"1": {"epochs": 5}}, {"1": {"start": "previous"}, "2": {"epochs": 6}})
    assert changes == {"1": {"start": "previous", "epochs": 5}, "2": {"epochs": 6}}


@pytest.mark.parametrize("number", ["0", "3"])
def test_a_gap_in_the_numbers_is_refused(number):
    with pytest.raises(RecipeError, match=rf"stage\.{number}: there are stages 1 to 1; a new one is 2"):
        lay_over({number: {"epochs": 1}}, [{"epochs": 1}])


def test_an_override_is_a_toml_value_or_a_string():
    content = {"stage": [{"epochs": 1}]}
    for override in ("stage.1.epochs = 2", "model.name=vse", "text.use=['a', 'b']", "seed=3"):
        apply_override(content, override)
    assert content == {
        "stage": [{"epochs": 2}],
        "model": {"name": "vse"},
        "text": {"use": ["a", "b"]},
        "seed": 3,
    }
