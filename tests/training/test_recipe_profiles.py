from fnmatch import fnmatchcase

from diptych.training.recipe_catalogue import catalogue
from diptych.training.recipe_profiles import Profile

PROFILE = Profile.model_validate(
    {
        "about": "small",
        "change": [
            {"recipes": ["*"], "set": {"seed": 6, "stage": {"1": {"epochs": 1}, "2": {"epochs": 2}}}},
            {"recipes": ["t*", "x"], "set": {"seed": 7}, "first": [{"epochs": 9}]},
        ],
    }
)
CONTENT = {"title": "A title", "seed": 5, "stage": [{"epochs": 3, "start": "scratch"}]}


def test_stages_that_a_recipe_does_not_have_are_not_added():
    stage = {"epochs": 1, "start": "scratch"}
    assert PROFILE.apply("one", CONTENT) == {"title": "A title (small)", "seed": 6, "stage": [stage]}
    assert CONTENT["stage"] == [{"epochs": 3, "start": "scratch"}]


def test_later_changes_are_laid_over_earlier_ones_and_may_add_stages_before_the_first():
    changed = PROFILE.apply("two", {**CONTENT, "stage": [{"epochs": 3}, {"epochs": 4}]})
    assert (changed["seed"], changed["stage"]) == (7, [{"epochs": 9}, {"epochs": 1}, {"epochs": 2}])


def test_the_published_figures_are_left_out():
    paper = {"reference": "somebody", "row": [{"number": "1.1"}]}
    assert PROFILE.apply("one", {**CONTENT, "paper": paper})["paper"] == {"reference": "somebody"}


def test_every_pattern_matches_a_recipe():
    for paper in catalogue().papers.values():
        names = [name for group in paper.groups.values() for name in group]
        for profile in paper.profiles.values():
            patterns = [pattern for change in profile.change for pattern in change.recipes]
            assert [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)] == []
