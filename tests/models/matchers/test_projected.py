"""Heads on embedding models: the two layers by hand, on any base, on disk and back."""

import copy

import numpy as np
import pytest
import torch

from diptych.errors import RecipeError, RunError
from diptych.model import Model
from diptych.models.matcher import ModelSettings
from diptych.models.matchers.order import OrderSettings
from diptych.models.matchers.projected import Head, Projected, ProjectedSettings
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.matchers.vsrn import VSRNSettings
from diptych.models.storage import load_matcher, load_tensors, save_matcher, save_tensors
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.registry import resolve
from diptych.text.vocabulary import Vocabulary
from diptych.training.recipe import parse_recipe
from diptych.training.recipe_loader import load_recipe
from support.matchers import InteractionSettings

WORDS = Vocabulary.from_texts(["a red circle above one blue square"], 1)
TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0]]), torch.tensor([4, 3]))
TOWERS = {
    "joint": 5,
    "text": GRUSettings(hidden=5, word=3),
    "image": FeatureSettings(shape=(6,)),
    "words": len(WORDS),
}
BASES = {
    "vse": VSESettings(**TOWERS),
    "vse unnormalised": VSESettings(**TOWERS, normalise_images=False, normalise_texts=False),
    "order": OrderSettings(**TOWERS, absolute=True),
    "projected": ProjectedSettings(base=VSESettings(**TOWERS), head=Head(hidden=4, output=7)),
}
INNER_PRODUCTS = [name for name in BASES if name != "order"]


def attached(base="vse", **head):
    torch.manual_seed(0)
    matcher = Projected(BASES[base].build(), Head(**{"hidden": 8, "output": 3, **head}))
    with torch.no_grad():  # what begins at zero would not be missed if it were not added
        for name, parameter in matcher.named_parameters():
            if name.startswith("head_") and not parameter.any():
                parameter.uniform_(-1, 1)
    return matcher


