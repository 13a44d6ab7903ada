"""`diptych evaluate` with what goes beyond the table of recalls."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize

from diptych.data.open import open_corpus
from diptych.data.sampling.regions import PhraseSettings
from diptych.evaluation.analyses.cross_retrieval import cross_retrieval
from diptych.evaluation.analyses.score_overlap import score_overlap
from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
from diptych.evaluation.protocols.batch_statistics import encode_with_batch_statistics
from diptych.evaluation.protocols.rerank import rerank
from diptych.evaluation.protocols.sentence_phrases import (
    annotated_phrases,
    chunked_phrases,
    combined_score,
    phrase_score,
)
from diptych.evaluation.protocols.within_modality import evaluate_within_modality
from diptych.evaluation.runs import encoded_score, evaluate_encoded
from diptych.features.regions import Regions
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.dual_path import DualPathSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import save_matcher
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.image.regions import RegionSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.cnn import TextCNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary
from diptych.training.recipe_loader import load_recipe

COMMAND = ("evaluate",)

SCENES = "scenes:train=4,val=4,test=6,texts=2"
VSE = VSESettings(joint=4, text=GRUSettings(hidden=4), image=FeatureSettings(shape=(4,)), words=9)
SCAN = SCANSettings(joint=4, image=RegionFeatureSettings(shape=(3, 4)), words=9)


def encoded(settings, digest="one", images=8):
    random = torch.Generator().manual_seed(1)
    sets = settings.name == "scan"
    shapes = ((images, 3, 4), (2 * images, 5, 4)) if sets else ((images, 4), (2 * images, 4))
    vectors = [normalize(torch.randn(shape, generator=random), dim=-1) for shape in shapes]
    return EncodedCorpus(settings, *vectors, np.arange(images), np.arange(2 * images) // 2, digest)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoded(VSE).save(tmp_path / "vse.safetensors")
    encoded(SCAN).save(tmp_path / "scan.safetensors")
    encoded(VSE, "two", 6).save(tmp_path / "other.safetensors")


def test_rerank_measures_recall_by_depth(tmp_path, invoke):
    words = ("scan.safetensors", "--rerank", "5,2,all", "--with", "vse.safetensors")
    told = json.loads(invoke(*words, "--json", "--into", "a.json").stdout)
    expected = rerank([encoded(SCAN)], encoded(VSE), [2, 5], all_pairs=True).to_json()
    rows = [{key: row[key] for key in row if key != "seconds"} for row in told["rerank"]]
    assert rows == [{key: row[key] for key in row if key != "seconds"} for row in expected["rerank"]]
    assert json.loads((tmp_path / "a.json").read_text()) == told
    printed = invoke(*words).stdout
    assert "reranked: 8 images, 16 texts" in printed
    lines = [line.split()[0] for line in printed.splitlines() if line.strip()]
    assert [line for line in lines if line in ("list", "2", "5", "all")] == ["list", "2", "5", "all"]
    assert [row["top"] for row in json.loads(invoke(*words[:2], "3", *words[3:], "--json").stdout)["rerank"]] == [0, 3]


def test_an_ensemble_reranks(tmp_path, invoke):
    words = ("scan.safetensors", "scan.safetensors", "--rerank", "4", "--with", "vse.safetensors", "--json")
    told = json.loads(invoke(*words).stdout)["rerank"][1]
    assert told["metrics"] == rerank([encoded(SCAN)], encoded(VSE), [4]).rows[1].metrics.to_json()


def test_cross_adds_the_ranks_of_the_pairs(invoke):
    one = encoded(SCAN)
    told = json.loads(invoke("scan.safetensors", "--cross", "--json").stdout)
    expected = cross_retrieval(encoded_score(one), one.image_groups, one.text_groups).to_json()
    assert told.pop("cross_retrieval") == expected
    assert told == evaluate_encoded([one]).to_json()
    assert "cross-retrieval rank of 16 pairs" in invoke("scan.safetensors", "--cross").stdout
    assert "cross-retrieval" not in invoke("scan.safetensors").stdout


@pytest.mark.parametrize("settings", [VSE, SCAN], ids=["vse", "scan"])
def test_overlap_adds_the_scores_of_positive_and_negative_pairs(settings, invoke, refused):
    one, file = encoded(settings), f"{settings.name}.safetensors"
    told = json.loads(invoke(file, "--overlap", "--json").stdout)
    expected = score_overlap(encoded_score(one), one.image_groups, one.text_groups)
    assert told.pop("overlap") == expected.to_json()
    assert told == evaluate_encoded([one]).to_json()
    shown = invoke(file, "--overlap", "--cross").stdout
    assert f"{expected.shared:.4f}" in shown
    assert "cross-retrieval rank" in shown
    assert "positive and negative pairs" in shown
    assert "positive and negative pairs" not in invoke(file).stdout
    assert "--overlap measures one gallery" in refused(file, "--overlap", "--gallery", "4")


def test_map_is_measured_if_a_text_has_several_images_or_on_demand(tmp_path, invoke):
    told = json.loads(invoke("vse.safetensors", "--map", "--json").stdout)
    assert told == evaluate_encoded([encoded(VSE)], average_precision=True).to_json()
    assert {"i2t_map", "t2i_map"} <= told["metrics"].keys()
    assert {"i2t_map", "t2i_map"} <= told["intervals"]["bounds"].keys()
    assert "mAP" in invoke("vse.safetensors", "--map").stdout
    assert "mAP" not in invoke("vse.safetensors").stdout

    in_pairs().save(tmp_path / "pairs.safetensors")
    told = json.loads(invoke("pairs.safetensors", "--folds", "2", "--json").stdout)
    assert told == evaluate_encoded([in_pairs()], folds=2, average_precision=True).to_json()
    lines = [line.split() for line in invoke("pairs.safetensors", "--folds", "2").stdout.splitlines()]
    assert ["R@1", "R@5", "R@10", "mAP", "median"] in [words[:5] for words in lines]
    for label, prefix in ((["image", "to", "text"], "i2t"), (["text", "to", "image"], "t2i")):
        place = next(place for place, words in enumerate(lines) if words[:3] == label)
        low, high = told["intervals"]["bounds"][f"{prefix}_map"]
        assert lines[place][6] == f"{told['metrics'][f'{prefix}_map']:.1f}"
        assert lines[place + 1][3] == f"{low:.1f}–{high:.1f}"


def test_a_score_matrix_has_map_too(tmp_path, invoke):
    random = np.random.default_rng(0)
    for address, shown in (("scenes:train=2,val=2,test=3,texts=4,images=2", True), (SCENES, False)):
        part = open_corpus(address).split("test")
        np.save(tmp_path / "s.npy", random.normal(size=(len(part.image_ids), len(part.texts))))
        assert ("t2i_map" in json.loads(invoke("s.npy", address, "--json").stdout)["metrics"]) == shown
        assert "t2i_map" in json.loads(invoke("s.npy", address, "--map", "--json").stdout)["metrics"]


def test_errors_are_one_line(tmp_path, refused):
    scan, cheap = "scan.safetensors", ("--with", "vse.safetensors")
    assert "--rerank N and --with RUN need each other" in refused(scan, "--rerank", "5")
    assert "--rerank N and --with RUN need each other" in refused(scan, *cheap)
    for wrong in ("0", "-3", "5,ten", "", "1.5", "²"):
        assert f"--rerank {wrong}: " in refused(scan, f"--rerank={wrong}", *cheap)
    assert "name at least one number" in refused(scan, "--rerank", "all", *cheap)
    assert "scan.safetensors: a model 'scan' scores each pair separately" in refused(
        "vse.safetensors", "--rerank", "5", "--with", scan
    )
    assert "encoded different images and texts (8 x 16 and 6 x 12)" in refused(
        scan, "--rerank", "5", "--with", "other.safetensors"
    )
    for more in (["--folds", "2"], ["--gallery", "3"], ["--report"], ["--cross"], ["--map"]):
        assert "--rerank measures one gallery" in refused(scan, "--rerank", "5", *cheap, *more)
    assert "--cross measures one gallery" in refused(scan, "--cross", "--folds", "2")
    assert "--report needs one run and a corpus" in refused(scan, "--report")
    assert "runs/none: name the corpus" in refused(scan, "--rerank", "5", "--with", "runs/none")
    np.save(tmp_path / "s.npy", np.zeros((6, 12), np.float32))
    assert "a score matrix is evaluated alone" in refused("s.npy", "scenes:train=2,val=2,test=6,texts=2", "--cross")


def in_pairs():
    """Encodings of 4 groups of two images and four texts each."""
    one = encoded(VSE)
    return replace(one, image_groups=one.image_groups // 2, text_groups=one.text_groups // 2)


@pytest.mark.parametrize(("modality", "prefix"), [("texts", "t2t"), ("images", "i2i")])
def test_within_one_modality(tmp_path, modality, prefix, invoke):
    in_pairs().save(tmp_path / "pairs.safetensors")
    words = ("pairs.safetensors", "--within", modality)
    told = json.loads(invoke(*words, "--json", "--into", "a.json").stdout)
    assert told == evaluate_within_modality([in_pairs()], modality).to_json()
    assert f"{prefix}_r1" in told["metrics"]
    assert json.loads((tmp_path / "a.json").read_text()) == told
    printed = invoke(*words).stdout
    assert f"{modality} among {told['queries']} {modality}" in printed
    assert "R@10" in printed


def test_options_that_cannot_be_combined_are_one_line(tmp_path, refused):
    assert "'scan' scores images with texts only" in refused("scan.safetensors", "--within", "texts")
    assert "no group has two images" in refused("vse.safetensors", "--within", "images")
    for more in (["--folds", "2"], ["--report"], ["--cross"], ["--map"]):
        line = refused("vse.safetensors", "--within", "texts", *more)
        assert line == f"--within measures one gallery of one modality; remove {more[0]}"
    assert "name runs and the corpus" in refused("vse.safetensors", "--within", "texts", "--gallery", "3")
    both = refused("vse.safetensors", "--rerank", "5", "--with", "vse.safetensors", "--within", "texts", "--cross")
    assert both == "--rerank measures one gallery; remove --within, --cross"
    assert "--phrases combines two scores; remove --report" in refused("vse.safetensors", "--phrases", "p", "--report")
    assert "name it with --phrases RUN" in refused("vse.safetensors", "--share", "0.3")
    assert "name it with --phrases RUN" in refused("vse.safetensors", "--phrases-from", "chunker")
    assert "--phrases needs a run and a corpus" in refused("vse.safetensors", "--phrases", "runs/p")
    assert "vse.safetensors: is already encoded" in refused("vse.safetensors", "--batch-statistics", "test")
    np.save(tmp_path / "s.npy", np.zeros((6, 12), np.float32))
    line = refused("s.npy", "scenes:train=2,val=2,test=6,texts=2", "--within", "texts")
    assert line.endswith("SCORES.npy DATA; remove --within")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of few random weights: whole images with batch norm and without it, and regions of photos."""
    folder = tmp_path_factory.mktemp("runs")
    corpus = open_corpus(SCENES)
    vocabulary = Vocabulary.from_texts(corpus.texts, 1)
    shared = {"text": GRUSettings(hidden=8, word=4), "words": len(vocabulary)}
    whole, regions = (
        CNNSettings(pixels=32, width=2),
        RegionSettings(side=64, regions=Regions(method="selective-search", count=9)),
    )
    for name, settings in {
        "two": TwoBranchSettings(image=whole, image_layers=(8,), text_layers=(8,), **shared),
        "phrases": TwoBranchSettings(image=regions, image_layers=(8,), text_layers=(8,), **shared),
        "vse": VSESettings(image=whole, joint=8, **shared),
        "dual": DualPathSettings(
            image=whole, hidden=8, joint=8, text=TextCNNSettings(depth="small", word=4), words=len(vocabulary)
        ),
    }.items():
        torch.manual_seed(0)
        save_matcher(folder / name / "best" / "weights.safetensors", settings.build(), vocabulary, {})
        vocabulary.save(folder / name)
    return folder


