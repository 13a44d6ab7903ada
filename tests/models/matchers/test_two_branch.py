"""The embedding network against distances of vectors, one pair at a time."""

import pytest
import torch
from torch.nn.functional import normalize

from diptych.errors import RecipeError
from diptych.models.matcher import ModelSettings
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.registry import resolve
from diptych.training.engine.trainable import set_trainable

TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0], [1, 7, 7, 2]]), torch.tensor([4, 3, 4]))


def network(**changes):
    torch.manual_seed(0)
    settings = {"image_layers": (7, 5), "text_layers": (5,), **changes}
    text = GRUSettings(hidden=4, word=3)
    return TwoBranchSettings(image=FeatureSettings(shape=(6,)), text=text, words=9, **settings).build()


def test_scores_are_minus_the_distances_of_the_branches_outputs():
    matcher = network().eval()
    vectors = torch.randn(4, 6)
    images, texts = matcher.encode_images(vectors), matcher.encode_texts(TOKENS)
    torch.testing.assert_close(images, matcher.image_branch(vectors))
    torch.testing.assert_close(texts, matcher.text_branch(matcher.text(TOKENS)))
    scores = matcher.score(images, texts)
    assert scores.shape == (4, 3)
    for i in range(4):
        for j in range(3):
            assert scores[i, j].item() == pytest.approx(-(images[i] - texts[j]).norm().item(), abs=1e-5)
    torch.testing.assert_close(matcher.score_pairs(images[:3], texts), scores[:3].diagonal())


def test_gradients_are_those_of_the_distance():
    matcher = network()
    images, texts = (normalize(torch.randn(n, 5, dtype=torch.float64)).requires_grad_() for n in (4, 3))
    weights = torch.randn(4, 3, dtype=torch.float64)

    def along(gradients):  # what of a gradient lies along the sphere; the product's differs from the distance's beside
        return [g - (g * v).sum(1, keepdim=True) * v for g, v in zip(gradients, (images, texts), strict=True)]

    found = torch.autograd.grad((weights * matcher.score(images, texts)).sum(), (images, texts))
    wanted = torch.autograd.grad((-weights * torch.cdist(images, texts)).sum(), (images, texts))
    torch.testing.assert_close(along(found), along(wanted))


def test_what_coincides_is_at_no_distance_and_has_no_gradient():
    matcher = network()
    vectors = normalize(torch.randn(50, 5)).requires_grad_()
    scores = matcher.score(vectors, vectors)
    assert scores.diagonal().abs().max() < 1e-3
    (100 * scores).sum().backward()
    assert vectors.grad.isfinite().all()
    exact = torch.eye(3).requires_grad_()
    matcher.score_pairs(exact, torch.eye(3)).sum().backward()
    assert (exact.grad == 0).all()


def test_the_joint_size_is_that_of_the_last_layer():
    assert network().embedding_dim == 5
    assert network(image_layers=(3,), text_layers=(8, 3)).embedding_dim == 3


@pytest.mark.parametrize("part", ["image_branch", "text", "text_branch"])
def test_a_stage_can_name_its_parts(part):
    matcher = network()
    named = set_trainable(matcher, (part,))
    own = dict(matcher.named_modules())[part].parameters()
    assert {id(each) for each in named} == {id(each) for each in own}


def test_a_recipe_names_it():
    table = {"name": "two_branch", "image_layers": [1024, 512], "text_layers": [512], "dropout": 0.0}
    settings = resolve("models.matchers", table, "model", ModelSettings)
    fitted = settings.for_data(9, (6,))
    assert resolve("models.matchers", fitted.model_dump(mode="json"), "model", ModelSettings) == fitted
    assert fitted.build().embedding_dim == 512
    for wrong in ({"image_layers": []}, {"dropout": 1.0}, {"text_layers": [0]}, {"batch_norms": False}):
        with pytest.raises(RecipeError, match=next(iter(wrong))):
            resolve("models.matchers", {"name": "two_branch", **wrong}, "model", ModelSettings)
