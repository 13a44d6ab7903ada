from __future__ import annotations

from pathlib import Path

import pytest

from diptych.cli.evaluation_sources import SourceEncoder, is_encodings, is_matrix, open_sources
from diptych.data.open import open_corpus
from diptych.data.splitting import SplitRule
from diptych.errors import ScoreError
from diptych.model import Model

TEST = "test.safetensors"


@pytest.fixture
def encoder(scenes):
    return SourceEncoder(open_corpus(scenes).split("test"), "cpu", 0, Path("features"))


def test_sources_are_told_apart_by_their_suffix():
    assert (is_encodings(TEST), is_matrix(TEST)) == (True, False)
    assert (is_encodings("s.npy"), is_matrix("s.npy")) == (False, True)
    assert (is_encodings("runs/a"), is_matrix("runs/a")) == (False, False)


def test_the_corpus_is_the_last_argument(scenes):
    sources, corpus = open_sources(["runs/a", "runs/b", scenes], None, None, None)
    assert sources == ["runs/a", "runs/b"]
    assert set(corpus.image_splits) == {"train", "val", "test"}


def test_files_of_encodings_need_no_corpus_unless_a_run_re_ranks_them(scenes):
    assert open_sources([TEST, TEST], None, None, None) == ([TEST, TEST], None)
    with pytest.raises(ScoreError, match="remove --val and --test"):
        open_sources([TEST], None, None, SplitRule(0.1))
    with pytest.raises(ScoreError, match="already contain their groups; remove the corpus"):
        open_sources([TEST, scenes], None, None, None)
    sources, corpus = open_sources([TEST, scenes], "runs/vse", None, None)
    assert sources == [TEST]
    assert corpus is not None


def test_a_run_alone_is_refused_with_an_example():
    with pytest.raises(ScoreError, match="name the corpus to evaluate on, such as `diptych evaluate runs/a scenes`"):
        open_sources(["runs/a"], None, None, None)


def test_a_run_encodes_the_corpus_as_the_model_does(encoder, tiny_run):
    encoded = encoder.encode(str(tiny_run))
    expected = Model.load(tiny_run, "cpu").encode_corpus(encoder.corpus)
    assert encoded.images.equal(expected.images)
    assert encoded.texts.equal(expected.texts)


def test_a_file_is_loaded(encoder, tiny_run, tmp_path):
    encoded = encoder.encode(str(tiny_run))
    encoded.save(tmp_path / TEST)
    assert encoder.encode(str(tmp_path / TEST)).images.equal(encoded.images)
    with pytest.raises(ScoreError, match="is already encoded; --batch-statistics test needs the run and the corpus"):
        encoder.encode(str(tmp_path / TEST), "test")


def test_a_run_needs_a_corpus(tiny_run):
    with pytest.raises(ScoreError, match="name the corpus to evaluate the run on as the last argument"):
        SourceEncoder(None, "cpu", 0, Path("features")).encode(str(tiny_run))


def test_shifts_need_a_model_that_shifts_texts(encoder, tiny_run):
    shifted = SourceEncoder(encoder.corpus, "cpu", 0, Path("features"), "mean")
    with pytest.raises(ScoreError, match="the model does not shift texts; remove --shifts"):
        shifted.open(str(tiny_run))
