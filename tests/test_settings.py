from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

from diptych.errors import RecipeError
from diptych.settings import Count, Flag, NamedSettings, Number, Settings, first_error


class Square(Settings):
    kind: Literal["square"] = "square"
    side: Number


class Circle(Settings):
    kind: Literal["circle"] = "circle"
    radius: Number


class Drawing(Settings):
    copies: Count = 1
    filled: Flag = False
    shapes: tuple[Annotated[Square | Circle, Field(discriminator="kind")], ...] = ()
    frame: Square | None = None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"copis": 2}, "unknown key 'copis'; did you mean 'copies'?"),
        ({"frame": {"sid": 2}}, "key 'frame.side' is missing"),
        ({"frame": {"side": 1, "zzz": 2}}, "unknown key 'frame.zzz'; known: kind, side"),
        ({"copies": 0}, "copies = 0: input should be greater than or equal to 1"),
        ({"copies": 2.5}, "copies = 2.5: input should be a valid integer"),
        ({"filled": 1}, "filled = 1: input should be a valid boolean"),
        ({"frame": {"side": float("inf")}}, "frame.side = inf: input should be a finite number"),
        ({"shapes": [{"kind": "square", "side": 1}, {"side": 2}]}, "shapes.2: needs a kind"),
        ({"shapes": [{"kind": "cube"}]}, "shapes.1.kind = 'cube': use 'square', 'circle'"),
        ({"shapes": [{"kind": "circle", "radus": 1}]}, "key 'shapes.1.radius' is missing"),
        ({"shapes": [{"kind": "circle", "radius": 1, "radus": 1}]}, "unknown key 'shapes.1.radus'; did you mean"),
    ],
)
def test_the_first_error_names_the_key_and_what_to_do(values, message):
    with pytest.raises(ValidationError) as caught:
        Drawing.model_validate(values)
    assert first_error(caught.value, Drawing).startswith(message)


def test_settings_are_immutable():
    drawing = Drawing(copies=2)
    with pytest.raises(ValidationError, match="frozen"):
        drawing.copies = 3


class Base(NamedSettings):
    size: Count = 1


class Declared(Base):
    name: Literal["declared"] = "declared"


class Inherited(Declared):
    later: "Later | None" = None


class Later(Settings):
    number: Count = 3


def test_a_class_outside_of_the_package_is_named_by_its_place():
    for kind in (Base, Declared, Inherited):
        reference = f"{kind.__module__}:{kind.__name__}"
        assert kind().name == reference
        assert kind(name="another").model_dump(exclude={"later"}) == {"name": "another", "size": 1}
        assert kind.model_validate(kind(size=4).model_dump()) == kind(size=4)
    assert Inherited(later={"number": 5}).later == Later(number=5)


def test_a_class_inside_of_the_package_keeps_its_name():
    from diptych.objectives.hinge import Hinge

    assert Hinge().name == "hinge"
    with pytest.raises(RecipeError, match=r"^Hinge: name = 'other': input should be 'hinge'$"):
        Hinge(name="other")


def test_objectives_that_are_made_wrongly_say_so_in_one_sentence():
    from diptych.objectives import Hinge, Instance

    for make, message in (
        (lambda: Hinge(margn=0.1), "Hinge: unknown key 'margn'; did you mean 'margin'?"),
        (lambda: Hinge(margin=-1), "Hinge: margin = -1: input should be greater than or equal to 0"),
        (lambda: Instance(visual=0, textual=0), "Instance: nothing to minimise; set rank, visual or textual above 0"),
        (lambda: Base(size=0), "Base: size = 0: input should be greater than or equal to 1"),
    ):
        with pytest.raises(RecipeError) as caught:
            make()
        assert str(caught.value) == message


def test_errors_inside_of_other_settings_still_say_where():
    class Outer(Settings):
        inner: Base

    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({"inner": {"size": 0}})
    assert first_error(caught.value, Outer) == "inner.size = 0: input should be greater than or equal to 1"
