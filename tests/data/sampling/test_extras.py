import pytest

from diptych.data.sampling.extras import NO_EXTRAS, Extras


def test_values_are_found_by_their_type():
    extras = Extras(3, "three")
    assert extras[int] == 3
    assert extras.get(str) == "three"
    assert extras.get(float) is None
    assert list(extras) == [3, "three"]
    with pytest.raises(KeyError):
        extras[float]


def test_a_subclass_is_another_type():
    assert Extras(True).get(int) is None


def test_adding_a_value_replaces_one_of_its_type_and_leaves_the_original_alone():
    extras = Extras(3, "three")
    assert list(extras.add(4)) == [4, "three"]
    assert list(extras.add(0.5)) == [3, "three", 0.5]
    assert list(extras) == [3, "three"]
    assert list(NO_EXTRAS.add(1)) == [1]
    assert list(NO_EXTRAS) == []


def test_mapping_looks_the_results_up_by_their_own_types():
    extras = Extras(3, "three").map(lambda value: float(value) if value == 3 else value)
    assert extras[float] == 3.0
    assert extras.get(int) is None
