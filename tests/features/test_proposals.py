"""Proposals by OpenCV, on drawn photos; what needs OpenCV is skipped where the extra is not installed."""

import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from diptych.data.boxes import box_iou
from diptych.data.images import PictureFile
from diptych.errors import DataError, DiptychError
from diptych.features import proposals
from diptych.features.proposals import best_boxes, proposer
from diptych.features.regions import Regions
from diptych.features.roi_align import pool_cells
from support.backbones import TinyBackbone
from support.extraction import extract_tiny

SEARCH = Regions(method="selective-search", count=12)

edges = st.lists(st.integers(0, 20), min_size=2, max_size=2, unique=True).map(sorted)
boxes = st.lists(
    st.tuples(edges, edges).map(lambda ends: [ends[0][0], ends[1][0], ends[0][1], ends[1][1]]), max_size=12
)


@pytest.fixture
def opencv(monkeypatch):
    """OpenCV, on photos so small that it takes little time."""
    pytest.importorskip("cv2", reason="needs the extra regions")
    monkeypatch.setattr(proposals, "LONGEST", 96)


@pytest.fixture
def forest(tmp_path):
    """A structured forest of one tree with one question: is there a strong gradient in the middle of the patch?"""
    patch, inner = 8, 16
    middle = [row * inner + column for row in range(5, 11) for column in range(5, 11)]
    file = tmp_path / "forest.yml"
    file.write_text(
        "%YAML:1.0\n---\noptions:\n   stride: 2\n   shrinkNumber: 2\n   patchSize: 16\n   patchInnerSize: 16\n"
        "   numberOfGradientOrientations: 4\n   gradientSmoothingRadius: 0\n   regFeatureSmoothingRadius: 2\n"
        "   ssFeatureSmoothingRadius: 8\n   gradientNormalizationRadius: 4\n   selfsimilarityGridSize: 5\n"
        "   numberOfTrees: 1\n   numberOfTreesToEvaluate: 1\nchilds:\n   - [ 2, 0, 0 ]\n"
        f"featureIds:\n   - [ {3 * patch * patch + 4 * patch + 4}, 0, 0 ]\nthresholds:\n   - [ 0.05, 0., 0. ]\n"
        f"edgeBoundaries:\n   - [ 0, 0, 0, {len(middle)} ]\nedgeBins:\n   - {middle}\n"
    )
    return Regions(method="edge-boxes", count=12, model=str(file))


THINGS = {"red": (0.2, 0.2, 0.55, 0.6), "green": (0.7, 0.4, 0.9, 0.85)}


def drawn(width=180, height=120, seed=0, noise=5):
    """Two things on a grey ground with a little noise."""
    photo = Image.new("RGB", (width, height), "gray")
    draw = ImageDraw.Draw(photo)
    for colour, (left, top, right, bottom) in THINGS.items():
        draw.rectangle((left * width, top * height, right * width - 1, bottom * height - 1), fill=colour)
    grain = np.random.default_rng(seed).integers(-noise, noise + 1, (height, width, 3))
    return Image.fromarray((np.asarray(photo) + grain).clip(0, 255).astype(np.uint8))


# No two of these boxes overlap by just so much, where the last bit of a quotient would decide.
@given(boxes, st.integers(1, 6), st.sampled_from((0.1, 0.3)), st.sampled_from((0.5001, 0.7001, 0.9001)))
def test_the_best_boxes_are_the_first_without_near_duplicates(found, count, smallest, most):
    found = np.array(found, np.float64).reshape(-1, 4) / 20
    regions = Regions(method="selective-search", count=count, smallest=smallest, overlap=most)
    chosen = best_boxes(found, regions)
    assert chosen[0].tolist() == [0, 0, 1, 1]
    assert 1 <= len(chosen) <= count
    expected = [[0.0, 0.0, 1.0, 1.0]]
    for box in found.tolist():
        wide, high = box[2] - box[0], box[3] - box[1]
        is_new = all(overlap(box, other) <= most for other in expected)
        if min(wide, high) >= smallest and is_new and len(expected) < count:
            expected.append(box)
    assert chosen.tolist() == expected


def overlap(one, other):
    """Counted in the squares of a grid of 20 by 20."""
    one, other = ([round(20 * edge) for edge in box] for box in (one, other))
    squares = [{(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3])} for box in (one, other)]
    return len(squares[0] & squares[1]) / len(squares[0] | squares[1])


