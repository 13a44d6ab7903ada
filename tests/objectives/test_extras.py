import torch

from diptych.objectives.extras import ClassOptions, NegativeScores, PairRoles


def test_without_repetitions_every_pair_is_first_and_a_query_in_both_directions():
    roles = PairRoles.all_queries(3, torch.device("cpu"))
    for role in (roles.is_first_image, roles.is_first_text, roles.image_is_query, roles.text_is_query):
        assert role.dtype == torch.bool
        assert role.tolist() == [True, True, True]


def test_nothing_is_drawn_clustered_or_sampled_by_default():
    assert NegativeScores() == NegativeScores(images=None, texts=None)
    assert ClassOptions() == ClassOptions(clusters=None, sampled=None)
