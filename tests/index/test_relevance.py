import numpy as np
import pytest

from diptych.errors import RunError
from diptych.index.relevance import FEW, FOUND, LEVELS, MANY, answer_level, calibration_of, judge, not_judged
from diptych.models.calibration.calibration import FILE, Calibration, LogisticFit

FIT = LogisticFit(np.ones(7, np.float32), 0.0)


def test_words_follow_the_levels_and_nothing_fits_if_the_best_hit_does_not():
    probabilities = np.array([0.5, 0.49, 0.2, 0.19, 0.015, 0.014])
    names = ["strong", "likely", "likely", "possible", "possible", "weak"]
    assert [each.fit for each in judge(probabilities, FOUND, MANY)] == names
    assert [least for _, least in LEVELS] == sorted((least for _, least in LEVELS), reverse=True)
    none = judge(probabilities, FOUND - 0.01, MANY)
    assert {each.fit for each in none} == {"weak"}
    assert [each.probability for each in none] == probabilities.tolist()


def test_the_best_of_few_photos_need_not_be_as_probable_as_the_best_of_many():
    assert answer_level(MANY) == pytest.approx(FOUND)
    odds = [level / (1 - level) for level in (answer_level(MANY // 4), answer_level(MANY))]
    assert odds[1] == pytest.approx(2 * odds[0])
    levels = [answer_level(entries) for entries in range(2 * MANY)]
    assert levels == sorted(levels)
    assert levels[0] == levels[FEW] < levels[FEW + 1]  # the rule was not measured with fewer, or with more
    assert levels[MANY - 1] < levels[MANY] == levels[-1]
    (among_few,), (among_many,) = (judge(np.array([0.3]), 0.3, entries) for entries in (100, 1000))
    assert (among_few.fit, among_many.fit) == ("likely", "weak")


def test_what_is_certain_or_unknown_has_no_probability():
    certain, unknown = judge(np.array([np.inf, -np.inf]), np.inf, MANY)
    assert (certain.fit, certain.probability, unknown.fit, unknown.probability) == ("strong", None, "weak", None)
    assert [(each.fit, each.probability) for each in not_judged([1, 2])] == [(None, None)] * 2


def test_the_calibration_of_other_weights_is_not_used(kit, tmp_path):
    model = kit.FakeModel()
    model.address = str(tmp_path)
    assert calibration_of(model) is None
    Calibration("fake", FIT, FIT, np.ones((2, 6), np.float32), {}).save(tmp_path)
    assert calibration_of(model).references.shape == (2, 6)
    model.identity = "trained further"
    assert calibration_of(model) is None
    (tmp_path / FILE).write_text('{"format": 1}')
    with pytest.raises(RunError, match=f"{FILE}.*diptych calibrate"):
        calibration_of(model)
