import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import DiptychError, RecipeError
from diptych.features.backbones import source


@settings(max_examples=25)
@given(st.text(max_size=80))
def test_the_error_for_an_unknown_name_is_short_however_many_are_known(name):
    error = source.unknown_name(name, [f"model{number}" for number in range(200)])
    assert isinstance(error, RecipeError)
    assert repr(name) in str(error)
    assert len(str(error)) < 250 + len(repr(name))


def test_bytes_become_floats_by_mean_and_deviation_of_each_colour():
    pixels = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    kept = pixels.clone()
    mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    values = source.normalise(pixels, source.to_byte_scale(mean), source.to_byte_scale(deviation))
    for colour in range(3):
        expected = (pixels[:, colour].double() / 255 - mean[colour]) / deviation[colour]
        torch.testing.assert_close(values[:, colour].double(), expected, rtol=1e-5, atol=1e-5)
    assert values.dtype == torch.float32
    assert torch.equal(pixels, kept)


def test_only_safetensors_are_read(tmp_path):
    with pytest.raises(DiptychError, match=r"none\.safetensors: no such file of weights"):
        source.read_weights(tmp_path / "none.safetensors")
    pickled = tmp_path / "pickled.pth"
    torch.save({"weight": torch.zeros(2)}, pickled)
    with pytest.raises(DiptychError, match=r"pickled\.pth: not a safetensors file") as error:
        source.read_weights(pickled)
    assert "\n" not in str(error.value)


def test_a_network_that_does_not_read_squares_is_refused():
    assert source.square_side("x", 160, 160) == 160
    with pytest.raises(RecipeError, match="backbone 'x': reads 160 x 128 pixels"):
        source.square_side("x", 160, 128)
