import torch

from diptych.models.pretrained_pairs.unpacking import packed_grids, present_patches, unpacked


def test_places_follow_each_other_row_by_row():
    squares = torch.arange(3 * 6 * 6, dtype=torch.uint8).view(1, 3, 6, 6)
    patches = unpacked(squares, 2, 5)
    assert patches.shape == (1, 5, 12)
    # The second place is at the right of the first; its values are pixel by pixel, the three colours of each together.
    assert patches[0, 1].view(2, 2, 3)[0, 0].tolist() == squares[0, :, 0, 2].tolist()
    assert patches[0, 3].view(2, 2, 3)[1, 1].tolist() == squares[0, :, 3, 1].tolist()


def test_the_last_place_holds_rows_and_columns():
    squares = torch.zeros(2, 3, 6, 6, dtype=torch.uint8)
    squares[0, 0, 4, 4], squares[0, 1, 4, 4] = 1, 3
    squares[1, 0, 4, 4] = 255
    assert packed_grids(squares, 2).tolist() == [[2, 4], [256, 1]]
    assert present_patches(torch.tensor([[1, 2], [2, 2]]), 5).sum(1).tolist() == [2, 4]
