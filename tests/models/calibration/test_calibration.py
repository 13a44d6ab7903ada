import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import RunError
from diptych.models.calibration.calibration import FILE, Calibration, LogisticFit, copy_calibration, describe_texts

WEIGHTS = np.array([8, 0.5, -3, 1, -2, -1, 0.25], np.float32)


@pytest.fixture
def calibration():
    references = np.random.default_rng(0).standard_normal((20, 8)).astype(np.float32)
    references /= np.linalg.norm(references, axis=1, keepdims=True)
    return Calibration("model", LogisticFit(WEIGHTS, -1.5), LogisticFit(WEIGHTS / 2, 0.5), references, {"photos": 40})


def test_a_file_keeps_the_probabilities(calibration, tmp_path):
    calibration.save(tmp_path)
    read = Calibration.load(tmp_path)
    assert (read.identity, read.figures) == ("model", {"photos": 40})
    vectors = np.eye(8, dtype=np.float32)[:3]
    texts = ["a dog", "dog", ""]
    for fit in ("hits", "answers"):
        before, after = (
            getattr(each, fit).probabilities(np.array([0.1, 0.4, 0.9]), each.describe_texts(vectors, texts))
            for each in (calibration, read)
        )
        assert after == pytest.approx(before, abs=0.02)


def test_a_probability_is_the_equation(calibration):
    background = np.array([[0.1, 0.2, 0.3, 0.4, 0.5]], np.float32)
    (about,) = describe_texts(background, ["two dogs, one beach"])
    assert about == pytest.approx([*np.quantile(background, [0.16, 0.5, 0.84, 0.99, 1]), np.log(5)])
    logit = 0.7 * WEIGHTS[0] + WEIGHTS[1:] @ about - 1.5
    assert calibration.hits.probabilities(np.array([0.7]), about[None]) == pytest.approx([1 / (1 + np.exp(-logit))])


def test_words_count_up_to_a_limit_unless_the_calibration_is_older(calibration, tmp_path):
    vectors, texts = np.eye(8, dtype=np.float32)[[0, 0]], ["dog " * 8, "dog " * 500]
    usual, long = calibration.describe_texts(vectors, texts)
    assert usual.tolist() == long.tolist()
    calibration.save(tmp_path)
    content = json.loads((tmp_path / FILE).read_text())
    del content["longest"]  # as written before there was a limit
    (tmp_path / FILE).write_text(json.dumps(content))
    usual, long = Calibration.load(tmp_path).describe_texts(vectors, texts)
    assert (usual[-1], long[-1]) == pytest.approx((np.log(9), np.log(501)))
    assert usual[:-1] == pytest.approx(long[:-1])


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9))
def test_a_higher_score_is_never_less_probable(scores):
    about = np.zeros((1, 6), np.float32)
    found = LogisticFit(WEIGHTS, 0.0).probabilities(np.sort(scores), about)
    assert np.all(np.diff(found) >= 0)
    assert np.all((found >= 0) & (found <= 1))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content | {"format": 2},
        lambda content: content | {"references": "###"},
        lambda content: content | {"size": 7},
        lambda content: content | {"references": ""},
        lambda content: content | {"extra": 1},
        lambda content: content | {"longest": 0},
        lambda content: content | {"hits": {"weights": [1.0], "bias": 0.0}},
        lambda content: [],
    ],
)
def test_a_damaged_file_is_refused_by_its_name(calibration, tmp_path, damage):
    calibration.save(tmp_path)
    content = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps(damage(content)))
    with pytest.raises(RunError, match=rf"{FILE}.*diptych calibrate"):
        Calibration.load(tmp_path)


def test_a_conversion_of_a_model_gets_its_calibration(calibration, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    copy_calibration(tmp_path / "a", tmp_path / "b", "other")
    assert Calibration.load(tmp_path / "b") is None
    calibration.save(tmp_path / "a")
    copy_calibration(tmp_path / "a", tmp_path / "b", "other")
    read = Calibration.load(tmp_path / "b")
    assert read.identity == "other"
    assert read.references == pytest.approx(calibration.references, abs=0.01)
