"""`diptych evaluate` with --eccv and --grades: COCO's layout with few images, and tables of grades."""

from __future__ import annotations

import csv
import json
import re
import sys

import numpy as np
import pytest
import torch

import diptych
from diptych.data.grades import read_grades
from diptych.data.open import open_corpus
from diptych.errors import DiptychError
from diptych.evaluation.coco_positives import coco_rows, read_positives
from diptych.evaluation.metrics.scores import matrix_score
from diptych.evaluation.protocols.eccv import measure_eccv
from diptych.evaluation.protocols.grades import measure_grades, score_of_pairs
from diptych.model import Model
from support.coco import Coco

COMMAND = ("evaluate",)


@pytest.fixture(scope="module")
def coco(tmp_path_factory):
    """COCO's layout with 10 of its ids and drawn scenes, and the package that knows these ids."""
    folder = tmp_path_factory.mktemp("coco")
    coco = Coco()
    coco.write_package(folder / "package")
    content = coco.karpathy()
    (folder / "val2014").mkdir()
    drawn = open_corpus("scenes:train=60,val=0,test=0")
    texts = iter(dict.fromkeys(drawn.texts))  # with equal texts, the last bits of scores would decide
    for entry, picture in zip(content["images"], drawn.pictures, strict=False):
        picture.load().save(folder / "val2014" / entry["filename"])
        for sentence in entry["sentences"]:
            sentence["raw"] = next(texts)
    (folder / "dataset_coco.json").write_text(json.dumps(content))
    modules = [name for name in sys.modules if name.partition(".")[0] == "eccv_caption"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "package")
        for name in modules:
            patch.delitem(sys.modules, name)
        yield folder
        sys.modules.pop("eccv_caption", None)


def scores_of(run, corpus):
    """The scores of a split, as a run computes them."""
    model = Model.load(run, "cpu")
    encoded = model.encode_corpus(corpus, workers=0)
    return model.matcher.score(encoded.images, encoded.texts).double()


def test_a_run_on_coco(tiny_run, coco, invoke):
    told = json.loads(invoke(tiny_run, coco, "--eccv", "--json").stdout)
    corpus, positives = open_corpus(str(coco)).split("test"), read_positives()
    assert len(corpus.texts) == 32  # with those that are not measured
    images, texts = map(torch.from_numpy, coco_rows(corpus, positives))
    expected = measure_eccv(matrix_score(scores_of(tiny_run, corpus)[images][:, texts]), positives)
    assert told == expected.to_json()
    assert told["metrics"]["eccv_t2i_map_at_r"] > 0
    assert (told["images"], told["texts"]) == (10, 20)
    assert diptych.evaluate_eccv(tiny_run, coco, device="cpu", features=None).to_json() == told


def test_the_table_of_coco(tiny_run, coco, invoke, tmp_path):
    printed = invoke(tiny_run, coco, "--eccv", "--into", str(tmp_path / "result.json"))
    assert printed.exit_code == 0, printed.output
    for words in ("ECCV Caption i2t", "CxC t2i", "COCO 5K i2t", "COCO 1K t2i", "mAP@R", "10 images, 20 texts"):
        assert words in printed.output
    assert max(map(len, printed.stdout.splitlines())) <= 80
    assert json.loads((tmp_path / "result.json").read_text())["protocol"] == "eccv"


def test_an_ensemble_and_a_score_matrix_on_coco(tiny_run, coco, invoke, refused, tmp_path):
    of_run = json.loads(invoke(tiny_run, coco, "--eccv", "--json").stdout)
    assert json.loads(invoke(tiny_run, tiny_run, coco, "--eccv", "--json").stdout)["metrics"] == of_run["metrics"]
    scores = scores_of(tiny_run, open_corpus(str(coco)).split("test")).numpy()
    np.save(tmp_path / "scores.npy", scores)
    assert json.loads(invoke(tmp_path / "scores.npy", coco, "--eccv", "--json").stdout) == of_run
    np.save(tmp_path / "small.npy", scores[:, 1:])
    assert refused(tmp_path / "small.npy", coco, "--eccv").endswith(
        "small.npy: scores of 11 images and 31 texts, but the split has 11 and 32; make both from the same corpus and "
        "split"
    )
    scores[3, 5] = np.nan
    np.save(tmp_path / "nan.npy", scores)
    assert "image 3 and text 5: their score is not a number" in refused(tmp_path / "nan.npy", coco, "--eccv")