def found_at(proposed, box):
    """The best overlap of a proposal with a known box."""
    return box_iou(proposed[proposed.any(1)].astype(np.float64), np.array([box])).max()


def test_selective_search_finds_the_objects(opencv):
    proposed = proposer(SEARCH)(drawn())
    assert proposed.shape == (12, 4)
    assert proposed.dtype == np.float32
    assert proposed[0].tolist() == [0, 0, 1, 1]
    assert proposed.min() >= 0
    assert proposed.max() <= 1
    for thing in THINGS.values():
        assert found_at(proposed, thing) > 0.7
    there = proposed.any(1)
    assert not there[there.sum() :].any()  # rows of zeros at the end


def test_edge_boxes_find_the_objects(opencv, forest):
    proposed = proposer(forest)(drawn(noise=0))  # the one tree takes grain for edges
    assert proposed[0].tolist() == [0, 0, 1, 1]
    for thing in THINGS.values():
        assert found_at(proposed, thing) > 0.5


def test_the_same_photo_has_the_same_boxes_in_the_same_order(opencv, forest):
    for regions, photo in ((SEARCH, drawn()), (forest, drawn(noise=0))):
        first = proposer(regions)(photo)
        assert first.any(1).sum() > 3
        for _ in range(3):
            np.testing.assert_array_equal(proposer(regions)(photo), first)


def test_a_smaller_count_keeps_the_first_boxes(opencv):
    many = proposer(SEARCH)(drawn())
    few = proposer(SEARCH.model_copy(update={"count": 3}))(drawn())
    np.testing.assert_array_equal(few, many[:3])


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (400, 2), (30, 20)])
def test_a_photo_of_one_colour_has_one_region(opencv, forest, size):
    for regions in (SEARCH, forest):
        proposed = proposer(regions)(Image.new("RGB", size, "blue"))
        assert proposed[0].tolist() == [0, 0, 1, 1]
        assert not proposed[1:].any()


def test_an_extraction_does_not_depend_on_its_workers(opencv, tmp_path):
    pictures = []
    for number in range(6):
        drawn(90 + 7 * number, 70, seed=number).save(tmp_path / f"{number}.png")
        pictures.append(PictureFile(tmp_path / f"{number}.png"))
    results = [
        extract_tiny(pictures, tmp_path / f"store-{workers}", crops="whole", regions=SEARCH, workers=workers)
        for workers in (0, 3)
    ]
    all_of_them = np.arange(6)
    for values in ("features", "boxes"):
        first, second = (getattr(result, values)[all_of_them] for result in results)
        np.testing.assert_array_equal(first, second)
    boxes = results[0].boxes[all_of_them]
    for number, picture in enumerate(pictures):
        np.testing.assert_array_equal(boxes[number], proposer(SEARCH)(picture.load()))
    assert results[0].features.shape == (12, 6)


def test_a_missing_or_partial_opencv_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(DiptychError, match=r"cv2 is not installed; run: pip install 'diptych\[regions\]'") as raised:
        proposer(SEARCH)
    assert "\n" not in str(raised.value)
    monkeypatch.setitem(sys.modules, "cv2", types.ModuleType("cv2"))
    with pytest.raises(DiptychError, match=r"no contributed modules; .* pip install 'diptych\[regions\]'"):
        proposer(SEARCH)


def test_a_file_that_is_not_a_forest_is_refused(opencv, tmp_path):
    file = tmp_path / "forest.yml"
    file.write_text("no trees here")
    with pytest.raises(DataError, match=r"forest\.yml: not a structured forest of OpenCV") as raised:
        proposer(Regions(method="edge-boxes", model=str(file)))
    assert "\n" not in str(raised.value)
    file.unlink()
    with pytest.raises(DataError, match=r"forest\.yml: no such file of a structured forest"):
        proposer(Regions(method="edge-boxes", model=str(file)))


def test_the_vector_of_a_box_is_its_colour(opencv):
    """The vector of a thing is its colour."""
    photo = drawn(128, 128)
    pixels = torch.from_numpy(np.asarray(photo.resize((32, 32))).transpose(2, 0, 1).copy())[None]
    cells = TinyBackbone().regions(pixels).detach()
    vectors = pool_cells(cells, torch.tensor([[[0.25, 0.25, 0.5, 0.5], [0.75, 0.5, 0.85, 0.75]]]))[0]
    means = vectors[:, :3]  # of red, green and blue
    assert means[0].argmax() == 0
    assert means[1].argmax() == 1
