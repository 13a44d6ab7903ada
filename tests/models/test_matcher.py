"""The interface's defaults, and what each model declares that it can do."""

import pytest
import torch

from diptych.models.matcher import Matcher
from diptych.models.matchers.bfan import BFANSettings
from diptych.models.matchers.cca import CCASettings
from diptych.models.matchers.dual_path import DualPathSettings
from diptych.models.matchers.order import OrderSettings
from diptych.models.matchers.projected import Head, Projected, ProjectedSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.similarity_net import SimilarityNetSettings
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.matchers.vsrn import VSRNSettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.image.regions import RegionSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.fisher import FisherSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.towers.text.mean import MeanSettings
from diptych.models.towers.text.words import WordsSettings
from diptych.text.vocabulary import Vocabulary

FEATURES = {"image": FeatureSettings(shape=(4,)), "text": GRUSettings(hidden=3, word=2), "words": 9}
REGIONS = {"image": RegionFeatureSettings(shape=(2, 4)), "words": 9}
PROPOSED = {**FEATURES, "image": RegionSettings()}
LAYERS = {"image_layers": (3,), "text_layers": (3,)}

# What a model declares, apart from the defaults.
DECLARED = {
    "vse": (VSESettings(joint=3, **FEATURES), {"embedding_dim": 3, "compares_within_modality": True}),
    "order": (
        OrderSettings(joint=3, **FEATURES),
        {"embedding_dim": 3, "compares_within_modality": True, "is_inner_product": False},
    ),
    "vsrn": (
        VSRNSettings(joint=3, **REGIONS, text=GRUSettings(hidden=3, word=2)),
        {"embedding_dim": 3, "compares_within_modality": True, "extra_terms": ("generation",)},
    ),
    "scan": (
        SCANSettings(joint=3, **REGIONS, direction="i2t"),
        {"is_inner_product": False, "attention_direction": "i2t"},
    ),
    "bfan": (BFANSettings(joint=3, **REGIONS), {"is_inner_product": False, "attention_direction": "t2i"}),
    "two_branch": (
        TwoBranchSettings(**FEATURES, **LAYERS),
        {"embedding_dim": 3, "compares_within_modality": True},
    ),
    "two_branch of regions": (
        TwoBranchSettings(**PROPOSED, **LAYERS),
        {"compares_within_modality": True, "is_inner_product": False, "localises": True},
    ),
    "similarity_net": (SimilarityNetSettings(**FEATURES, **LAYERS), {"is_inner_product": False}),
    "similarity_net of regions": (
        SimilarityNetSettings(**PROPOSED, **LAYERS),
        {"is_inner_product": False, "localises": True},
    ),
    "cca": (
        CCASettings(joint=3, **FEATURES),
        {"embedding_dim": 3, "compares_within_modality": True, "solves_in_closed_form": True},
    ),
    "cca of regions": (
        CCASettings(joint=3, **PROPOSED),
        {"is_inner_product": False, "localises": True, "solves_in_closed_form": True},
    ),
    "dual_path": (
        DualPathSettings(joint=3, hidden=3, **FEATURES),
        {"embedding_dim": 3, "compares_within_modality": True, "reads_views": True, "shifts_texts": True},
    ),
}
DEFAULTS = {
    "embedding_dim": None,
    "is_inner_product": True,
    "compares_within_modality": False,
    "reads_views": False,
    "localises": False,
    "shifts_texts": False,
    "attention_direction": None,
    "extra_terms": (),
    "solves_in_closed_form": False,
    "base_model": None,
    "offers_unnormalised": False,
}


def built(settings):
    with torch.device("meta"):
        return settings.build()


@pytest.mark.parametrize("name", DECLARED)
def test_a_model_declares_what_it_can_do(name):
    settings, declared = DECLARED[name]
    matcher = built(settings)
    declared = {"offers_unnormalised": name in ("vse", "order", "vsrn", "dual_path"), **declared}
    assert {capability: getattr(matcher, capability) for capability in DEFAULTS} == {**DEFAULTS, **declared}


def test_a_head_passes_on_what_its_base_declares():
    base = built(DECLARED["dual_path"][0])
    projected = Projected(base, Head(hidden=5, output=2))
    declared = {"embedding_dim": 2, "compares_within_modality": True, "reads_views": True, "base_model": base}
    declared["offers_unnormalised"] = True
    assert {capability: getattr(projected, capability) for capability in DEFAULTS} == {**DEFAULTS, **declared}
    unnormalised = Projected(base, Head(hidden=5, output=2, normalise_input=False)).base_model
    assert unnormalised.matcher is base


def test_the_encodings_of_a_base_with_terms_of_its_own_are_not_enough():
    assert Projected(built(DECLARED["vsrn"][0]), Head(hidden=5, output=2)).base_model is None


