"""The examples of docs/extend are models, towers and backbones that work."""

import inspect
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from diptych.errors import DiptychError
from diptych.features.backbone import weights_digest
from diptych.features.backbones import registry as backbone_registry
from diptych.models.matcher import Matcher
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings

PAGES = Path(__file__).parents[2] / "docs" / "extend"
TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0]]), torch.tensor([4, 3]))


def example(page, name):
    """What the code block for a file defines."""
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (code for file, code in blocks if file.endswith(f"/{name}.py"))
    namespace = {"__name__": "example"}
    exec(code, namespace)
    return namespace


def test_the_example_of_a_model():
    defined = example("model.md", "distance")
    towers = {"image": FeatureSettings(shape=(3,)), "text": GRUSettings(hidden=4, word=2)}
    matcher = defined["DistanceSettings"](joint=4, **towers).for_data(9, (6,)).build()
    with torch.no_grad():
        images, texts = matcher.encode_images(torch.randn(3, 6)), matcher.encode_texts(TOKENS)
    expected = [[-float((image - text).norm()) for text in texts] for image in images]
    torch.testing.assert_close(matcher.score(images, texts), torch.tensor(expected), atol=1e-3, rtol=0)
    assert matcher.embedding_dim == 4


def test_the_example_of_a_text_tower():
    tower = example("tower.md", "average")["AverageSettings"](word=3).build(9)
    weights = tower.words.weight
    expected = torch.stack([weights[[1, 4, 5, 2]].mean(0), weights[[1, 6, 2]].mean(0)])
    torch.testing.assert_close(tower(TOKENS), expected)
    tower.load_word_vectors(torch.full((9, 3), 7.0), torch.tensor([False] * 4 + [True] * 5))
    assert (tower.words.weight[4:] == 7).all()


def test_the_example_of_an_image_tower():
    tower = example("tower.md", "colours")["ColoursSettings"](cells=2).build()
    images = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    images[0, 0, :32, 32:] = 255  # red, top right
    assert tower(images).view(3, 2, 2).tolist() == [[[0, 1], [0, 0]], [[0, 0], [0, 0]], [[0, 0], [0, 0]]]
    assert tower.size == tower(images).shape[1]


def test_the_example_of_a_backbone(tmp_path):
    defined = example("backbone.md", "mine")
    built = defined["build"]("mine:small").eval()
    images = torch.randint(256, (2, 3, built.side, built.side), dtype=torch.uint8)
    with torch.no_grad():
        vectors, cells = built(images), built.regions(images)
        torch.testing.assert_close(built(images[:1]), vectors[:1])
    assert vectors.shape == (2, built.size)
    assert cells.shape[1:] == built.grid
    save_file(built.state_dict(), tmp_path / "mine.safetensors")
    loaded = defined["load"]("mine:small", tmp_path / "mine.safetensors")
    assert weights_digest(loaded) == weights_digest(built)
    with pytest.raises(DiptychError, match="give its weights"):
        defined["load"]("mine:small")


def test_a_new_source_of_backbones_is_one_line_of_the_registry():
    """The line in the docs is the one of the registry, and the new source."""
    _, block = re.findall(r"```python\n(.*?)```", (PAGES / "backbone.md").read_text(encoding="utf-8"), re.DOTALL)
    shown = block.strip().splitlines()[-1].replace(', "mine:": mine', "")
    assert shown in inspect.getsource(backbone_registry).splitlines()


@pytest.mark.parametrize("page", ["model.md", "tower.md"])
def test_the_files_that_a_page_mentions_exist(page):
    root = PAGES.parents[1]
    text = (PAGES / page).read_text(encoding="utf-8")
    files = set(re.findall(r"`((?:src|tests|matchers|towers)/[\w/]+\.py)`", text))
    assert files
    for file in files:
        places = [root / file, root / "src/diptych/models" / file]
        assert any(place.is_file() for place in places), file


def test_the_table_of_capabilities_is_that_of_the_interface():
    text = (PAGES / "model.md").read_text(encoding="utf-8")
    declared = {name for name, value in vars(Matcher).items() if isinstance(value, property)}
    others = {"image_input", "pretrained", "pretrained_weights", "fitted_text_tower", "cached_text_tower"}
    others |= {"shares_prefixes", "standardised_images", "standardised_texts"}
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == declared - others
