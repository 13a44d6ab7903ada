import pytest
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.errors import DiptychError
from diptych.models.export import onnx as onnx_export
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import save_matcher
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vocabulary = Vocabulary.from_texts(["a red circle"], 1)
    image, text = CNNSettings(pixels=16, width=2), GRUSettings(word=3, hidden=4)
    matcher = VSESettings(joint=4, image=image, text=text, words=len(vocabulary)).build()
    save_matcher(tmp_path / "runs/own/best/weights.safetensors", matcher, vocabulary, {})
    vocabulary.save(tmp_path / "runs/own")
    return tmp_path / "runs" / "own"


def export(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)], catch_exceptions=False)


def test_float16_is_written_to_the_default_or_the_given_folder(run, tmp_path):
    made = export("runs/own", "--float16")
    assert made.exit_code == 0
    assert "wrote exports/own-float16: 0.0 MB" in made.stdout
    assert (tmp_path / "exports/own-float16/best/weights.safetensors").is_file()
    assert export(run, "--float16", "--into", "small").exit_code == 0
    assert (tmp_path / "small/vocabulary.json").is_file()


def test_onnx_is_written_to_the_default_folder(run, tmp_path, monkeypatch):
    asked = []

    def fake(given, into):
        asked.append((str(given), str(into)))
        into.mkdir(parents=True)
        return 2e-7

    monkeypatch.setattr(onnx_export, "export_onnx", fake)
    made = export("runs/own", "--onnx")
    assert asked == [("runs/own", "exports/own-onnx")]
    assert "agrees with torch within 2.0e-07" in made.stdout
    assert "wrote exports/own-onnx" in made.stdout


@pytest.mark.parametrize("forms", [(), ("--onnx", "--float16")], ids=["none", "both"])
def test_exactly_one_format_is_required(run, forms):
    with pytest.raises(DiptychError, match="choose one format"):
        export("runs/own", *forms)


def test_a_missing_package_is_one_line_with_the_command(run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(DiptychError, match=r"onnxscript.*pip install 'diptych\[onnx\]'"):
        export("runs/own", "--onnx")
