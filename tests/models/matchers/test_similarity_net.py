"""The similarity network against its layers on one pair at a time."""

import pytest
import torch
from torch.nn.functional import normalize

from diptych.errors import RunError
from diptych.models.matcher import ModelSettings
from diptych.models.matchers import similarity_net
from diptych.models.matchers.similarity_net import SimilarityNetSettings
from diptych.models.storage import save_tensors
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.registry import resolve

DEPTHS = [(), (4,), (6, 3)]


def network(fused=(6, 3), **changes):
    torch.manual_seed(0)
    text = GRUSettings(hidden=4, word=3)
    settings = {"image_layers": (7, 5), "text_layers": (5,), "fused": fused, **changes}
    made = SimilarityNetSettings(image=FeatureSettings(shape=(6,)), text=text, words=9, **settings).build()
    for layer in made.fused:
        if isinstance(layer, torch.nn.Linear):
            torch.nn.init.normal_(layer.bias)
    return made


def one_by_one(made, images, texts):
    """Each pair through each layer, in float64."""
    layers = [layer for layer in made.fused if isinstance(layer, torch.nn.Linear)]
    rows = []
    for image in images:
        for text in texts:
            made_so_far = image * text
            for number, layer in enumerate(layers):
                made_so_far = layer.weight @ (made_so_far.clamp(min=0) if number else made_so_far) + layer.bias
            rows.append(made_so_far)
    return torch.stack(rows).view(len(images), len(texts))


@pytest.mark.parametrize("fused", DEPTHS, ids=str)
@pytest.mark.parametrize("sizes", [(4, 9), (9, 4), (1, 3), (3, 1)], ids=str)
@pytest.mark.parametrize("block", [1, 60, 10**6])
def test_all_pairs_equal_one_pair_at_a_time(fused, sizes, block, monkeypatch):
    monkeypatch.setattr(similarity_net, "BLOCK", block)
    monkeypatch.setattr(similarity_net, "MANY", 4)
    made = network(fused).double()
    images, texts = (normalize(torch.randn(n, 5, dtype=torch.float64)).requires_grad_() for n in sizes)
    scores, wanted = made.score(images, texts), one_by_one(made, images, texts)
    torch.testing.assert_close(scores, wanted)
    pairs = min(sizes)
    torch.testing.assert_close(made.score_pairs(images[:pairs], texts[:pairs]), wanted[:pairs, :pairs].diagonal())
    weights = torch.randn_like(wanted)
    leaves = [images, texts, *made.fused.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad((weights * scores).sum(), leaves), torch.autograd.grad((weights * wanted).sum(), leaves)
    )


def test_never_more_than_a_block_at_once(monkeypatch):
    monkeypatch.setattr(similarity_net, "BLOCK", 500)
    monkeypatch.setattr(similarity_net, "MANY", 8)
    made, seen = network(), []
    plain = similarity_net.apply_linear
    monkeypatch.setattr(
        similarity_net,
        "apply_linear",
        lambda *given: seen.extend((given[1].numel(), plain(*given).numel())) or plain(*given),
    )
    made.score(torch.randn(40, 5), torch.randn(33, 5))
    assert 200 < max(seen) <= 500


def test_the_papers_sizes_are_the_defaults():
    settings = SimilarityNetSettings(image=FeatureSettings(shape=(6,)), words=9)
    assert [tuple(layer.weight.shape) for layer in settings.build().fused[::2]] == [(512, 512), (256, 512), (1, 256)]


def test_it_has_no_joint_space_and_no_score_without_weights():
    assert network().embedding_dim is None
    with torch.device("meta"):
        unweighted = network().settings.build()
    vectors = torch.randn(2, 5)
    for score in (unweighted.score, unweighted.score_pairs):
        with pytest.raises(RunError, match="without its weights"):
            score(vectors, vectors)


def test_weights_are_stored_once(tmp_path):
    made = network()
    save_tensors(tmp_path / "weights.safetensors", made.state_dict(), {})
    assert sum(name.startswith("fused") for name in made.state_dict()) == 6


def test_a_recipe_names_it():
    settings = resolve("models.matchers", {"name": "similarity_net", "fused": [8]}, "model", ModelSettings).for_data(
        9, (6,)
    )
    assert resolve("models.matchers", settings.model_dump(mode="json"), "model", ModelSettings) == settings
    assert len(settings.build().fused) == 3
