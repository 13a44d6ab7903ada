import subprocess
import sys

import pytest

from diptych.errors import RecipeError
from diptych.models.tower import ImageTowerSettings, TextTowerSettings
from diptych.objectives.hinge import Hinge
from diptych.objectives.objective import Objective
from diptych.plugins import allow_code
from diptych.registry import find, is_reachable, names, plugin_names, resolve
from diptych.settings import Settings
from support.plugins import LOSS, TOWER


def test_a_name_is_a_file():
    found = names("objectives", Objective)
    assert {"hinge", "contrastive"} <= set(found)
    assert "objective" not in found  # the base class names nothing
    assert find("objectives", "hinge", Objective) is Hinge
    assert find("objectives", "gone", Objective) is None
    assert find("objectives", "..hinge", Objective) is None


def test_a_class_of_another_kind_is_not_found():
    class Other(Settings):
        pass

    assert find("objectives", "hinge", Other) is None


def test_only_the_named_module_is_imported():
    program = (
        "import sys; from diptych.registry import find; from diptych.settings import Settings; "
        "find('objectives', 'hinge', Settings); sys.exit('diptych.objectives.instance' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_section_becomes_validated_settings():
    assert resolve("objectives", {"name": "hinge", "margin": 0.3}, "stage.1.objective", Objective) == Hinge(margin=0.3)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("hinge", "o: needs a table with a name, such as o = { name = ... }"),
        ({"name": 3}, "o: needs a table with a name"),
        ({"name": "hinges"}, "o.name = 'hinges': no such name; did you mean 'hinge'?"),
        ({"name": "os"}, "o.name = 'os': no such name; known: "),
        ({"name": "hinge", "margn": 1}, "o: unknown key 'margn'; did you mean 'margin'?"),
    ],
)
def test_mistakes_in_a_section(section, message):
    with pytest.raises(RecipeError) as caught:
        resolve("objectives", section, "o", Objective)
    assert str(caught.value).startswith(message)


def refusal(package, section, kind=Objective):
    with pytest.raises(RecipeError) as caught:
        resolve(package, section, "o", kind)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_class_of_an_allowed_module(own_modules):
    own_modules.write("my_losses", LOSS)
    section = {"name": "my_losses:Exponential", "scale": 2.0}
    assert refusal("objectives", section).startswith("o.name = 'my_losses:Exponential': the module 'my_losses' is not")
    assert "my_losses" not in sys.modules
    allow_code("my_losses")
    found = resolve("objectives", section, "o", Objective)
    assert found.model_dump() == section
    assert resolve("objectives", found.model_dump(), "o", Objective) == found == type(found)(scale=2.0)
    assert "unknown key 'scal'; did you mean 'scale'?" in refusal("objectives", {**section, "scal": 1})


def test_a_class_that_inherits_the_name_of_a_built_in_one_keeps_its_own(own_modules):
    own_modules.write("my_towers", TOWER)
    allow_code("my_towers")
    found = resolve("models.towers.text", {"name": "my_towers:Words"}, "o", TextTowerSettings)
    assert type(found).__name__ == "Words"
    assert found.name == type(found)().name == "my_towers:Words"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("my_losses:Number", "Annotated is not a subclass of Objective"),
        ("my_losses:Ranking", "Ranking does not define has_collapsed, per_query_loss"),
        ("my_losses:Field", "Field is not a subclass of Objective"),
        ("my_losses:Missing", "the module 'my_losses' has no Missing"),
        ("os:system", "the module 'os' is not allowed"),
        ("my losses:Exponential", "not a reference to a class"),
    ],
)
def test_a_reference_that_cannot_be_used(own_modules, name, told):
    own_modules.write("my_losses", LOSS)
    allow_code("my_losses")
    assert refusal("objectives", {"name": name}).startswith(f"o.name = {name!r}: {told}")


def test_an_objective_is_not_a_tower(own_modules):
    own_modules.write("my_losses", LOSS)
    allow_code("my_losses")
    told = refusal("models.towers.image", {"name": "my_losses:Exponential"}, ImageTowerSettings)
    assert told == "o.name = 'my_losses:Exponential': Exponential is not a subclass of ImageTowerSettings"


def test_an_entry_point_is_a_name(own_modules):
    own_modules.write("my_losses", LOSS)
    own_modules.register("objectives", "exponential", "my_losses:Exponential")
    own_modules.register("objectives", "broken", "no_such_module:Loss")
    assert plugin_names("objectives") == ["broken", "exponential"]
    assert "did you mean 'exponential'?" in refusal("objectives", {"name": "exponental"})  # without importing it
    assert "my_losses" not in sys.modules
    found = resolve("objectives", {"name": "exponential"}, "o", Objective)
    assert found.model_dump() == {"name": "exponential", "scale": 5.0}
    assert "the plug-in 'broken' of an unknown package cannot be loaded" in refusal("objectives", {"name": "broken"})


def test_an_entry_point_does_not_replace_a_built_in_name(own_modules):
    own_modules.write("my_losses", LOSS)
    own_modules.register("objectives", "hinge", "my_losses:Exponential")
    assert plugin_names("objectives") == []
    assert resolve("objectives", {"name": "hinge"}, "o", Objective) == Hinge()


def test_the_side_of_a_tower_is_in_the_name_of_its_entry_point(own_modules):
    own_modules.write("my_towers", TOWER)
    own_modules.register("towers", "text.mine", "my_towers:Words")
    assert [plugin_names(f"models.towers.{side}") for side in ("image", "region", "text")] == [[], [], ["mine"]]
    assert resolve("models.towers.text", {"name": "mine"}, "o", TextTowerSettings).name == "mine"
    assert "no such name" in refusal("models.towers.image", {"name": "mine"}, ImageTowerSettings)


@pytest.mark.parametrize(
    ("group", "name", "reachable"),
    [
        *(("objectives", "mine", True), ("objectives", "hinge", False), ("needs", "within", False)),
        *(("towers", "text.mine", True), ("towers", "mine", False), ("towers", "text.gru", False)),
        *(("formats", "anything", True), ("towers", "image.gru", True)),
    ],
)
def test_which_entry_points_can_be_named(own_modules, group, name, reachable):
    own_modules.register(group, name, "no_such_module:Thing")
    assert is_reachable(group, name) is reachable
