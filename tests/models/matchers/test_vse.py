import pytest
import torch
from torch.nn.functional import normalize

from diptych.errors import RecipeError
from diptych.models.matchers.vse import VSE, VSESettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings

TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0]]), torch.tensor([4, 3]))


def features(**changes):
    image = changes.pop("image", FeatureSettings(shape=(6,)))
    torch.manual_seed(0)
    return VSE(
        VSESettings(joint=5, text=GRUSettings(hidden=changes.pop("hidden", 5), word=3), image=image, words=9, **changes)
    )


def test_scores_are_cosines_of_the_projections():
    matcher = features()
    images = torch.randn(3, 6)
    encoded, texts = matcher.encode_images(images), matcher.encode_texts(TOKENS)
    expected = normalize(images @ matcher.project.weight.t() + matcher.project.bias)
    torch.testing.assert_close(encoded, expected)
    torch.testing.assert_close(texts, normalize(matcher.text.plain(TOKENS)))
    scores = matcher.score(encoded, texts)
    for i in range(3):
        for j in range(2):
            assert scores[i, j].item() == pytest.approx(torch.dot(encoded[i], texts[j]).item(), abs=1e-6)


def test_either_side_can_stay_unnormalised():
    matcher = features(normalise_images=False, normalise_texts=False)
    assert not torch.allclose(matcher.encode_images(torch.randn(3, 6)).norm(dim=1), torch.ones(3))
    assert not torch.allclose(matcher.encode_texts(TOKENS).norm(dim=1), torch.ones(2))


def test_features_can_be_normalised_before_the_projection():
    matcher = features(image=FeatureSettings(shape=(6,), normalise=True))
    images = torch.randn(3, 6)
    torch.testing.assert_close(matcher.encode_images(images), matcher.encode_images(7 * images))


def test_text_projection_allows_another_hidden_size():
    assert features(hidden=7, text_projection=True).encode_texts(TOKENS).shape == (2, 5)
    with pytest.raises(RecipeError, match="text_projection = true"):
        features(hidden=7)


def test_a_square_text_projection_begins_as_none():
    plain, projected = features(), features(text_projection=True)
    projected.text.load_state_dict(plain.text.state_dict())
    torch.testing.assert_close(projected.encode_texts(TOKENS), plain.encode_texts(TOKENS))
    assert projected.project_text.weight.requires_grad
    other = features(hidden=7, text_projection=True).project_text
    assert (other.weight.abs() > 0).all()  # Xavier, as for images
    assert other.weight.abs().max() <= (6 / (7 + 5)) ** 0.5
    assert (other.bias == 0).all()


def test_regions_are_averaged():
    matcher = features(image=FeatureSettings(shape=(4, 6)))
    regions = torch.randn(2, 4, 6)
    torch.testing.assert_close(matcher.encode_images(regions), normalize(matcher.project(regions.mean(1))))


def test_from_pixels_sees_where_things_are():
    matcher = features(image=CNNSettings(pixels=32, width=4)).eval()
    left = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    left[:, :, :, :8] = 255
    assert matcher.encode_images(left).shape == (1, 5)
    assert not torch.allclose(matcher.encode_images(left), matcher.encode_images(left.flip(3)))


def test_initial_weights_are_the_originals():
    matcher = features()
    bound = (6 / (6 + 5)) ** 0.5
    assert matcher.project.weight.abs().max() <= bound
    assert (matcher.project.bias == 0).all()
    assert matcher.text.words.weight.abs().max() <= 0.1
    assert VSESettings().joint == VSESettings().text.hidden == 1024
    assert VSESettings().text.word == 300


def test_word_vectors_start_the_found_words_only():
    matcher = features()
    before = matcher.text.words.weight.detach().clone()
    found = torch.tensor([False] * 4 + [True] * 2 + [False] * 3)
    matcher.load_word_vectors(torch.full((9, 3), 7.0), found)
    assert (matcher.text.words.weight[found] == 7).all()
    torch.testing.assert_close(matcher.text.words.weight[~found], before[~found])
    with pytest.raises(RecipeError, match=r"model\.text\.word = 4"):
        matcher.load_word_vectors(torch.zeros(9, 4), found)


def test_dropout_of_the_image_vector_acts_in_training_only():
    matcher = features(dropout=0.5, image=FeatureSettings(shape=(64,)))
    images = torch.randn(3, 64)
    assert not torch.equal(matcher.train().encode_images(images), matcher.encode_images(images))
    assert torch.equal(matcher.eval().encode_images(images), matcher.encode_images(images))
