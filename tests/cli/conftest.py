"""Shared fixtures: the command line in this process, a tiny run, and tiny runs trained on phrases."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.data.open import open_corpus
from diptych.errors import DiptychError

SCENES = "scenes:train=24,val=6,test=6,texts=2"
PHRASE_SCENES = "scenes:train=8,val=3,test=4,texts=2"

_TINY = [
    *("model.joint=16", "model.text.hidden=16", "model.text.word=8", "model.image.width=2", "model.image.pixels=32"),
    *("stage.1.batches.size=16", "stage.2.batches.size=16", "stage.2.epochs=1"),
]
_TINY_PHRASES = [
    *("model.image.side=64", "model.image.regions.count=40", "model.image_layers=[8, 4]", "model.text_layers=[8, 4]"),
    *("stage.1.epochs=1", "stage.1.batches.size=16"),
]


def _invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def _set_options(settings):
    return [word for setting in settings for word in ("--set", setting)]


@pytest.fixture(scope="module")
def invoke(request):
    """Invokes the command line; the words in the module's COMMAND, if any, come first."""
    prefix = getattr(request.module, "COMMAND", ())
    return lambda *words: _invoke(*prefix, *words)


@pytest.fixture(scope="module")
def refused(invoke):
    """Invokes the command line, which must fail with a DiptychError (or `error`) of one line; returns that line."""

    def refused(*words, error=DiptychError):
        result = invoke(*words)
        assert result.exit_code != 0
        assert isinstance(result.exception, error), result.output
        assert "\n" not in str(result.exception)
        return str(result.exception)

    return refused


@pytest.fixture(scope="session")
def scenes():
    """The address of the corpus that the tiny run was trained on."""
    return SCENES


@pytest.fixture(scope="session")
def tiny_settings():
    """Options that make the recipe `scenes` tiny."""
    return _set_options(_TINY)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, tiny_settings):
    """A run of the recipe `scenes`; tests must not change it."""
    folder = tmp_path_factory.mktemp("tiny") / "run"
    result = _invoke("train", "scenes", SCENES, "--into", folder, "--device", "cpu", *tiny_settings)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="session")
def phrase_scenes():
    """The address of the corpus that the phrase runs were trained on."""
    return PHRASE_SCENES


@pytest.fixture
def phrase_backbone(small_regions):
    """While a test uses it, backbones are tiny, as for the phrase runs."""
    with small_regions(open_corpus(PHRASE_SCENES)):
        yield


@pytest.fixture(scope="session")
def train_on_phrases(small_regions):
    """Invokes `train` or `sweep` with a tiny recipe on phrases."""

    def train(command, *words):
        settings = _set_options(_TINY_PHRASES)
        with small_regions(open_corpus(PHRASE_SCENES)):
            options = ("--workers", "0", "--device", "cpu", *settings, *words)
            result = _invoke(command, "phrases-scenes", PHRASE_SCENES, *options)
        assert result.exit_code == 0, result.output
        return result

    return train


@pytest.fixture(scope="session")
def phrase_runs(tmp_path_factory, train_on_phrases):
    """Two runs of one recipe on phrases with different seeds, seed-0 and seed-1, in one folder."""
    folder = tmp_path_factory.mktemp("phrases")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # the folder of stored features is created here
        train_on_phrases("train", "--seeds", "2", "--into", folder / "seeds")
    return [folder / "seeds" / "seed-0", folder / "seeds" / "seed-1"]


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A table of a few drawn scenes as files of photos, which nothing says are drawn."""
    folder = tmp_path_factory.mktemp("photos")
    corpus = open_corpus("scenes:train=3,val=2,test=2,texts=1")
    rows = ["image,text,split"]
    for name, picture, text, split in zip(
        corpus.image_ids, corpus.pictures, corpus.texts, corpus.image_splits, strict=True
    ):
        picture.load().save(folder / f"{name}.jpg")
        rows.append(f'{name}.jpg,"{text}",{split}')
    (folder / "captions.csv").write_text("\n".join(rows) + "\n")
    return folder / "captions.csv"
