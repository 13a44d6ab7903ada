import shutil

import pytest

from diptych.errors import RecipeError
from diptych.models.pretrained_pairs.find import find_pair


def test_the_identity_is_of_weights_tokeniser_and_preprocessing(pair_folder, tmp_path):
    source = find_pair(pair_folder("clip"))
    copy = shutil.copytree(pair_folder("clip"), tmp_path / "copy")
    assert find_pair(copy).identity() == source.identity()
    for file, old, new in (
        ("tokenizer.json", '"dog"', '"hound"'),
        ("preprocessor_config.json", '"resample": 3', '"resample": 2'),
    ):
        content = (copy / file).read_text()
        assert old in content
        (copy / file).write_text(content.replace(old, new))
        assert find_pair(copy).identity() != source.identity(), file
        (copy / file).write_text(content)
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    assert find_pair(copy).identity() != source.identity()


def test_a_prompt_belongs_to_the_tokeniser(pair_folder):
    source = find_pair(pair_folder("siglip"))
    assert source.tokeniser("the red {}").tokens("dog") == ["the", "red", "dog", "</s>"]
    with pytest.raises(RecipeError, match="prompt"):
        source.tokeniser("no place for a text")
