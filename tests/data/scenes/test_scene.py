import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.scenes.scene import COLOURS, PLACES, SHAPES, Scene, Thing

things = st.lists(
    st.builds(
        lambda count_and_size, *rest: Thing(*count_and_size, *rest),
        st.sampled_from([(1, ""), (1, "small"), (2, ""), (3, "")]),
        st.sampled_from(COLOURS),
        st.sampled_from(SHAPES),
        st.sampled_from(PLACES),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda thing: thing.place,
)
scenes = things.map(lambda some: Scene(tuple(some)))


def attributes(scene):
    return frozenset((thing.count, thing.size, thing.colour, thing.shape, thing.place) for thing in scene.things)


@given(scenes)
def test_a_scene_does_not_depend_on_the_order_of_its_things(scene):
    reversed_scene = Scene(scene.things[::-1])
    assert reversed_scene == scene
    assert reversed_scene.description == scene.description
    assert [PLACES.index(thing.place) for thing in scene.things] == sorted(
        PLACES.index(thing.place) for thing in scene.things
    )


@given(scenes, scenes)
def test_descriptions_are_equal_only_for_equal_scenes(one, other):
    assert (one.description == other.description) == (attributes(one) == attributes(other))


@pytest.mark.parametrize(
    ("thing", "phrase"),
    [
        (Thing(1, "small", "blue", "star", "top"), "a small blue star"),
        (Thing(2, "", "red", "circle", "top"), "two red circles"),
        (Thing(3, "", "pink", "cross", "top"), "three pink crosses"),
    ],
)
def test_the_phrase_of_a_thing_is_plain(thing, phrase):
    assert thing.phrase == phrase
