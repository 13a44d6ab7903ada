import pytest
import torch
from safetensors.torch import save_file

from diptych.errors import RecipeError
from diptych.models.pretrained_pairs.find import find_pair, is_pair


def test_what_names_a_pair(tmp_path, pair_folder):
    assert is_pair("open_clip:ViT-B-32/openai")
    assert not is_pair(tmp_path)
    assert not is_pair(tmp_path / "missing")
    for kind in ("open_clip", "clip"):
        assert is_pair(pair_folder(kind))
    (tmp_path / "model.pt").touch()
    assert is_pair(tmp_path)
    assert is_pair(tmp_path / "model.pt")
    (tmp_path / "model.pt").rename(tmp_path / "notes.txt")
    assert not is_pair(tmp_path / "notes.txt")
    save_file({"weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert is_pair(tmp_path)


@pytest.mark.parametrize("kind", ["open_clip", "clip", "siglip", "siglip2"])
def test_each_layout_is_recognised(kind, pair_folder):
    found = find_pair(pair_folder(kind))
    assert found.architecture.library == ("open_clip" if kind == "open_clip" else "transformers")
    assert found.address == str(pair_folder(kind))


def test_a_place_without_a_pair_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="missing: no such pair; name a folder, or open_clip:NAME/TAG"):
        find_pair(tmp_path / "missing")


@pytest.mark.parametrize("name", ["ViT-B-32.pt", "open_clip_pytorch_model.bin"])
@pytest.mark.parametrize("as_folder", [True, False])
def test_a_pickle_is_refused_with_the_command_that_converts_it(name, as_folder, tmp_path):
    torch.save({"weight": torch.zeros(1)}, tmp_path / name)
    with pytest.raises(RecipeError, match=rf"{name}: a pickled checkpoint .* is refused; convert it .*: python -c "):
        find_pair(tmp_path if as_folder else tmp_path / name)
