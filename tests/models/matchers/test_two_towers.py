"""Photos as sets of regions, in every model that takes them."""

import pytest
import torch
from torch.nn.functional import normalize

from diptych.features.image_input import ImageInput
from diptych.features.regions import Regions
from diptych.models.matchers import similarity_net, two_towers
from diptych.models.matchers.cca import CCASettings
from diptych.models.matchers.similarity_net import SimilarityNetSettings
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.matchers.two_towers import best_products
from diptych.models.tower import ImageTower
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings

FAR = {"two_branch": -2.0, "similarity_net": similarity_net.NO_REGION, "cca": -1.0}  # of a photo without any region


class Through(ImageTower):
    def __init__(self):
        super().__init__()
        self.size, self.input = 6, ImageInput("features", (6,), regions=Regions(method="annotated"))

    def forward(self, images):
        return images


def matcher(name):
    torch.manual_seed(0)
    towers = {"image": FeatureSettings(shape=(6,)), "text": GRUSettings(hidden=4, word=3), "words": 9}
    layers = {"image_layers": (7, 5), "text_layers": (5,)}
    made = {
        "two_branch": lambda: TwoBranchSettings(**towers, **layers),
        "similarity_net": lambda: SimilarityNetSettings(**towers, **layers, fused=(4, 3)),
        "cca": lambda: CCASettings(**towers, joint=5),
    }[name]().build()
    made.image = Through()
    return made.eval()


def photos():
    regions = torch.randn(5, 4, 6)
    regions[1, 2:] = 0
    regions[2, [0, 3]] = 0
    regions[3] = 0
    return regions


@pytest.mark.parametrize("name", list(FAR))
@pytest.mark.parametrize("block", [1, 10**6])
def test_a_photo_scores_a_text_by_its_best_region(name, block, monkeypatch):
    monkeypatch.setattr(two_towers, "BLOCK", block)
    monkeypatch.setattr(similarity_net, "BLOCK", block)
    made, regions = matcher(name), photos()
    texts = normalize(torch.randn(5, 5))
    encoded = made.encode_images(regions)
    assert encoded.shape == (5, 4, 5)
    scores = made.score(encoded, texts)
    for photo in range(5):
        own = regions[photo][regions[photo].abs().sum(1) > 0]
        lonely = torch.full((5,), FAR[name])
        best = made.score(made.encode_images(own), texts).max(0).values if len(own) else lonely
        torch.testing.assert_close(scores[photo], best)
    assert (encoded[3] == 0).all()
    torch.testing.assert_close(made.score_pairs(encoded, texts), scores.diagonal())


@pytest.mark.parametrize("name", list(FAR))
def test_images_of_regions_are_no_vectors_of_a_joint_space(name):
    made = matcher(name)
    assert made.embedding_dim is None
    assert made.image_input.regions is not None
    assert made.pretrained is None


def test_products_are_held_in_blocks(monkeypatch):
    images, texts = torch.zeros(7, 3, 2), torch.zeros(4, 2)
    images[:, 0] = torch.tensor([-0.6, 0.8])
    seen = []
    whole = two_towers._best
    monkeypatch.setattr(
        two_towers, "_best", lambda some, products: seen.append(products.shape) or whole(some, products)
    )
    monkeypatch.setattr(two_towers, "BLOCK", 30)
    best_products(images, texts)
    assert seen == [(2, 3, 4)] * 3 + [(1, 3, 4)]


def test_only_the_best_region_is_moved():
    made = matcher("two_branch")
    regions = normalize(torch.randn(1, 3, 5), dim=2).requires_grad_()
    text = regions.detach()[0, 1:2]
    made.score(regions, normalize(text + 0.1)).sum().backward()
    assert regions.grad[0].abs().sum(1).bool().tolist() == [False, True, False]
