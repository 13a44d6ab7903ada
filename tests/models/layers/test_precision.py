import pytest
import torch

from diptych.models.layers.precision import at_least_float32, normalize, without_autocast


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_at_least_single_precision(dtype):
    values = torch.ones(2, dtype=dtype)
    assert at_least_float32(values).dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert (at_least_float32(values) is values) == (dtype in (torch.float32, torch.float64))


def test_autocast_is_off_within_and_on_again_after():
    square = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert (square @ square).dtype == torch.bfloat16
        with without_autocast(square.device):
            assert (square @ square).dtype == torch.float32
        assert (square @ square).dtype == torch.bfloat16
    with without_autocast(torch.device("meta")), without_autocast(square.device):
        assert (square @ square).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_vectors_have_length_one_and_zeros_stay_zeros(dtype):
    vectors = torch.tensor([[3, 4], [0, 0], [300, 400]], dtype=dtype)
    with torch.autocast("cpu", torch.float16):
        units = normalize(vectors, dim=1)
    assert units.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(units, torch.tensor([[0.6, 0.8], [0, 0], [0.6, 0.8]], dtype=units.dtype))
