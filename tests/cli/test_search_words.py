import click
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from diptych.cli.search_words import SearchCommand, query_text


@pytest.mark.parametrize(
    ("arguments", "text", "k"),
    [
        (["two", "dogs", "-k5"], "two dogs", 5),
        (["two dogs", "-k", "5"], "two dogs", 5),
        (["dog", "-snow", "beach"], "dog -snow beach", 1),
        (["dog", "-kids"], "dog -kids", 1),
    ],
)
def test_several_words_are_one_query_and_a_dash_excludes(arguments, text, k):
    app = typer.Typer()

    @app.command(cls=SearchCommand)
    def command(words: list[str], k: int = typer.Option(1, "-k")) -> None:
        typer.echo(f"{query_text(words)}|{k}")

    assert CliRunner().invoke(app, arguments).stdout == f"{text}|{k}\n"
    assert CliRunner().invoke(app, ["dog", "--snow"]).exit_code == click.UsageError.exit_code


def test_without_words_there_is_no_text():
    assert query_text(None) is None
    assert query_text([]) is None


def test_a_note_tells_how_to_search_with_a_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (4, 4)).save("dog.png")
    assert query_text(["dog.png"]) == "dog.png"
    assert "--image dog.png" in capsys.readouterr().err
    assert query_text(["cat.png"]) == "cat.png"
    assert capsys.readouterr().err == ""
