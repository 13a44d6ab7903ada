import pytest
import torch

import diptych
from diptych.errors import RecipeError
from diptych.models.pretrained_pairs.architecture import TextReading
from diptych.models.pretrained_pairs.towers import padded
from diptych.models.tower import Tokens

IDS, LENGTHS = torch.tensor([[5, 6, 7], [8, 9, 9]]), torch.tensor([3, 1])


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (TextReading(context=5), [[5, 6, 7], [8, 0, 0]]),
        (TextReading(context=5, fill=1), [[5, 6, 7, 1, 1], [8, 1, 1, 1, 1]]),
        (TextReading(context=5, fill=1, fill_side="left"), [[1, 1, 5, 6, 7], [1, 1, 1, 1, 8]]),
        (TextReading(context=3, fill=0), [[5, 6, 7], [8, 0, 0]]),
    ],
)
def test_texts_are_padded_as_the_network_was_trained(reading, expected):
    assert padded(Tokens(IDS, LENGTHS), reading).tolist() == expected


def test_batch_statistics_stay_those_of_the_pretraining(pairs, tmp_path):
    vision = {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 16}
    matcher = diptych.load(pairs.open_clip_folder(tmp_path / "pair", vision_cfg=vision), "cpu").matcher
    matcher.train()
    norms = [module for module in matcher.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert norms
    assert not any(module.training for module in norms)
    assert matcher.text.training


def test_a_pair_has_no_regions(pair_folder):
    backbone = diptych.load(pair_folder("clip"), "cpu").matcher.pretrained
    assert (backbone.side, backbone.size, backbone.grid) == (32, 16, (0, 0))
    with pytest.raises(RecipeError, match="pair-clip: a pretrained pair has one vector per image and no regions"):
        backbone.regions(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))


def test_features_of_texts_are_those_of_the_network(pair_folder):
    model = diptych.load(pair_folder("siglip"), "cpu")
    tower = model.matcher.text
    ids, lengths = (torch.from_numpy(values) for values in model.tokeniser.encode_all(["a dog", ""]).batch([0, 1]))
    assert torch.equal(tower.features(Tokens(ids, lengths)), tower(Tokens(ids, lengths)))
    assert tower.feature_part is tower.network
    assert tower.feature_options["pair"]["fill"] == 0