def test_within_a_gallery_of_the_first_images(runs, invoke):
    told = json.loads(invoke(str(runs / "two"), SCENES, "--within", "texts", "--gallery", "4", "--json").stdout)
    corpus = open_corpus(SCENES).split("test")
    first = Model.load(runs / "two", "cpu").encode_corpus(corpus.take(np.arange(4), np.arange(8)))
    assert told == evaluate_within_modality([first], "texts").to_json()
    assert told["texts"] == 8


def test_texts_without_a_known_word_are_reported(runs, monkeypatch, invoke, refused):
    model = Model.load(runs / "two", "cpu")
    assert model.known_texts(["a red circle", "xyzzy qwx", ""]).tolist() == [True, False, False]
    assert model.known_texts([]).tolist() == []
    corpus = open_corpus(SCENES)
    texts = [*corpus.texts[:-2], "Xyzzy", "Qwx"]
    monkeypatch.setattr("diptych.data.open.open_corpus", lambda address: replace(corpus, texts=texts))
    line = "2 of 12 texts contain no word that the run knows; the first is 'Xyzzy'"
    assert line in " ".join(invoke(str(runs / "two"), SCENES).stderr.split())
    told = refused(str(runs / "vse"), SCENES, "--phrases", str(runs / "two"))
    assert told.startswith(f"--phrases {runs / 'two'}: the model scores whole images")


