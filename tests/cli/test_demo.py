from __future__ import annotations

from diptych.cli import demo
from diptych.training import recipe_loader


def test_the_demo_trains_evaluates_searches_and_reports(invoke, tmp_path, monkeypatch, tiny_settings):
    load, overrides = recipe_loader.load_recipe, tiny_settings[1::2]
    monkeypatch.setattr(recipe_loader, "load_recipe", lambda name: load(name, overrides))
    monkeypatch.setattr(demo, "TRAIN_SCENES", 24)
    monkeypatch.setattr(demo, "VAL_SCENES", 6)
    monkeypatch.setattr(demo, "TEST_SCENES", 8)
    result = invoke("demo", "--into", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    assert "random guessing reaches 12.5% R@1" in result.stdout
    assert "done in" in result.stdout
    page = (tmp_path / "demo" / "report.html").read_text()
    for number, question in enumerate(demo.QUESTIONS, 1):
        assert question in result.stdout
        assert question in page
        assert (tmp_path / "demo" / f"question-{number}.png").stat().st_size > 0
    assert "serve" in result.stdout
    assert (tmp_path / "demo" / "scenes.diptych").is_file()
    again = invoke("demo", "--into", tmp_path / "demo")  # continues with the finished run
    assert again.exit_code == 0, again.output
