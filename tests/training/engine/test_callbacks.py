import inspect

from diptych.training.engine.callbacks import NoCallback, TrainingCallback


def test_no_callback_takes_every_call_and_returns_nothing():
    callback: TrainingCallback = NoCallback()
    assert callback.on_stage(1, 2, 30, 0) is None
    assert callback.on_step(1, 0.5, 100.0) is None
    assert callback.on_preparation("features", 1, 2) is None
    assert callback.message("text", "bold") is None


def test_no_callback_has_the_signatures_of_the_interface():
    for name, method in inspect.getmembers(TrainingCallback, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(getattr(NoCallback, name)) == inspect.signature(method), name