def by_hand(layers, inputs, residual=False):
    """Two layers, a rectifier between them, what they are added to, and the length, a row at a time in numpy."""
    numbers = {name: value.detach().double().numpy() for name, value in layers.named_parameters()}
    rows = []
    for row in inputs.detach().double().numpy():
        hidden = np.array([np.sum(line * row) for line in numbers["0.weight"]]) + numbers.get("0.bias", 0)
        last = np.array([np.sum(line * np.where(hidden > 0, hidden, 0)) for line in numbers["2.weight"]])
        last = last + numbers["2.bias"] + (row if residual else 0)
        rows.append(last / np.sqrt(np.sum(last**2)))
    return torch.tensor(np.array(rows))


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("base", list(BASES))
def test_both_sides_equal_two_layers_by_hand(base, bias):
    matcher = attached(base, bias=bias)
    inputs = torch.randn(4, 6)
    images, texts = matcher.encode_images(inputs), matcher.encode_texts(TOKENS)
    of_base = matcher.base.encode_images(inputs), matcher.base.encode_texts(TOKENS)
    torch.testing.assert_close(images.double(), by_hand(matcher.head_images, of_base[0]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(texts.double(), by_hand(matcher.head_texts, of_base[1]), rtol=1e-4, atol=1e-5)
    assert not torch.equal(matcher.head_images[0].weight, matcher.head_texts[0].weight)  # a head a side


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("base", INNER_PRODUCTS)
def test_residual_heads_equal_the_equation_by_hand(base, bias):
    matcher = attached(base, bias=bias, residual=True, output=None)
    inputs = torch.randn(4, 6)
    of_base = matcher.base.encode_images(inputs), matcher.base.encode_texts(TOKENS)
    images, texts = matcher.encode_images(inputs), matcher.encode_texts(TOKENS)
    torch.testing.assert_close(images.double(), by_hand(matcher.head_images, of_base[0], True), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(texts.double(), by_hand(matcher.head_texts, of_base[1], True), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(images, torch.nn.functional.normalize(of_base[0], dim=1), atol=0.01)
    batch = matcher.encode_batch(inputs, TOKENS, torch.tensor([0, 1]))
    torch.testing.assert_close(batch.images, images)
    torch.testing.assert_close(batch.texts, texts)


def before_normalisation(base, inputs):
    """What each base normalises, from its own parts."""
    if isinstance(base, Projected):
        below = base.base.encode_images(inputs), base.base.encode_texts(TOKENS)
        return base.head_images(below[0]), base.head_texts(below[1])
    return base.project(base.image(inputs)), base.project_text(base.text(TOKENS))


@pytest.mark.parametrize(
    ("base", "residual"), [*((base, False) for base in BASES), *((base, True) for base in INNER_PRODUCTS)]
)
def test_heads_can_read_what_the_base_normalises(base, residual):
    """Algorithm 1 of the ConVSE paper: fc, head, then the length."""
    matcher = attached(base, normalise_input=False, residual=residual, **({"output": None} if residual else {}))
    inputs = 9 * torch.randn(4, 6)
    expected = [
        by_hand(layers, vectors, residual)
        for layers, vectors in zip(
            (matcher.head_images, matcher.head_texts), before_normalisation(matcher.base, inputs), strict=True
        )
    ]
    batch = matcher.encode_batch(inputs, TOKENS, torch.tensor([0, 1]))
    for images, texts in ((matcher.encode_images(inputs), matcher.encode_texts(TOKENS)), (batch.images, batch.texts)):
        torch.testing.assert_close(images.double(), expected[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(texts.double(), expected[1], rtol=1e-4, atol=1e-5)
    if base != "vse unnormalised":  # otherwise nothing would have been tested
        other = Projected(matcher.base, matcher.settings.head.model_copy(update={"normalise_input": True}))
        other.load_state_dict(matcher.state_dict())
        assert not torch.allclose(other.encode_images(inputs), matcher.encode_images(inputs), atol=1e-3)


def test_a_base_that_only_has_normalised_embeddings_is_named():
    base = TwoBranchSettings(
        image=TOWERS["image"], text=TOWERS["text"], words=len(WORDS), image_layers=(5,), text_layers=(5,)
    ).build()
    with pytest.raises(RecipeError, match=r"'two_branch' has no embeddings before .*; set normalise_input = true") as (
        caught
    ):
        Projected(base, Head(normalise_input=False))
    assert "\n" not in str(caught.value)
    assert Projected(base, Head()).embedding_dim == 1024


def test_a_file_from_before_the_setting_keeps_its_meaning(tmp_path):
    """Heads read normalised embeddings before there was `normalise_input`: files without the key still do."""
    matcher = attached(bias=False)
    path = tmp_path / "weights.safetensors"
    save_matcher(path, matcher, WORDS, {})
    tensors, about = load_tensors(path)
    assert about["model"]["head"].pop("normalise_input") is True
    assert about["model"]["head"] == {"hidden": 8, "output": 3, "bias": False, "residual": False}
    save_tensors(path, tensors, about)
    again, images = load_matcher(path, WORDS), torch.randn(4, 6)
    assert torch.equal(again.encode_images(images), matcher.encode_images(images))
    (tmp_path / "recipe.toml").write_text(
        'model = { name = "vse" }\n[[stage]]\nobjective = { name = "mvn" }\n'
        "head = { hidden = 8, output = 3, bias = false, residual = false }\n"
    )
    assert load_recipe(str(tmp_path / "recipe.toml")).stage[0].head == matcher.settings.head


@pytest.mark.parametrize("normalise_input", [True, False], ids=["of embeddings", "before normalisation"])
@pytest.mark.parametrize("base", ["vse", "projected"])
def test_residual_heads_start_as_the_base(base, normalise_input):
    torch.manual_seed(0)
    matcher = Projected(BASES[base].build(), Head(hidden=8, residual=True, normalise_input=normalise_input))
    images, inputs = matcher.encode_images(torch.randn(9, 6, generator=torch.manual_seed(1))), TOKENS
    of_base = matcher.base.encode_images(torch.randn(9, 6, generator=torch.manual_seed(1)))
    torch.testing.assert_close(images, of_base, rtol=0, atol=1e-7)
    scores = matcher.score(images, matcher.encode_texts(inputs))
    expected = matcher.base.score(of_base, matcher.base.encode_texts(inputs))
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-6)
    assert torch.equal(scores.argsort(0), expected.argsort(0))
    for layers in (matcher.head_images, matcher.head_texts):
        assert layers[0].weight.any()  # else nothing would ever be learned
        assert not layers[2].weight.any()
        assert not layers[2].bias.any()


def test_the_output_of_a_residual_head_is_that_of_its_base(tmp_path):
    matcher = Projected(BASES["projected"].build(), Head(hidden=8, residual=True))
    assert matcher.settings.head == Head(hidden=8, residual=True, output=7)
    assert matcher.embedding_dim == 7
    with pytest.raises(RecipeError, match=r"head\.output = 6: a residual head adds to vectors of size 7; leave output"):
        Projected(BASES["projected"].build(), Head(hidden=8, residual=True, output=6))
    recipe = load_recipe("vsepp", ["stage.1.head={residual=true, hidden=8}"])
    assert recipe.stage[0].head.output is None
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    assert load_recipe(str(tmp_path / "recipe.toml")) == recipe


def test_a_residual_head_on_another_score_than_the_inner_product_is_refused():
    with pytest.raises(RecipeError, match=r"head\.residual: .* the score of 'order' is another; leave residual out"):
        Projected(BASES["order"].build(), Head(residual=True))


@pytest.mark.parametrize("base", list(BASES))
def test_scores_are_cosines_of_unit_vectors_whatever_the_base_scores(base):
    matcher = attached(base)
    images, texts = matcher.encode_images(torch.randn(4, 6)), matcher.encode_texts(TOKENS)
    assert matcher.embedding_dim == 3
    assert images.shape == (4, 3)
    assert texts.shape == (2, 3)
    torch.testing.assert_close(images.norm(dim=1), torch.ones(4))
    torch.testing.assert_close(texts.norm(dim=1), torch.ones(2))
    scores = matcher.score(images, texts)
    assert scores.shape == (4, 2)
    for i in range(4):
        for j in range(2):
            assert scores[i, j].item() == pytest.approx(torch.dot(images[i], texts[j]).item(), abs=1e-6)
    assert matcher.image_input == matcher.base.image_input


def test_the_first_bias_can_be_left_out_and_only_that():
    names = {name for name, _ in attached(bias=False).head_texts.named_parameters()}
    assert names == {"0.weight", "2.weight", "2.bias"}
    assert {name for name, _ in attached().head_texts.named_parameters()} == names | {"0.bias"}


def test_heads_begin_as_xavier_does_and_with_the_sizes_of_the_paper():
    assert (Head().hidden, Head().output, Head().bias) == (2048, 1024, True)
    torch.manual_seed(0)
    fresh = Projected(BASES["vse"].build(), Head(hidden=40, output=30))
    for layers in (fresh.head_images, fresh.head_texts):
        for layer, bound in ((layers[0], (6 / 45) ** 0.5), (layers[2], (6 / 70) ** 0.5)):
            assert layer.weight.abs().max() <= bound
            assert layer.weight.abs().max() > 0.9 * bound
            assert (layer.bias == 0).all()


@pytest.mark.parametrize("base", list(BASES))
def test_attaching_keeps_the_base_as_it_is(base):
    torch.manual_seed(0)
    trained = BASES[base].build()
    before = copy.deepcopy(trained.state_dict())
    matcher = Projected(trained, Head(hidden=8, output=3))
    kept = {name.removeprefix("base."): v for name, v in matcher.state_dict().items() if name.startswith("base.")}
    assert kept.keys() == before.keys()
    assert all(torch.equal(kept[name], value) for name, value in before.items())
    assert matcher.settings.base == BASES[base]


@pytest.mark.parametrize(
    ("base", "head"),
    [*((base, {}) for base in BASES), *((base, {"residual": True, "output": None}) for base in INNER_PRODUCTS)],
)
def test_a_file_gives_back_the_same_matcher(base, head, tmp_path):
    matcher = attached(base, bias=False, **head)
    save_matcher(tmp_path / "run" / "best" / "weights.safetensors", matcher, WORDS, {})
    WORDS.save(tmp_path / "run")
    again = load_matcher(tmp_path / "run" / "best" / "weights.safetensors", WORDS)
    opened = Model.load(tmp_path / "run", "cpu")
    images = torch.randn(4, 6)
    for other in (again, opened.matcher):
        assert isinstance(other, Projected)
        assert other.settings == matcher.settings
        assert torch.equal(other.encode_images(images), matcher.encode_images(images))
        assert torch.equal(other.encode_texts(TOKENS), matcher.encode_texts(TOKENS))
    assert opened.torch_engine.text_tensor(["a red circle"]).shape == (1, matcher.embedding_dim)


def test_a_file_with_other_layers_is_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    matcher = attached()
    matcher.settings = matcher.settings.model_copy(update={"head": Head(hidden=9, output=3)})
    save_matcher(path, matcher, WORDS, {})
    with pytest.raises(RunError, match=r"does not fit the model: head_\w+\.\d\.\w+ is"):
        load_matcher(path, WORDS)


@pytest.mark.parametrize("base", list(BASES))
def test_settings_survive_a_recipe(base, tmp_path):
    settings = ProjectedSettings(base=BASES[base], head=Head(hidden=8, output=64, bias=False))
    recipe = parse_recipe({"model": settings.model_dump(), "stage": [{"objective": {"name": "mvn"}}]})
    assert recipe.model == settings
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    again = load_recipe(str(tmp_path / "recipe.toml"))
    assert again == recipe
    assert again.model.base == BASES[base]
    assert type(again.model.base) is type(BASES[base])


def test_a_stage_keeps_its_head_in_a_recipe(tmp_path):
    recipe = load_recipe("vsepp", ["stage.1.head={output=64, bias=false}"])
    assert recipe.stage[0].head == Head(hidden=2048, output=64, bias=False)
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    assert load_recipe(str(tmp_path / "recipe.toml")) == recipe
    assert load_recipe("vsepp").stage[0].head is None


def test_fitting_reaches_the_base():
    fitted = ProjectedSettings(base=VSESettings(joint=5, text=GRUSettings(hidden=5, word=3))).for_data(11, (6,))
    assert fitted.base.words == 11
    assert fitted.base.image.shape == (6,)


def test_word_vectors_reach_the_base():
    matcher = attached("projected")
    found = torch.arange(len(WORDS)) == 5
    matcher.load_word_vectors(torch.full((len(WORDS), 3), 7.0), found)
    assert (matcher.base.base.text.words.weight[5] == 7).all()
    assert not (matcher.base.base.text.words.weight[6] == 7).any()


def test_mistakes_are_named_in_one_line():
    base = BASES["vse"].model_dump()
    for section, message in (
        ({"base": {**base, "name": "vze"}}, r"model\.base\.name = 'vze': no such name; did you mean 'vse'"),
        ({}, r"key 'base' is missing"),
        ({"base": base, "head": {"outputs": 3}}, r"unknown key 'head\.outputs'; did you mean 'output'"),
        ({"base": base, "head": {"output": 0}}, r"head\.output = 0: .*greater than or equal to 1"),
        ({"base": base, "head": {"residual": 1}}, r"head\.residual = 1: .*boolean"),
    ):
        with pytest.raises(RecipeError, match=message) as caught:
            resolve("models.matchers", {"name": "projected", **section}, "model", ModelSettings)
        assert "\n" not in str(caught.value)


def test_a_matcher_without_joint_space_takes_no_head():
    matcher = InteractionSettings().build()
    assert matcher.embedding_dim is None
    with pytest.raises(RecipeError, match=r"head: needs an embedding model.*:InteractionSettings' is not") as caught:
        Projected(matcher, Head())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("normalise_input", [True, False], ids=["of embeddings", "before normalisation"])
def test_the_bases_own_loss_goes_on_beneath_heads(normalise_input):
    torch.manual_seed(0)
    regions = RegionFeatureSettings(shape=(3, 6))
    base = VSRNSettings(joint=5, image=regions, text=GRUSettings(hidden=5, word=3), words=9).build().eval()
    matcher = Projected(base, Head(hidden=7, output=4, normalise_input=normalise_input)).eval()
    for layers in (matcher.head_images, matcher.head_texts):  # without biases, the length of the input has no effect
        torch.nn.init.normal_(layers[0].bias)
    tokens = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0], [1, 7, 2, 0]]), torch.tensor([4, 3, 3]))
    given = torch.randn(2, 3, 6), tokens, torch.tensor([1, 0])  # the third text is a negative
    encoded = matcher.encode_batch(*given)
    assert matcher.extra_terms == tuple(encoded.terms) == ("generation",)
    torch.testing.assert_close(encoded.terms["generation"], base.encode_batch(*given).terms["generation"])
    torch.testing.assert_close(encoded.images, matcher.encode_images(given[0]))
    torch.testing.assert_close(encoded.texts, matcher.encode_texts(tokens))
