import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.models.layers.sets import as_one_group, count_order, group_by_count, mean_of_present, present


def sets(there):
    """Each vector says where it lies: item, place; the first coordinate is zero of every other one."""
    there = torch.tensor(there)
    items, places = there.shape
    vectors = torch.zeros(items, places, 3)
    for item in range(items):
        for place in range(places):
            vectors[item, place] = torch.tensor([(item + place) % 2, item + 1, place + 1])
    return vectors * there[:, :, None]


table = st.integers(1, 5).flatmap(
    lambda places: st.lists(st.lists(st.booleans(), min_size=places, max_size=places).filter(any), min_size=1)
)


@given(table)
def test_a_place_is_empty_only_where_the_whole_row_is_zero(there):
    assert present(sets(there)).tolist() == there


@given(table)
def test_the_mean_is_that_of_the_present_vectors(there):
    for item, mean in zip(sets(there), mean_of_present(sets(there)), strict=True):
        torch.testing.assert_close(mean, item[item.any(1)].mean(0))
    assert not mean_of_present(torch.zeros(2, 3, 4)).any()


@given(table)
def test_groups_hold_every_vector_once_and_no_empty_place(there):
    order = count_order(sets(there))
    arranged = group_by_count(sets(there), order)
    item = 0
    for group in arranged.groups:
        assert group.there is None
        for vectors in group.vectors.unbind(1):
            original = sets(there)[order[item]]
            assert vectors.tolist() == original[original.any(1)].tolist()
            item += 1
    assert item == len(there)
    counts = [len(group.vectors) for group in arranged.groups]
    assert counts == sorted(set(counts))
    stacked = torch.cat([group.vectors.flatten(0, 1) for group in arranged.groups])
    assert torch.equal(stacked, arranged.vectors)
    assert list(map(len, arranged.vectors.split(arranged.sizes))) == arranged.sizes


def test_one_group_says_what_is_missing_only_if_something_is():
    assert as_one_group(sets([[True, True], [True, True]])).groups[0].there is None
    assert as_one_group(sets([[True, True], [False, True]])).groups[0].there.tolist() == [[True, False], [True, True]]


def test_the_gram_matrix_is_of_each_item():
    group = as_one_group(torch.randn(2, 3, 4)).groups[0]
    for item, gram in enumerate(group.gram()):
        vectors = group.vectors[:, item]
        torch.testing.assert_close(gram, vectors @ vectors.t())
