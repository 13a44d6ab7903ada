import json
from dataclasses import replace

from diptych.data.open import open_corpus


def test_texts_without_a_known_word_are_reported(tiny_run, tmp_path, monkeypatch, invoke, scenes):
    words = ("encode", tiny_run, scenes, "--into", str(tmp_path / "test.safetensors"))
    assert "knows" not in invoke(*words).stderr
    corpus = open_corpus(scenes)
    changed = replace(corpus, texts=[*corpus.texts[:-2], "Xyzzy", "Qwx"])
    monkeypatch.setattr("diptych.data.open.open_corpus", lambda address: changed)
    told = invoke(*words)
    assert told.exit_code == 0
    assert "2 of 12 texts contain no word that the run knows; the first is 'Xyzzy'" in told.stderr


def test_encodings_need_no_corpus_and_the_output_must_be_a_file(tiny_run, tmp_path, invoke, refused, scenes):
    file = tmp_path / "test.safetensors"
    assert invoke("encode", tiny_run, scenes, "--into", str(file)).exit_code == 0
    assert "remove the corpus" in refused("evaluate", str(file), scenes)
    assert "is a folder" in refused("encode", tiny_run, scenes, "--into", str(tmp_path))


def test_a_run_on_phrases_encodes_as_any_other(phrase_runs, phrase_scenes, phrase_backbone, tmp_path, invoke):
    file = tmp_path / "test.safetensors"
    assert invoke("encode", phrase_runs[0], phrase_scenes, "--into", file, "--device", "cpu").exit_code == 0
    measured = json.loads(invoke("evaluate", file, "--json").stdout)
    assert (measured["images"], measured["texts"]) == (4, 8)
