import pytest

from diptych.report.svg_charts import Mark
from diptych.report.training_curves import (
    class_error_curves,
    epochs_since_scratch,
    read_epochs,
    stage_marks,
    trained_epochs,
    training_charts,
    val_curve,
)
from diptych.training.engine.journal import Journal
from diptych.training.recipe_loader import load_recipe


def line(stage, epoch, event="epoch", **more):
    return {"event": event, "stage": stage, "epoch": epoch, "step": 0, **more}


def test_epochs_are_counted_through_all_stages(tmp_path):
    journal = Journal(tmp_path)
    for number, (stage, epoch) in enumerate([(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 1)]):
        journal.add(line(stage, epoch, val={"i2t_r1": 10.0 * number}))
        journal.add(line(stage, epoch, "skipped", message="x.jpg: damaged"))
    epochs = read_epochs(tmp_path)
    assert val_curve(epochs, "i2t_r1") == [(1, 0.0), (2, 10.0), (3, 20.0), (4, 30.0), (5, 40.0), (6, 50.0)]
    assert stage_marks(epochs, 1) == [Mark(2.5, "stage 2", 1), Mark(5.5, "stage 3", 1)]


def test_the_start_of_a_stage_stands_where_the_epochs_before_it_end(tmp_path):
    journal = Journal(tmp_path)
    for number, (stage, epoch) in enumerate([(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]):
        trained = {"loss": 1.0} if epoch else {}
        journal.add(line(stage, epoch, val={"i2t_r1": 10.0 * number}, **trained))
    epochs = read_epochs(tmp_path)
    assert val_curve(epochs, "i2t_r1") == [(0, 0.0), (1, 10.0), (2, 20.0), (2, 30.0), (3, 40.0)]
    assert stage_marks(epochs) == [Mark(2.5, "stage 2", 0)]
    assert trained_epochs(epochs) == 3
    assert [("Recall on val" in chart, "Training loss, stage 1" in chart) for chart in training_charts(epochs)] == [
        (True, False),
        (False, True),
    ]


def test_a_run_without_epochs_has_empty_curves(tmp_path):
    assert read_epochs(tmp_path) == []
    assert val_curve([], "i2t_r1") == stage_marks([]) == []


@pytest.mark.parametrize(
    ("name", "first"), [("vsrn", 1), ("vsrn-aoq", 2), ("vse-aoq-small", 3), ("vsepp-curriculum", 1)]
)
def test_epochs_begin_with_the_last_stage_from_scratch(name, first):
    recipe = load_recipe(name)
    epochs = [{"stage": number} for number in range(1, len(recipe.stage) + 1) for _ in range(2)]
    assert epochs_since_scratch(epochs, recipe) == [epoch for epoch in epochs if epoch["stage"] >= first]
    assert epochs_since_scratch(epochs[:2], recipe) == epochs[:2]  # the second round has not begun


def test_class_errors_have_gaps_for_stages_that_do_not_classify():
    epochs = [
        line(1, 1, class_error={"visual": 90.5, "textual": 99.0}),
        line(2, 1),
        line(3, 1, class_error={"visual": 12.0, "textual": 40.25}),
    ]
    assert class_error_curves(epochs) == {
        "images": [(1, 90.5), (2, None), (3, 12.0)],
        "texts": [(1, 99.0), (2, None), (3, 40.25)],
    }
    assert class_error_curves([line(1, 1, class_error={"visual": 1.0})]) == {"images": [(1, 1.0)]}
    assert class_error_curves([line(1, 1)]) == class_error_curves([]) == {}
