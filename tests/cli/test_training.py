from __future__ import annotations

from PIL import Image

from diptych.cli.training import TrainingOptions


def test_problems_of_the_data_are_counted(tmp_path, capsys):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    table = tmp_path / "table.csv"
    table.write_text("image,text,split\na.png,one,train\nmissing.png,two,train\n")
    corpus = TrainingOptions(str(table)).open_corpus()
    assert list(corpus.image_ids) == ["a.png"]
    message = " ".join(capsys.readouterr().err.split())
    assert message == f"skipped or repaired 1 problem in the data; see `diptych data check {table}`"


def test_sound_data_is_opened_silently(scenes, capsys):
    assert len(TrainingOptions(scenes).open_corpus().split("test").image_ids) == 6
    assert capsys.readouterr().err == ""


def test_the_evaluator_reads_with_the_given_threads(scenes):
    corpus = TrainingOptions(scenes).open_corpus()
    assert TrainingOptions(scenes, workers=3).evaluator(corpus).workers == 3
    assert TrainingOptions(scenes).evaluator(corpus).workers > 0