def test_shifts_override_how_the_run_was_trained(runs, invoke, refused):
    corpus = open_corpus(SCENES).split("test")
    model = Model.load(runs / "dual", "cpu")
    found = {}
    for shifts in ("one", "mean"):
        model.matcher.set_text_shifts(shifts)
        found[shifts] = evaluate_encoded([model.encode_corpus(corpus)]).to_json()
        assert json.loads(invoke(str(runs / "dual"), SCENES, "--shifts", shifts, "--json").stdout) == found[shifts]
    assert found["one"] != found["mean"]
    assert json.loads(invoke(str(runs / "dual"), SCENES, "--json").stdout) == found["one"]
    line = f"{runs / 'vse'}: the model does not shift texts; remove --shifts"
    assert refused(str(runs / "vse"), SCENES, "--shifts", "mean") == line
    assert "--shifts needs the run and the corpus" in refused("vse.safetensors", "--shifts", "one")


def test_batch_statistics_of_the_test_set(runs, invoke, refused):
    told = json.loads(invoke(str(runs / "two"), SCENES, "--batch-statistics", "test", "--json").stdout)
    assert told.pop("batch_statistics") == "test"
    (runs / "two" / "recipe.toml").write_text(load_recipe("scenes").to_toml())  # as a run has it, without phrases
    corpus = open_corpus(SCENES).split("test")
    own = encode_with_batch_statistics(Model.load(runs / "two", "cpu"), corpus)
    assert told == evaluate_encoded([own]).to_json()
    plain = json.loads(invoke(str(runs / "two"), SCENES, "--json").stdout)
    assert plain == evaluate_encoded([Model.load(runs / "two", "cpu").encode_corpus(corpus)]).to_json()
    assert plain["metrics"] != told["metrics"]
    within = invoke(str(runs / "two"), SCENES, "--batch-statistics", "test", "--within", "texts", "--json").stdout
    assert json.loads(within)["metrics"] == evaluate_within_modality([own], "texts").to_json()["metrics"]
    line = refused(str(runs / "vse"), SCENES, "--batch-statistics", "test")
    assert line == f"{runs / 'vse'}: a model 'vse' has no batch normalisation; use the running statistics"


