import torch

from diptych.models.address import ModelFiles
from diptych.models.opening import open_matcher


def test_a_run_and_a_pair_are_opened_alike(pair_folder):
    matcher, tokeniser = open_matcher(ModelFiles.find("starter"))
    assert matcher.embedding_dim
    assert len(tokeniser)
    folder = pair_folder("clip")
    matcher, tokeniser = open_matcher(ModelFiles.find(folder))
    assert matcher.settings.model == str(folder)
    assert len(tokeniser) == 17
    assert not torch.equal(matcher.logit_scale, torch.zeros(())), "the weights were not loaded"
