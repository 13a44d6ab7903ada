from __future__ import annotations

from PIL import Image

from diptych.cli.training import open_training_corpus, run_evaluator


def test_problems_of_the_data_are_counted(tmp_path, capsys):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    table = tmp_path / "table.csv"
    table.write_text("image,text,split\na.png,one,train\nmissing.png,two,train\n")
    corpus = open_training_corpus(str(table))
    assert list(corpus.image_ids) == ["a.png"]
    message = " ".join(capsys.readouterr().err.split())
    assert message == f"skipped or repaired 1 problem in the data; see `diptych data check {table}`"


def test_sound_data_is_opened_silently(scenes, capsys):
    assert len(open_training_corpus(scenes).split("test").image_ids) == 6
    assert capsys.readouterr().err == ""


def test_the_evaluator_reads_with_the_given_threads(scenes):
    corpus = open_training_corpus(scenes)
    assert run_evaluator(corpus, 3).workers == 3
    assert run_evaluator(corpus, None).workers > 0
