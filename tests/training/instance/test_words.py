"""A file of word vectors says which words there are, how they start, or both."""

import shutil

import pytest
import torch

from diptych.errors import DataError, RecipeError
from diptych.model import Model
from diptych.text.vocabulary import Vocabulary
from diptych.training.train import train


@pytest.fixture(scope="module")
def vectors(corpus, tmp_path_factory):
    """A file that lacks every third of the training words, and the words that it has."""
    words = Vocabulary.from_texts(corpus.split("train").texts, 1).words
    has = [word for number, word in enumerate(words) if number % 3]
    rows = [f"{word} {number} 1 2 3" for number, word in enumerate(has)]
    path = tmp_path_factory.mktemp("words") / "vectors.txt"
    path.write_text("\n".join(["notinthetexts 1 2 3 4", *rows]) + "\n")
    return path, has


@pytest.mark.parametrize("use", ["start", "filter", "both"])
def test_word_vectors_say_which_words_there_are_and_how_they_start(use, vectors, one_stage, trained, corpus, tmp_path):
    path, has = vectors
    recipe = one_stage(f"text.vectors={path}", f"text.use={use}", "stage.1.epochs=1")
    run, watcher = trained(recipe, tmp_path / "run")
    words = Vocabulary.load(run / "vocabulary.json").words
    every = Vocabulary.from_texts(corpus.split("train").texts, 1).words
    assert list(words) == (list(every) if use == "start" else has)
    began = watcher.firsts[1]["model.text.words.weight"]
    assert len(began) == 4 + len(words)
    rows = began[[4 + words.index(word) for word in has]]
    given = torch.tensor([[float(number), 1, 2, 3] for number in range(len(has))])
    assert torch.equal(rows, given) == (use != "filter")
    if use == "filter":
        assert rows.abs().max() <= 0.1
    assert f"word vectors: {len(has)} of {len(every)} words found" in watcher.said
    opened = Model.load(run, "cpu")
    assert opened.matcher.settings.words == 4 + len(words)


@pytest.mark.parametrize("use", ["filter", "both"])
def test_a_filtered_run_that_was_stopped_goes_on_bit_for_bit(
    use, vectors, one_stage, trained, corpus, stores, tmp_path, watching
):
    path = shutil.copy(vectors[0], tmp_path / "vectors.txt")
    recipe = one_stage(f"text.vectors={path}", f"text.use={use}")
    whole, _ = trained(recipe, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path / "cut", device="cpu", callback=watching(stops=(2,)), features=stores)
    path.unlink()  # what has begun has its words
    train(recipe, corpus, tmp_path / "cut", resume=True, device="cpu", features=stores)
    for name in ("best/weights.safetensors", "last/snapshot.safetensors"):
        assert (whole / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name


@pytest.mark.parametrize("use", ["filter", "both"])
def test_a_filter_without_vectors_is_refused(use, one_stage, refused):
    message = rf"^text\.use = '{use}': a file of word vectors .*; set text\.vectors, or text\.use=start .*"
    refused(RecipeError, message, one_stage(f"text.use={use}"))


def test_a_filter_that_leaves_no_word_is_refused(one_stage, refused, tmp_path):
    path = tmp_path / "other.txt"
    path.write_text("xyzzy 1 2 3 4\n")
    recipe = one_stage(f"text.vectors={path}", "text.use=both")
    refused(DataError, rf"{path.name}.*none of the training words", recipe)
