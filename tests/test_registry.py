import subprocess
import sys

import pytest

from diptych.errors import RecipeError
from diptych.objectives.hinge import Hinge
from diptych.objectives.objective import Objective
from diptych.registry import find, names, resolve
from diptych.settings import Settings


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