@pytest.fixture
def opencv(monkeypatch):
    """OpenCV, on photos so small that it takes little time."""
    pytest.importorskip("cv2", reason="needs the extra regions")
    monkeypatch.setattr("diptych.features.proposals.LONGEST", 64)


@pytest.mark.parametrize(
    ("source", "words", "share"),
    [
        ("annotation", ["--share", "0.5", "--cross"], 0.5),
        ("chunker", ["--phrases-from", "chunker", "--folds", "2"], 0.2),
    ],
    ids=["annotation", "chunker"],
)
def test_phrases_are_combined_with_the_score(runs, opencv, source, words, share, invoke):
    told = json.loads(
        invoke(str(runs / "vse"), SCENES, "--phrases", str(runs / "phrases"), "--json", *words).stdout,
    )
    assert told.pop("phrases") == {"run": str(runs / "phrases"), "share": share, "from": source}
    corpus = open_corpus(SCENES).split("test")
    whole, parts = Model.load(runs / "vse", "cpu").encode_corpus(corpus), Model.load(runs / "phrases", "cpu")
    phrases = annotated_phrases(corpus) if source == "annotation" else chunked_phrases(corpus)
    score = combined_score(encoded_score(whole), phrase_score(parts, corpus, phrases), share)
    if source == "annotation":
        expected = cross_retrieval(score, whole.image_groups, whole.text_groups).to_json()
        assert told.pop("cross_retrieval") == expected
    assert told == evaluate_encoded([whole], score=score, folds=told["folds"]).to_json()
    assert told["folds"] == (1 if source == "annotation" else 2)


