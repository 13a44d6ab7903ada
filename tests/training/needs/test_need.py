"""How needs are found, what a need does by default, and the encodings that it scores."""

import pkgutil

import pytest
import torch

from diptych import registry
from diptych.errors import RecipeError
from diptych.models.matcher import EncodedBatch
from diptych.objectives.objective import Objective
from diptych.training import needs
from diptych.training.needs.need import EncodedPairs, Need, find_need

NAMES = sorted({module.name for module in pkgutil.iter_modules(needs.__path__)} - {"need"})


@pytest.mark.parametrize("name", NAMES)
def test_a_need_is_found_by_the_name_of_its_module(name):
    found = find_need(name)
    assert issubclass(found, Need)
    assert (found.name, found.__module__) == (name, f"diptych.training.needs.{name}")


def test_a_module_without_a_need_of_its_name_is_refused():
    with pytest.raises(LookupError, match=r"diptych\.training\.needs\.need has no Need named 'need'"):
        find_need("need")
    with pytest.raises(RecipeError, match="'nothing': no such need; did you mean "):
        find_need("nothing")


def test_every_need_of_an_objective_exists():
    wanted = {
        need
        for name in registry.names("objectives", Objective)
        for need in registry.find("objectives", name, Objective)().needs
    }
    assert wanted
    assert wanted <= set(NAMES)


def test_a_need_draws_keeps_and_saves_nothing_by_default():
    class Simple(Need):
        name = "simple"

        def supply(self, batch, pairs):
            return 1

    need = Simple.prepare(None)
    assert isinstance(need, Simple)
    assert (need.epoch_extension, need.size, need.make_parameters({}), need.state()) == (None, 0, None, {})
    assert need.saved_with_weights({"a": torch.ones(1)}) == ({}, {})


def encoded_pairs(text_of, *, text_repeats):
    encoded = EncodedBatch(torch.arange(8.0).reshape(4, 2), torch.arange(6.0).reshape(3, 2))
    return EncodedPairs(None, encoded, torch.tensor([0, 1, 0]), torch.tensor(text_of), 2, 2, text_repeats)


def test_what_was_drawn_in_addition_is_not_among_the_pairs_images_and_texts():
    pairs = encoded_pairs([0, 1, 1], text_repeats=True)
    assert pairs.images.tolist() == [[0, 1], [2, 3]]
    assert pairs.texts.tolist() == [[0, 1], [2, 3]]


def test_scores_with_distinct_texts_become_scores_with_the_text_of_each_pair():
    scores = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert encoded_pairs([1, 0, 1], text_repeats=True).text_columns(scores).tolist() == [[2, 1, 2], [4, 3, 4]]
    assert encoded_pairs([0, 1], text_repeats=False).text_columns(scores) is scores


NEED = """
from diptych.training.needs.need import Need


class Weights(Need):
    name = "weights"

    def supply(self, batch, pairs):
        return None


class Nameless(Need):
    pass
"""


def test_a_need_outside_of_the_package_is_a_reference_or_an_entry_point(own_modules):
    own_modules.write("my_needs", NEED)
    assert find_need("my_needs:Weights").name == "weights"  # named by code, which has been allowed to run
    own_modules.register("needs", "group_weights", "my_needs:Weights")
    own_modules.register("needs", "within", "my_needs:Weights")
    assert find_need("group_weights") is find_need("my_needs:Weights")
    assert find_need("within").__module__ == "diptych.training.needs.within"  # a built-in name is never replaced


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("my_needs:Nameless", "'my_needs:Nameless': not a subclass of Need with a name"),
        ("my_needs:Nothing", "the module 'my_needs' has no Nothing"),
        ("no_such_module:Need", "the module 'no_such_module' cannot be imported"),
        ("broken", "the plug-in 'broken' of an unknown package cannot be loaded (ModuleNotFoundError"),
    ],
)
def test_a_need_that_cannot_be_used(own_modules, name, told):
    own_modules.write("my_needs", NEED)
    own_modules.register("needs", "broken", "no_such_module:Need")
    with pytest.raises(RecipeError) as raised:
        find_need(name)
    assert told in str(raised.value)
