"""Encodings of a corpus, kept in memory and in a file that scores without weights."""

import numpy as np
import pytest
import torch

from diptych.data.formats.scenes import make_scenes
from diptych.errors import RunError
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import load_tensors, save_tensors
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings

SETTINGS = VSESettings(joint=4, image=FeatureSettings(shape=(3,)), text=GRUSettings(hidden=4, word=2), words=9)


def encoded(matcher=None):
    corpus = make_scenes(train=1, val=1, test=3, texts=2).split("test")
    torch.manual_seed(0)
    return EncodedCorpus.from_matcher(
        matcher or SETTINGS.build(), corpus, torch.randn(3, 4), torch.randn(6, 4), {"4.png": "broken"}
    )


def test_it_has_the_groups_and_the_digest_of_its_corpus():
    one = encoded()
    assert one.settings == SETTINGS
    assert one.image_groups.tolist() == one.corpus.image_groups.tolist()
    assert one.text_groups.tolist() == one.corpus.text_groups.tolist()
    assert one.digest == one.corpus.digest()
    assert one.skipped == {"4.png": "broken"}


def test_the_matcher_is_the_one_that_encoded_it():
    matcher = SETTINGS.build()
    assert encoded(matcher).matcher() is matcher


def test_from_a_file_it_scores_without_weights(tmp_path):
    before = encoded()
    before.save(tmp_path / "a.safetensors")
    after = EncodedCorpus.load(tmp_path / "a.safetensors")
    assert (after.settings, after.digest, after.corpus, after.skipped) == (SETTINGS, before.digest, None, {})
    assert np.array_equal(after.image_groups, before.image_groups)
    assert np.array_equal(after.text_groups, before.text_groups)
    assert all(parameter.is_meta for parameter in after.matcher().parameters())
    torch.testing.assert_close(after.matcher().score(after.images, after.texts), before.images @ before.texts.T)


def test_other_files_are_refused(tmp_path):
    file = tmp_path / "a.safetensors"
    encoded().save(file)
    tensors, about = load_tensors(file)
    save_tensors(file, {"images": tensors["images"]}, about)
    with pytest.raises(RunError, match="not a file of encodings; make one with `diptych encode"):
        EncodedCorpus.load(file)
    save_tensors(file, {**tensors, "text_groups": torch.arange(5)}, about)
    with pytest.raises(RunError, match="encodings and groups differ in number"):
        EncodedCorpus.load(file)
    save_tensors(file, tensors, {**about, "model": {"name": "none"}})
    with pytest.raises(RunError, match="'none': no such name"):
        EncodedCorpus.load(file)
