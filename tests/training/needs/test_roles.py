import numpy as np

from diptych.data.sampling.extras import Extras
from diptych.data.sampling.neighbours import QueryDirections
from diptych.training.needs.roles import Roles
from support.encoded import batch_of_pairs, encode_randomly


def test_the_first_pair_with_an_image_or_a_text_is_marked():
    batch = batch_of_pairs([1, 0, 1, 1], [0, 1, 1, 2])
    roles = Roles().supply(batch, encode_randomly(batch))
    assert roles.is_first_image.tolist() == [True, True, False, False]
    assert roles.is_first_text.tolist() == [True, True, False, True]
    assert roles.image_is_query.tolist() == roles.text_is_query.tolist() == [True] * 4


def test_added_pairs_are_queries_in_their_direction_only():
    directions = QueryDirections(np.array([[True, True], [True, False], [False, True]]))
    batch = batch_of_pairs([0, 0, 1], [0, 1, 0], Extras(directions))
    roles = Roles().supply(batch, encode_randomly(batch))
    assert roles.image_is_query.tolist() == [True, True, False]
    assert roles.text_is_query.tolist() == [True, False, True]