@pytest.mark.parametrize("name", ["vse", "order", "vsrn", "scan", "bfan"])
def test_a_model_with_a_gru_shares_prefixes(name):
    matcher = built(DECLARED[name][0])
    assert matcher.shares_prefixes
    if name == "vse":
        assert Projected(matcher, Head(hidden=5, output=2)).shares_prefixes
        words = VSESettings(joint=3, **{**FEATURES, "text": WordsSettings(word=2, hidden=3)})
        assert not built(words).shares_prefixes


def test_what_a_model_cannot_do_names_the_model():
    matcher = built(DECLARED["vse"][0])
    tokens = Tokens(torch.zeros(1, 2, dtype=torch.long), torch.tensor([2]))
    rows = torch.zeros(1, dtype=torch.long)
    for refused in (
        lambda: matcher.attention(torch.zeros(3), torch.zeros(3)),
        lambda: matcher.set_text_shifts("mean"),
        lambda: matcher.accumulate(torch.zeros(1, 4), tokens, rows, rows),
        matcher.solutions,
        lambda: matcher.encode_base_images(torch.zeros(1, 3)),
        lambda: matcher.encode_base_texts(torch.zeros(1, 3)),
    ):
        with pytest.raises(NotImplementedError, match="'vse'"):
            refused()
    for refused in (Matcher.unnormalised_images, Matcher.unnormalised_texts):
        with pytest.raises(NotImplementedError, match="'vse' has no embeddings before their normalisation"):
            refused(matcher, tokens)


def test_the_fitted_text_tower_is_found_behind_a_head():
    fitted = built(VSESettings(joint=3, words=9, image=FEATURES["image"], text=MeanSettings(word=3)))
    assert fitted.fitted_text_tower is fitted.text
    assert Projected(fitted, Head(hidden=5, output=2)).fitted_text_tower is fitted.text
    assert built(DECLARED["vse"][0]).fitted_text_tower is None


def test_the_text_tower_with_features_to_store_is_found_behind_a_head():
    fisher = FisherSettings(word=3, centres=1)
    cached = built(VSESettings(joint=6, words=9, image=FEATURES["image"], text=fisher))
    assert cached.cached_text_tower is cached.text
    assert Projected(cached, Head(hidden=5, output=2)).cached_text_tower is cached.text
    assert built(DECLARED["vse"][0]).cached_text_tower is None
    cached.second = fisher.build(9)  # features of two towers cannot be told apart
    assert cached.cached_text_tower is None


@pytest.mark.parametrize("weights", [None, "own.safetensors"])
def test_the_file_of_the_pretrained_weights(weights):
    tower = BackboneSettings(weights=weights)
    matcher = built(VSESettings(joint=3, words=9, image=tower, text=FEATURES["text"]))
    assert matcher.pretrained_weights == matcher.image.pretrained_weights
    assert (None if weights is None else matcher.pretrained_weights.name) == weights
    assert built(DECLARED["vse"][0]).pretrained_weights is None


class Counting(Matcher):
    """Scores by a product, and remembers how many images each call had."""

    image_input = None

    def __init__(self):
        super().__init__()
        self.calls = []

    def encode_images(self, images):
        return images

    def encode_texts(self, tokens):
        return tokens.ids.float()

    def score(self, images, texts):
        self.calls.append(len(images))
        return images @ texts.t()

    def load_pretrained(self):
        """Nothing to load."""

    def load_word_vectors(self, vectors, found):
        """Nothing to load."""


def test_pairs_are_scored_in_small_blocks_of_which_the_diagonal_is_used():
    matcher, sides = Counting(), torch.randn(2, 37, 5)
    torch.testing.assert_close(matcher.score_pairs(*sides), (sides[0] * sides[1]).sum(1))
    assert matcher.calls == [16, 16, 5]


def test_a_batch_is_encoded_side_by_side_without_further_terms():
    images, tokens = torch.randn(2, 3), Tokens(torch.tensor([[1, 2]]), torch.tensor([2]))
    encoded = Counting().encode_batch(images, tokens, torch.tensor([1]))
    assert torch.equal(encoded.images, images)
    assert torch.equal(encoded.texts, tokens.ids.float())
    assert (encoded.terms, encoded.features) == ({}, None)


class OwnTokeniser(GRUSettings):
    """A text tower with a tokeniser of its own."""

    def tokeniser(self):
        return OWN


OWN = Vocabulary(("own",), (1,), 1)


def test_a_model_has_the_tokeniser_of_its_text_tower():
    plain, own = (VSESettings(joint=3, text=text(hidden=3)) for text in (GRUSettings, OwnTokeniser))
    assert plain.tokeniser() is None
    assert own.tokeniser() is OWN
    assert ProjectedSettings(base=ProjectedSettings(base=own)).tokeniser() is OWN
    assert ProjectedSettings(base=plain).tokeniser() is None
    assert TwoBranchSettings(text=OwnTokeniser(), **LAYERS).tokeniser() is OWN
