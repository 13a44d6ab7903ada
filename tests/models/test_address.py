import hashlib
import shutil

import numpy as np
import pytest
from PIL import Image

from diptych.errors import RunError
from diptych.files import file_hash
from diptych.model import Model
from diptych.models.address import ModelFiles, address_name, names_pair, run_folder


def test_the_starter_is_in_the_package_small_whole_and_told_about():
    folder = run_folder("starter")
    assert (folder / "best" / "weights.safetensors").stat().st_size < 25e6
    card = (folder / "card.md").read_text(encoding="utf-8")
    for told in ("diptych train", "Flickr8k", "R@1", "What it cannot do"):
        assert told in card
    model = Model.load("starter", "cpu")
    texts = model.encode_texts(["a dog runs on grass", "a dog is running on the grass", "a man climbs a rock"])
    assert np.linalg.norm(texts, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    assert texts[0] @ texts[1] > texts[0] @ texts[2] + 0.3
    german, french = model.encode_texts(["ein Hund läuft auf dem Gras", "un homme escalade un rocher"])
    assert german @ texts[0] > german @ texts[2] + 0.3
    assert french @ texts[2] > french @ texts[0] + 0.3
    images = model.encode_images([Image.new("RGB", (40, 30), colour) for colour in ("green", "black")])
    assert (images @ model.encode_texts(["green grass"])[0]).argmax() == 0
    assert model.identity == ModelFiles.find(folder).identity()


def test_a_run_here_that_is_called_starter_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "starter").mkdir()
    assert run_folder("starter").is_absolute()
    for name in ("vocabulary.json", "tokeniser.json"):
        (tmp_path / "starter" / name).touch()
        assert run_folder("starter").resolve() == tmp_path / "starter"
        (tmp_path / "starter" / name).unlink()


@pytest.mark.parametrize("name", ["vocabulary.json", "tokeniser.json"])
def test_the_identity_is_of_the_weights_and_the_tokeniser(name, tmp_path):
    (tmp_path / "best").mkdir()
    weights, tokeniser = tmp_path / "best" / "weights.safetensors", tmp_path / name
    weights.write_text("weights")
    tokeniser.write_text("ids")
    expected = hashlib.sha256(f"{file_hash(weights)}\0{file_hash(tokeniser)}".encode()).hexdigest()
    assert ModelFiles.find(tmp_path).identity() == expected
    tokeniser.write_text("other ids")
    assert ModelFiles.find(tmp_path).identity() != expected
    (tmp_path / ("tokeniser.json" if name == "vocabulary.json" else "vocabulary.json")).touch()
    with pytest.raises(RunError, match=r"has both vocabulary\.json and tokeniser\.json"):
        ModelFiles.find(tmp_path)


def test_a_run_that_was_stopped_before_the_end_of_its_first_epoch_has_no_model(tmp_path):
    (tmp_path / "last").mkdir()
    (tmp_path / "vocabulary.json").touch()
    with pytest.raises(RunError, match=r": no epoch has ended, so it has no model yet; continue its training"):
        ModelFiles.find(tmp_path)


def test_a_pair_is_found_where_there_is_no_run(pair_folder, tmp_path):
    folder = pair_folder("clip")
    assert names_pair(folder)
    assert names_pair("open_clip:ViT-B-32/openai")
    assert not names_pair("starter")
    assert not names_pair(tmp_path)
    files = ModelFiles.find(folder)
    assert (files.name, files.is_export, files.pair.architecture.size) == ("clip", False, 16)
    assert folder / "tokenizer.json" in files.paths
    files.check_is_run()
    assert files.identity() == ModelFiles.find(str(folder)).identity()


def test_a_run_beside_files_of_a_pair_stays_a_run(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert names_pair(tmp_path)
    (tmp_path / "vocabulary.json").touch()
    assert not names_pair(tmp_path)


def test_a_pair_that_changes_while_it_is_opened_is_noticed(pair_folder, tmp_path):
    folder = shutil.copytree(pair_folder("clip"), tmp_path / "clip")
    files = ModelFiles.find(folder)
    (folder / "tokenizer.json").touch()
    with pytest.raises(RunError, match="changed while it was opened"):
        files.identity()


def test_short_names(pair_folder):
    assert address_name("runs/first") == "first"
    assert address_name(pair_folder("clip")) == "clip"
    assert address_name("open_clip:ViT-B-32/openai") == "ViT-B-32-openai"
    assert address_name("open_clip:ViT-B-32//tmp/weights") == "ViT-B-32-weights"