def test_a_corpus_without_phrases_says_so(runs, tmp_path, refused):
    (tmp_path / "bare").mkdir()
    Image.new("RGB", (40, 40), "red").save(tmp_path / "bare" / "a.png")
    (tmp_path / "bare.csv").write_text("image,text,split\nbare/a.png,a red square,test\n")
    assert "no such run" in refused(str(runs / "vse"), SCENES, "--phrases", "runs/none")
    line = refused(str(runs / "vse"), "bare.csv", "--phrases", str(runs / "phrases"))
    assert "its texts have no annotated phrases; let the chunker find them (--phrases-from chunker)" in line


def test_a_run_trained_on_phrases_is_measured_by_localisation(runs, opencv, tmp_path, invoke, refused):
    run = tmp_path / "run"
    shutil.copytree(runs / "phrases", run)
    plain = load_recipe("scenes")
    last = plain.stage[-1].model_copy(update={"phrases": PhraseSettings()})
    (run / "recipe.toml").write_text(plain.model_copy(update={"stage": (*plain.stage[:-1], last)}).to_toml())
    told = json.loads(invoke(str(run), SCENES, "--json").stdout)
    assert told == evaluate_phrases(run, SCENES, device="cpu").to_json()
    assert "phrase_r1" in told["metrics"]
    for more in (["--folds", "2"], ["--cross"], ["--within", "texts"], ["--batch-statistics", "test"]):
        assert refused(str(run), SCENES, *more).endswith(f"evaluated by phrase localisation; remove {more[0]}")
    assert "name one run and the corpus" in refused(str(run), str(runs / "vse"), SCENES)


def test_a_run_on_phrases_is_evaluated_with_its_report(phrase_runs, phrase_scenes, phrase_backbone, tmp_path, invoke):
    run = shutil.copytree(phrase_runs[0], tmp_path / "run")
    result = invoke(run, phrase_scenes, "--report", "--json", "--device", "cpu")
    assert result.stderr.splitlines()[-1] == f"wrote {run / 'report.html'}"
    found = evaluate_phrases(run, phrase_scenes, device="cpu")
    assert json.loads(result.stdout) == found.to_json()
    page = (run / "report.html").read_text()
    assert "scenes, split test" in page
    assert f"<dd>{len(found)}</dd>" in page
