"""A pretrained pair can be named wherever a run can."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import diptych
from diptych.errors import DiptychError
from diptych.mining.lists import HardNegativeLists
from diptych.models.pretrained_pairs import hub

SCENES = "scenes:train=12,val=4,test=5,texts=2"
SIZES = ("--top-texts", 6, "--top-images", 3)


@pytest.fixture(scope="module")
def done(invoke):
    def done(*words):
        result = invoke(*words)
        assert result.exit_code == 0, result.output
        return result

    return done


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["open_clip", "siglip"])
def test_zero_shot_beside_an_ensemble(kind, done, pair_folder):
    alone = json.loads(done("evaluate", pair_folder(kind), SCENES, "--json").stdout)
    assert alone["images"] == 5
    both = json.loads(done("evaluate", pair_folder(kind), pair_folder("clip"), SCENES, "--json").stdout)
    assert both["images"] == 5


def test_a_pair_indexes_and_searches_from_anywhere(done, pair_folder, pairs, tmp_path, monkeypatch):
    shutil.copytree(pair_folder("clip"), "clip")
    pairs.photos(tmp_path / "photos")
    done("index", "clip", "photos", "--into", "p.diptych")
    monkeypatch.chdir("/")
    found = json.loads(done("search", tmp_path / "p.diptych", "a red circle", "--json").stdout)
    assert len(found["hits"]) == 5
    by_photo = json.loads(
        done("search", tmp_path / "p.diptych", "--image", tmp_path / "photos" / "4.jpg", "--json").stdout
    )
    assert by_photo["hits"][0]["key"] == "4.jpg"
    assert by_photo["hits"][0]["score"] == pytest.approx(1, abs=1e-3)


def test_a_pair_mines_into_a_folder_of_its_own(done, pair_folder):
    done("mine", pair_folder("siglip"), SCENES, *SIZES)
    lists = HardNegativeLists.load(Path("lists/siglip.safetensors"))
    assert lists.header.weights == diptych.load(pair_folder("siglip")).identity
    assert not (pair_folder("siglip") / "lists.safetensors").exists()


def test_pairs_are_compared(done, refused, pair_folder, tmp_path):
    done("make", "pair", "--set", f"model.model={pair_folder('clip')}", "--into", "runs/clip")
    runs = pair_folder("open_clip"), pair_folder("siglip"), "runs/clip"
    content = json.loads(done("compare", *runs, "--data", SCENES, "--json", "--into", tmp_path / "compare.html").stdout)
    assert [run["name"] for run in content["runs"]] == ["open_clip", "siglip", "clip"]
    message = refused("compare", *runs[:2])
    assert "a pretrained pair does not say what to measure it on; name the data with --data" in message


def test_a_pair_explains_and_encodes(done, pair_folder, pairs, tmp_path):
    photo = pairs.photos(tmp_path / "photos")[0]
    found = json.loads(done("explain", pair_folder("clip"), photo, "a red circle", "--json").stdout)
    assert {word["word"] for word in found["by_importance"]} == {"a", "red", "circle"}
    done("encode", pair_folder("clip"), SCENES, "--into", "test.safetensors")
    done("evaluate", "test.safetensors")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["clip", "open_clip", "siglip"])
def test_an_export_needs_neither_torch_nor_the_library(kind, done, pair_folder, pairs, tmp_path):
    photos = pairs.photos(tmp_path / "photos")
    done("export", pair_folder(kind), "--onnx", "--into", "exported")
    program = (
        "import sys, numpy, diptych; model = diptych.load('exported'); "
        "numpy.save('images.npy', model.encode_images(sys.argv[1:])); "
        "numpy.save('texts.npy', model.encode_texts(['a dog', 'the large red circle'])); "
        "assert not {'torch', 'open_clip', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program, *map(str, photos)], check=True)
    model = diptych.load(pair_folder(kind), "cpu")
    np.testing.assert_allclose(np.load("images.npy"), model.encode_images(photos), atol=1e-5)
    np.testing.assert_allclose(np.load("texts.npy"), model.encode_texts(["a dog", "the large red circle"]), atol=1e-5)
    assert diptych.load("exported").identity == model.identity


@pytest.mark.long
def test_images_of_any_shape_have_no_onnx_form(refused, pair_folder):
    message = refused("export", pair_folder("siglip2"), "--onnx")
    assert "has no ONNX form: " in message
    assert message.endswith("use the run itself")


@pytest.mark.long
def test_a_pair_at_half_its_size(done, pair_folder, pairs, tmp_path):
    done("export", pair_folder("open_clip"), "--float16", "--into", "half")
    photos = pairs.photos(tmp_path / "photos")
    half, whole = diptych.load("half", "cpu"), diptych.load(pair_folder("open_clip"), "cpu")
    np.testing.assert_allclose(half.encode_images(photos), whole.encode_images(photos), atol=0.01)


def test_downloads_must_be_allowed(refused, monkeypatch, pairs):
    asked = []
    monkeypatch.setattr(hub, "hub_file", lambda *_: asked.append(hub.are_downloads_allowed()))
    address = "open_clip:ViT-B-32/laion2b_s34b_b79k"
    with hub.downloads(False):  # which takes back what the command allows
        assert "is not in the cache" in refused("evaluate", address, SCENES)
        assert set(asked) == {False}
        asked.clear()
        assert "on the hub has no open_clip_model.safetensors" in refused("evaluate", address, SCENES, "--download")
        assert asked[0] is True
    with pytest.raises(DiptychError, match="is not in the cache"):
        diptych.load(address)
    asked.clear()
    with pytest.raises(DiptychError, match="on the hub has no"):
        diptych.load(address, download=True)
    assert asked[0] is True
