"""Several embedding models as one: its score against the weighted sum of theirs, and the backbone that they share."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import RecipeError
from diptych.features.backbone import weights_digest
from diptych.models.matcher import ModelSettings
from diptych.models.matchers.dual_path import DualPathSettings
from diptych.models.matchers.fused import Fused, FusedSettings
from diptych.models.matchers.order import OrderSettings
from diptych.models.matchers.projected import Head, ProjectedSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import load_matcher, save_matcher
from diptych.models.tower import Tokens
from diptych.models.towers import pretrained
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.image.views import ViewsSettings
from diptych.models.towers.text.cnn import TextCNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.towers.text.tfidf import TfidfSettings
from diptych.registry import resolve
from diptych.text.vocabulary import Vocabulary
from diptych.training.engine.trainable import set_trainable
from diptych.training.recipe import parse_recipe
from support.backbones import TinyBackbone

WORDS = Vocabulary.from_texts(["a red circle above one blue square"], 1)
TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0]]), torch.tensor([4, 3]))
CROPS = torch.randint(256, (3, 4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def vse(joint=5, image=None, **changes):
    image = FeatureSettings(shape=(6,)) if image is None else image
    return VSESettings(joint=joint, text=GRUSettings(hidden=joint, word=3), image=image, words=len(WORDS), **changes)


def backbone(**changes):
    return BackboneSettings(**{"crops": "views", **changes})


PARTS = {
    "two sizes": (vse(5), vse(7)),
    "heads": (vse(5), ProjectedSettings(base=vse(4), head=Head(hidden=8, output=3))),
    "three, one of them unnormalised": (vse(2), vse(4, normalise_images=False, normalise_texts=False), vse(3)),
    "pixels": tuple(vse(joint, CNNSettings(pixels=16, width=2)) for joint in (3, 4)),
}


def fused(parts, shares=None):
    torch.manual_seed(0)
    shares = shares or [0.7, *[0.3 / (len(parts) - 1)] * (len(parts) - 1)]
    return Fused([part.build() for part in parts], shares).eval()


def some_images(matcher):
    shape = (4, *matcher.image_input.shape)
    return torch.randn(shape) if len(shape) == 2 else torch.randint(256, shape, dtype=torch.uint8)


@pytest.fixture
def tiny(monkeypatch):
    """Every backbone is tiny and has weights of its own; the fixture lists all of them."""
    built = []

    def build(*_):
        built.append(TinyBackbone())
        built[-1].scale.data.uniform_(0.001, 0.01)
        return built[-1]

    monkeypatch.setattr(pretrained, "build_backbone", build)
    return built


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_the_score_is_the_weighted_sum_of_the_parts_scores(parts):
    matcher = fused(parts)
    images = some_images(matcher)
    scores = matcher.score(matcher.encode_images(images), matcher.encode_texts(TOKENS))
    expected = sum(
        share * part.score(part.encode_images(images), part.encode_texts(TOKENS))
        for share, part in zip(matcher.settings.shares, matcher.parts, strict=True)
    )
    assert expected.std() > 1e-3
    torch.testing.assert_close(scores, expected)
    assert matcher.encode_images(images).shape == (4, matcher.embedding_dim)
    assert matcher.embedding_dim == sum(part.embedding_dim for part in matcher.parts)
    pairs = matcher.encode_images(images)[:2], matcher.encode_texts(TOKENS)
    torch.testing.assert_close(matcher.score_pairs(*pairs), matcher.score(*pairs).diagonal())


def test_equal_shares_of_standardised_scores_have_equal_influence():
    parts = [vse(5, normalise_images=False, normalise_texts=False), vse(7)]
    plain = fused(parts, (0.5, 0.5))
    images = torch.randn(40, 6)
    scores = [part.score(part.encode_images(images), part.encode_texts(TOKENS)) for part in plain.parts]
    spreads = [score.std().item() for score in scores]
    assert max(spreads) > 1.5 * min(spreads)  # otherwise dividing by them would not show
    matcher = Fused(list(plain.parts), (0.5, 0.5), spreads)
    first, second = matcher.settings.weights
    assert first * spreads[0] == pytest.approx(second * spreads[1])
    assert first + second == pytest.approx(1)
    found = matcher.score(matcher.encode_images(images), matcher.encode_texts(TOKENS))
    torch.testing.assert_close(found, first * scores[0] + second * scores[1])


@given(st.floats(0, 1))
def test_unit_embeddings_stay_unit_embeddings_for_every_share(share):
    matcher = fused(PARTS["two sizes"], (share, 1 - share))
    for encoded in (matcher.encode_images(torch.randn(4, 6)), matcher.encode_texts(TOKENS)):
        torch.testing.assert_close(encoded.norm(dim=1), torch.ones(len(encoded)))


@pytest.mark.parametrize("reads", ["crops", "stored vectors"])
def test_the_backbone_runs_once_for_all_parts(reads, tiny):
    matcher = fused([vse(5, backbone()), vse(4, backbone(normalise=False)), vse(3, backbone())])
    shared, *dropped = tiny
    vectors = shared(CROPS.flatten(0, 1)).view(3, 4, -1).mean(1)
    for one in tiny:
        one.batches.clear()
    encoded = matcher.encode_images(CROPS if reads == "crops" else vectors)
    assert shared.shown == (12 if reads == "crops" else 0)
    assert not any(one.shown for one in dropped)
    expected = sum(
        share * part.score(part.encode_images(vectors), part.encode_texts(TOKENS))
        for share, part in zip(matcher.settings.shares, matcher.parts, strict=True)
    )
    torch.testing.assert_close(matcher.score(encoded, matcher.encode_texts(TOKENS)), expected)


def test_views_of_an_image_are_shared_as_well(tiny):
    texts = TextCNNSettings(word=4, depth="small", length=8)
    part = DualPathSettings(image=ViewsSettings(), text=texts, hidden=6, joint=5, words=len(WORDS))
    matcher = fused([part, part])
    assert matcher.reads_views
    assert matcher.shifts_texts
    matcher.encode_images(CROPS[:, :2])
    assert [one.shown for one in tiny] == [6, 0]
    matcher.set_text_shifts("mean")
    assert [one.settings.shifts for one in matcher.parts] == ["mean", "mean"]


def test_a_backbone_is_stored_and_trained_once(tiny, tmp_path):
    matcher = fused([vse(5, backbone()), ProjectedSettings(base=vse(4, backbone()), head=Head(hidden=3, output=2))])
    names = [name for name in matcher.state_dict() if "backbone" in name]
    assert names == ["parts.0.image.backbone.scale"]
    assert matcher.pretrained is tiny[0]
    assert all(part.pretrained is tiny[0] for part in matcher.parts)
    save_matcher(tmp_path / "weights.safetensors", matcher, WORDS, {})
    again = load_matcher(tmp_path / "weights.safetensors", WORDS).eval()
    assert again.settings == matcher.settings
    assert weights_digest(again.pretrained) == weights_digest(matcher.pretrained)
    torch.testing.assert_close(again.encode_images(CROPS), matcher.encode_images(CROPS), rtol=0, atol=0)
    torch.testing.assert_close(again.encode_texts(TOKENS), matcher.encode_texts(TOKENS), rtol=0, atol=0)
    set_trainable(matcher, ("parts.1",))
    assert not matcher.pretrained.scale.requires_grad


def test_a_copy_shares_a_backbone_of_its_own(tiny):
    matcher = fused([vse(5, backbone()), vse(4, backbone())])
    copied = copy.deepcopy(matcher)
    assert copied.pretrained is not matcher.pretrained
    assert all(part.pretrained is copied.pretrained for part in copied.parts)


def test_pretrained_weights_reach_the_shared_backbone(tiny, monkeypatch):
    loaded = TinyBackbone()
    loaded.scale.data.fill_(0.5)
    monkeypatch.setattr(pretrained, "load_backbone", lambda *_: loaded)
    matcher = fused([vse(5, backbone()), vse(4, backbone())])
    matcher.load_pretrained()
    assert all(part.pretrained.scale == 0.5 for part in matcher.parts)
    assert all(one.scale != 0.5 for one in tiny[1:])


def test_word_vectors_and_data_reach_all_parts():
    matcher = fused(PARTS["two sizes"])
    found = torch.arange(len(WORDS)) == 5
    matcher.load_word_vectors(torch.full((len(WORDS), 3), 7.0), found)
    assert all((part.text.words.weight[5] == 7).all() for part in matcher.parts)
    settings = FusedSettings(parts=PARTS["heads"], shares=(0.5, 0.5)).for_data(33, (9,))
    assert [settings.parts[0].words, settings.parts[1].base.words] == [33, 33]
    assert [settings.parts[0].image.shape, settings.parts[1].base.image.shape] == [(9,), (9,)]


def test_fitted_text_towers_are_not_taken_for_each_other():
    fitted = VSESettings(
        joint=5, text=TfidfSettings(), image=FeatureSettings(shape=(6,)), words=len(WORDS), text_projection=True
    )
    one, both = fused([vse(5), fitted]), fused([fitted, fitted])
    assert one.fitted_text_tower is one.parts[1].text
    assert both.fitted_text_tower is None


def test_settings_survive_a_recipe():
    settings = FusedSettings(parts=PARTS["heads"], shares=(0.25, 0.75))
    recipe = parse_recipe({"model": settings.model_dump(mode="json"), "stage": [{"objective": {"name": "mvn"}}]})
    assert recipe.model == settings
    with torch.device("meta"):
        assert recipe.model.build().embedding_dim == 8


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([vse(), vse(image=FeatureSettings(shape=(7,)))], r"'vse' reads features of 6, 'vse' features of 7; all parts"),
        ([vse(), vse(image=CNNSettings(pixels=16))], r"'vse' reads features of 6, 'vse' pixels of 3 x 16 x 16; all"),
        (
            [vse(image=backbone()), vse(image=backbone(crops="1C"))],
            r"reads crops of 3 x 32 x 32, 'views' after resizing by 'square', 'vse' crops of 3 x 32 x 32, '1C' after",
        ),
        ([vse(image=backbone()), vse(image=backbone(side=64))], r"reads crops of 3 x 32 x 32.* crops of 3 x 64 x 64"),
        (
            [vse(image=backbone()), vse(image=backbone(weights="own.safetensors"))],
            r"has the backbone 'tiny', 'vse' the backbone 'tiny' with the weights own\.safetensors; all parts",
        ),
        (
            [vse(), OrderSettings(**vse().model_dump(exclude={"name"}))],
            "the score of 'order' is not an inner product; leave it out",
        ),
    ],
)
@pytest.mark.usefixtures("tiny")
def test_parts_that_do_not_fit_are_refused_in_one_sentence(parts, message):
    with pytest.raises(RecipeError, match=f"^fused: .*{message}") as error:
        FusedSettings(parts=parts, shares=(0.5, 0.5)).build()
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("tiny")
def test_a_side_that_is_the_default_is_the_same_input():
    assert fused([vse(image=backbone()), vse(image=backbone(side=32))]).image_input.shape == (3, 32, 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shares": [0.5, 0.4]}, "the shares sum to 0.9; they must sum to 1"),
        ({"shares": [0.5, 0.25, 0.25]}, "3 shares of 2 parts; give one each"),
        ({"spreads": [0.5]}, "1 spreads of 2 parts; give one each"),
        ({"spreads": [0.5, 0.0]}, "greater than 0"),
        ({"shares": [1.5, -0.5]}, "less than or equal to 1"),
        ({"parts": [{"name": "vse"}]}, "at least 2 items"),
        ({"parts": [{"name": "vse"}, {"name": "vze"}]}, r"model\.parts\.2\.name = 'vze': no such name; did you mean"),
        ({"parts": 3}, r"parts = 3"),
    ],
)
def test_mistakes_in_a_recipe_are_named_in_one_line(changes, message):
    table = {"name": "fused", "parts": [{"name": "vse"}, {"name": "vse"}], "shares": [0.5, 0.5], **changes}
    with pytest.raises(RecipeError, match=message) as error:
        resolve("models.matchers", table, "model", ModelSettings)
    assert "\n" not in str(error.value)