def test_what_coco_needs_is_one_line(tiny_run, coco, scenes, refused, tmp_path, monkeypatch):
    message = refused(tiny_run, scenes, "--eccv")
    assert message.startswith("scenes: its texts have no ids")
    assert "dataset_coco.json" in message
    assert "10 of the 10 images" in refused(tiny_run, coco, "--eccv", "--split", "train")
    file = tmp_path / "test.safetensors"
    Model.load(tiny_run, "cpu").encode_corpus(open_corpus(str(coco)).split("test"), workers=0).save(file)
    for source in ((file,), (tiny_run, file, coco)):
        assert refused(*source, "--eccv").startswith("--eccv needs runs, or a score matrix, and the corpus")
    assert refused(file, "--grades", "grades.csv").startswith("--grades needs runs, or a score matrix")
    assert "remove --folds" in refused(tiny_run, coco, "--eccv", "--folds", "5")
    (picture,) = (coco / "val2014").glob(f"*{read_positives().image_ids[3]}.jpg")
    picture.rename(tmp_path / "hidden.jpg")
    try:
        message = refused(tiny_run, coco, "--eccv")
        assert "1 of the 10 images" in message
        assert f"no image 'val2014/{picture.name}'" in message
        picture.write_bytes(b"not a photo")
        assert re.match(
            rf"val2014/{picture.name}: ECCV Caption and CxC need all 10 images", refused(tiny_run, coco, "--eccv")
        )
    finally:
        (tmp_path / "hidden.jpg").rename(picture)
    monkeypatch.setitem(sys.modules, "eccv_caption", None)
    assert "pip install 'diptych[eccv]'" in refused(tiny_run, coco, "--eccv")


@pytest.fixture
def grades(coco, tmp_path):
    """A table of grades of pairs in the test split, with rows that cannot be used."""
    corpus, random = open_corpus(str(coco)).split("test"), np.random.default_rng(0)
    rows = [("text", "image", "grade"), ("no such text", "a.jpg", 1)]
    for number in range(40):
        image, text = random.integers(len(corpus.image_ids)), random.integers(len(corpus.texts))
        name = corpus.texts[text] if number % 2 else f"COCO_val2014:sentid:{corpus.text_ids[text]}"
        rows.append((name, corpus.image_ids[image].removeprefix("val2014/"), random.integers(1, 5)))
    file = tmp_path / "grades.csv"
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([*rows, (corpus.texts[0], corpus.image_ids[0], "good")])
    return file


def test_a_run_and_a_matrix_by_grades(tiny_run, coco, grades, invoke, tmp_path):
    corpus = open_corpus(str(coco)).split("test")
    scores = scores_of(tiny_run, corpus)
    np.save(tmp_path / "scores.npy", scores.numpy())
    expected = measure_grades(score_of_pairs(matrix_score(scores)), corpus, read_grades(grades, corpus)).to_json()
    printed = invoke(tmp_path / "scores.npy", coco, "--grades", grades, "--json")
    assert json.loads(printed.stdout) == expected
    assert f"left out: {grades}:2: no text 'no such text' in test of dataset_coco" in printed.stderr
    assert f"left out: {grades}:43: the grade 'good' is not a finite number" in printed.stderr
    told = json.loads(invoke(tiny_run, coco, "--grades", grades, "--json").stdout)
    assert (told["pairs"], told["left_out"]) == (40, 2)
    assert told["metrics"] == pytest.approx(expected["metrics"])
    both = json.loads(invoke(tiny_run, tiny_run, coco, "--grades", grades, "--json").stdout)
    assert both["metrics"] == pytest.approx(expected["metrics"])
    found = diptych.evaluate_grades(tiny_run, coco, grades, device="cpu", features=None)
    assert found.to_json() == told


def test_the_table_of_grades_and_many_bad_rows(tiny_run, coco, grades, invoke, refused):
    with grades.open("a") as file:
        file.write("\n".join(f"nothing,{number}.jpg,1" for number in range(9)))
    printed = invoke(tiny_run, coco, "--grades", grades)
    assert printed.exit_code == 0, printed.output
    for words in ("40 grades", "all pairs", "within an image", "one pair per text", "Spearman", "tau-b", "tau-c"):
        assert words in printed.stdout
    assert max(map(len, printed.stdout.splitlines())) <= 80
    assert "left out 6 more rows" in printed.stderr
    assert "remove --grades" in refused(tiny_run, coco, "--grades", grades, "--eccv")
    assert "no usable grade in it" in refused(tiny_run, coco, "--grades", grades, "--split", "train")
    assert "no such file" in refused(tiny_run, coco, "--grades", grades.with_name("none.csv"), error=DiptychError)
