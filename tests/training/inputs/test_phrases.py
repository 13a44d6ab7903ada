"""Training on phrases end to end, on drawn scenes whose regions are proposed by somebody who knows the boxes."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from diptych.data.boxes import box_iou
from diptych.data.formats.scenes import make_scenes
from diptych.data.phrases import find_mentions
from diptych.errors import DataError, RecipeError
from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
from diptych.evaluation.localisation.phrase_metrics import correct_regions
from diptych.features import proposals
from diptych.model import Model
from diptych.models.matchers.cca import CCASettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.tfidf import TfidfSettings
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.inputs.phrases import PhraseData
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback, press_ctrl_c
from support.pictures import BrokenPicture
from support.runs import assert_same_run, journal, last_weights, load_weights

COUNT = 20
SMALL = [
    "model.image.side=160",
    f"model.image.regions.count={COUNT}",
    "model.image_layers=[64, 32]",
    "model.text_layers=[64, 32]",
    "stage.1.batches.size=40",
    "stage.1.optimiser.rate=0.003",
    "stage.1.objective.most=5",  # of about a dozen negatives per phrase, so that the hardest are selected
]


@pytest.fixture(scope="module")
def corpus():
    return make_scenes(train=64, val=24, test=1, texts=2)


@pytest.fixture(scope="module", autouse=True)
def proposing(corpus, small_backbones):
    """Instead of OpenCV: the boxes of a scene's things, two places beside each, and what is empty of a 3 x 3 grid."""
    known = {
        picture.load().tobytes(): np.array([(box.left, box.top, box.right, box.bottom) for box in boxes])
        for picture, boxes in zip(corpus.pictures, corpus.boxes, strict=True)
    }
    down, across = np.mgrid[0:3, 0:3].reshape(2, -1, 1) / 3
    grid = np.concatenate([across, down, across + 1 / 3, down + 1 / 3], axis=1)

    def proposer(regions):
        def propose(photo):
            own = known[photo.tobytes()]
            aside = np.tile(own[:, 2:] - own[:, :2], 2) * 0.08
            empty = grid[box_iou(grid, own).max(1) < 0.05]
            found = np.concatenate([[[0, 0, 1, 1]], empty, own + aside, own - aside, own]).clip(0, 1)
            boxes = np.zeros((regions.count, 4), np.float32)
            boxes[: len(found)] = found
            return boxes

        return propose

    with small_backbones(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(proposals, "proposer", proposer)
        yield


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """One folder of feature stores for all: each region is computed once."""
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="module")
def recipe():
    return load_recipe("phrases-scenes", [*SMALL, "stage.1.epochs=5"])


@pytest.fixture(scope="module")
def whole(corpus, recipe, stores, tmp_path_factory):
    return train(recipe, corpus, tmp_path_factory.mktemp("runs") / "whole", device="cpu", workers=0, features=stores)


def test_training_on_phrases_finds_things(whole, corpus, stores):
    best = json.loads((whole / "best" / "metrics.json").read_text())["val"]
    assert best["ceiling"] == 100  # the boxes themselves are proposed
    val = corpus.split("val")
    known, chances = find_mentions(val), []
    boxes = Model.load(whole, "cpu", stores=stores).torch_engine.image_reader(val).boxes
    for image, box in zip(known.images, known.boxes, strict=True):
        there = boxes[image][(boxes[image][:, 2:] > boxes[image][:, :2]).all(1)]
        chances.append(correct_regions(there, box[None]).mean())
    assert best["phrase_r1"] > 250 * np.mean(chances), "R@1 in percent, of a chance that is a share"
    assert best["phrase_r1"] > 65
    assert best["phrase_sum"] == pytest.approx(best["phrase_r1"] + best["phrase_r5"] + best["phrase_r10"])
    lines = journal(whole)
    assert lines[-1]["loss"] < 0.3 * lines[0]["loss"]
    assert max(line["val"]["phrase_sum"] for line in lines) == best["phrase_sum"]


def test_what_was_measured_in_training_is_what_an_evaluation_measures(whole, corpus, stores):
    found = evaluate_phrases(whole, corpus, "val", device="cpu", features=stores)
    assert found.metrics == json.loads((whole / "best" / "metrics.json").read_text())["val"]


def test_an_interrupted_run_ends_bit_for_bit_like_one_that_was_not(whole, corpus, recipe, stores, tmp_path):
    options, callback = {"device": "cpu", "features": stores}, RecordingCallback((2, 9))
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path, workers=0, callbacks=[callback], **options)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path, resume=True, workers=1, callbacks=[callback], **options)
    train(recipe, corpus, tmp_path, resume=True, workers=2, callbacks=[callback], **options)
    assert_same_run(whole, tmp_path)


REGIONS = f"{{method='selective-search', count={COUNT}, smallest=0.05, overlap=0.8}}"
TOWERS = f"image={{name='regions', side=160, regions={REGIONS}}}, text={{name='tfidf'}}"
OTHERS = {
    "pairs": [
        f"model={{name='similarity_net', image_layers=[16, 8], text_layers=[16, 8], dropout=0.2, fused=[8], {TOWERS}}}",
        "model.standardise=true",
        "stage.1.objective={name='logistic'}",
        "stage.1.batches={size=40}",
        "stage.1.phrases={positives='all', rivals=1}",
        "stage.1.trainable=['image_branch', 'text_branch', 'fused']",
        "stage.1.optimiser={name='sgd', rate=0.05, decay=0.001}",
        "stage.1.epochs=2",
    ],
    "cca": [
        f"model={{name='cca', joint=4, regularisation=0.1, {TOWERS}}}",
        "stage.1.objective={name='correlation'}",
        "stage.1.batches={size=40}",
        "stage.1.phrases={positives='all', rivals=2}",
        "stage.1.trainable=['image_projection', 'text_projection']",
        "stage.1.epochs=1",
    ],
}


@pytest.fixture(scope="module")
def solved(corpus, stores, tmp_path_factory):
    recipe = load_recipe("phrases-scenes", OTHERS["cca"])
    return train(recipe, corpus, tmp_path_factory.mktemp("runs") / "cca", device="cpu", workers=0, features=stores)


def interrupted(name, corpus, stores, into):
    """A run that was interrupted at its third step, and went on; the names of what its optimiser remembers."""
    recipe, callback = load_recipe("phrases-scenes", OTHERS[name]), RecordingCallback((3,))
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, into, device="cpu", callbacks=[callback], features=stores)
    assert not (into / "best").exists()
    train(recipe, corpus, into, resume=True, device="cpu", callbacks=[callback], features=stores)
    return {key.rsplit(".", 1)[1] for key in load_file(snapshot_path(into)) if key.startswith("optimiser.")}


@pytest.fixture(scope="module")
def in_pairs(corpus, stores, tmp_path_factory):
    recipe = load_recipe("phrases-scenes", OTHERS["pairs"])
    return train(recipe, corpus, tmp_path_factory.mktemp("runs") / "pairs", device="cpu", workers=0, features=stores)


def test_pairs_one_by_one_with_momentum_and_dropout_resume_alike(in_pairs, corpus, stores, tmp_path):
    assert interrupted("pairs", corpus, stores, tmp_path) == {"momentum_buffer"}
    assert_same_run(in_pairs, tmp_path)


def test_branches_standardise_by_all_regions_and_phrases_of_the_training_photos(in_pairs, corpus, stores):
    model, part = Model.load(in_pairs, "cpu", stores=stores), corpus.split("train")
    values, _ = model.torch_engine.image_reader(part).read(np.arange(len(part.image_ids)))
    regions = values[values.any(-1)]
    assert len(regions) < values.shape[0] * values.shape[1], "no place is empty"
    phrases = model.vocabulary.encode_all(find_mentions(part).phrases)
    ids, lengths = phrases.batch(np.arange(len(phrases)))
    with torch.inference_mode():
        sides = {
            "image": model.matcher.image(torch.from_numpy(regions)),
            "text": model.matcher.text(Tokens(torch.from_numpy(ids), torch.from_numpy(lengths))),
        }
    for side, vectors in sides.items():
        found = getattr(model.matcher, f"{side}_branch").standardise(vectors)
        torch.testing.assert_close(found.mean(0), torch.zeros(found.shape[1]), atol=1e-4, rtol=0)
        spread = found.std(0, correction=0)
        assert (torch.isclose(spread, torch.ones(()), atol=1e-2) | (spread < 1e-4)).all(), side
        assert torch.isclose(spread, torch.ones(()), atol=1e-2).float().mean() > 0.3  # many words are in no phrase


def test_a_solved_stage_that_is_interrupted_in_its_pass_begins_it_again(solved, corpus, stores, tmp_path):
    assert interrupted("cca", corpus, stores, tmp_path) == set()
    assert_same_run(solved, tmp_path)


def test_a_solved_stage_has_the_projections_of_all_pairs(solved, corpus, stores):
    """From the run's own features, in one block, each mention with every region that shows it."""
    trained = Model.load(solved, "cpu", stores=stores)
    part = corpus.split("train")
    known = find_mentions(part)
    reader = trained.torch_engine.image_reader(part)
    boxes = reader.boxes
    vectors, _ = reader.read(np.arange(len(part.image_ids)))
    images, texts = [], []
    ids, lengths = trained.vocabulary.encode_all(known.phrases).batch(np.arange(len(known)))
    encoded = trained.matcher.text(Tokens(torch.from_numpy(ids), torch.from_numpy(lengths)))
    for row, (image, box) in enumerate(zip(known.images, known.boxes, strict=True)):
        shares = box_iou(boxes[image].astype(np.float64), box[None].astype(np.float64))[:, 0]
        own = shares.argmax()  # the box itself is proposed, so it is pooled twice, and counts twice
        assert shares[own] > 0.999
        for place in (own, *np.flatnonzero(shares >= 0.7)):
            images.append(trained.matcher.image(torch.from_numpy(vectors[image, place])))
            texts.append(encoded[row])
    direct = CCASettings(
        joint=4,
        regularisation=0.1,
        image=FeatureSettings(shape=(len(images[0]),)),
        text=TfidfSettings(),
        words=len(trained.vocabulary),
    ).build()
    direct.accumulate_vectors(torch.stack(images), torch.stack(texts))
    (solution,) = direct.solutions()
    direct.adopt(solution)
    torch.testing.assert_close(trained.matcher.correlations, direct.correlations, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(trained.matcher.text_mean, direct.text_mean, rtol=1e-4, atol=1e-6)


RIDGES = (1e-4, 0.1, 1000.0)


@pytest.fixture(scope="module")
def swept(corpus, stores, tmp_path_factory):
    """A run that chooses its ridge, the recipe, and what it has said."""
    recipe = load_recipe("phrases-scenes", [*OTHERS["cca"], f"model.regularisation={list(RIDGES)}"])
    callback, into = RecordingCallback(), tmp_path_factory.mktemp("runs") / "swept"
    train(recipe, corpus, into, device="cpu", workers=0, callbacks=[callback], features=stores)
    return into, recipe, callback


def test_a_ridge_is_chosen_by_localisation_on_val_as_if_each_had_been_a_run(swept, solved, corpus, stores, tmp_path):
    run, _, callback = swept
    (line,) = journal(run)
    choice = line["choice"]
    assert choice["select"] == "phrase_sum"
    assert choice == json.loads((run / "best" / "metrics.json").read_text())["choice"]
    alone = {0.1: solved}
    for ridge in (1e-4, 1000.0):
        recipe = load_recipe("phrases-scenes", [*OTHERS["cca"], f"model.regularisation={ridge}"])
        alone[ridge] = train(recipe, corpus, tmp_path / str(ridge), device="cpu", workers=0, features=stores)
    val = {ridge: json.loads((alone[ridge] / "best" / "metrics.json").read_text())["val"] for ridge in RIDGES}
    assert len({metrics["phrase_sum"] for metrics in val.values()}) > 1, "the ridge makes no difference here"
    assert choice["measured"] == [{"regularisation": ridge, "val": val[ridge]} for ridge in RIDGES]
    kept = choice["kept"]
    assert val[kept]["phrase_sum"] == max(metrics["phrase_sum"] for metrics in val.values())
    assert line["val"] == val[kept]
    for folder in ("best", "last"):
        ours, theirs = (load_weights(path) if folder == "best" else last_weights(path) for path in (run, alone[kept]))
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            assert torch.equal(tensor, theirs[name]), name
    figures = ", ".join(f"{ridge:g}: {val[ridge]['phrase_sum']:.1f}" for ridge in RIDGES)
    assert callback.messages_with("regularisation") == [f"regularisation: phrase_sum on val {figures}; kept {kept:g}"]


def test_a_run_that_is_killed_while_it_chooses_a_ridge_resumes_bit_for_bit(swept, corpus, stores, tmp_path):
    run, recipe, _ = swept
    validate, measured = PhraseData.validate, []

    def interrupted(data, progress):
        if len(measured) == 1:
            press_ctrl_c()
        measured.append(validate(data, progress))
        return measured[-1]

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(PhraseData, "validate", interrupted)
        train(recipe, corpus, tmp_path, device="cpu", features=stores)
    assert len(measured) == 1
    assert last_weights(tmp_path)["correlations"].any(), "the snapshot is not of a solution that was measured"
    assert not (tmp_path / "best").exists()
    train(recipe, corpus, tmp_path, resume=True, device="cpu", features=stores)
    assert_same_run(run, tmp_path)


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("lacking", ["boxes", "phrases"])
def test_a_split_without_phrases_or_boxes_is_one_line_before_any_work(split, lacking, corpus, recipe, tmp_path):
    splits = corpus.image_splits if lacking == "boxes" else corpus.text_splits
    column = [() if of == split else some for of, some in zip(splits, getattr(corpus, lacking), strict=True)]
    with pytest.raises(DataError, match=rf"scenes: no phrase with a box.*in the split {split}\)") as caught:
        train(recipe, replace(corpus, **{lacking: column}), tmp_path / "run", features=tmp_path / "features")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir()), "features were computed, or a run was begun"


def test_a_corpus_without_any_phrases_is_one_line(corpus, recipe, tmp_path):
    with pytest.raises(DataError, match=r"scenes: no phrase with a box.*\(stage 1 needs some in the split train\)"):
        train(recipe, replace(corpus, phrases=None, boxes=None), tmp_path / "run", features=tmp_path)


def test_phrases_without_a_known_word_are_left_out_and_reported(corpus, stores, tmp_path):
    phrases = [list(some) for some in corpus.phrases]
    for text in (4, 7):
        phrases[text] = [replace(phrase, text=f"zyzzyva{text}") for phrase in phrases[text]]
    changed = replace(corpus, phrases=phrases)
    lost = sum(len(phrases[text]) for text in (4, 7))
    callback = RecordingCallback()
    recipe = load_recipe("phrases-scenes", [*SMALL, "stage.1.epochs=1", "text.threshold=4"])
    run = train(recipe, changed, tmp_path, device="cpu", workers=0, callbacks=[callback], features=stores)
    (told,) = callback.messages_with("left out")
    assert told == f"left out {lost} training texts without a known word; the first is 'zyzzyva4'"
    assert "zyzzyva4" not in (run / "vocabulary.json").read_text()
    nothing = [[replace(phrase, text="zyzzyva") for phrase in some] for some in corpus.phrases]
    nobody = replace(corpus, phrases=nothing, texts=["red " * 20] * len(corpus.texts))
    with pytest.raises(DataError, match="none of the training texts has a known word"):
        train(load_recipe("phrases-scenes", [*SMALL, "text.threshold=1000"]), nobody, tmp_path / "no", features=stores)


def test_photos_that_cannot_be_read_are_left_out_and_reported(corpus, stores, tmp_path):
    pictures = list(corpus.pictures)
    pictures[0] = pictures[9] = BrokenPicture()
    callback = RecordingCallback()
    recipe = load_recipe("phrases-scenes", [*SMALL, "stage.1.epochs=1"])
    changed = replace(corpus, pictures=pictures)
    train(recipe, changed, tmp_path / "run", device="cpu", workers=0, callbacks=[callback], features=stores)
    said = "left out 2 training photos that cannot be read; the first is broken.jpg: truncated"
    assert callback.messages_with("left out") == [said]
    pictures = [
        BrokenPicture() if split == "train" else own for split, own in zip(corpus.image_splits, pictures, strict=True)
    ]
    nothing = replace(corpus, pictures=pictures)
    with pytest.raises(
        DataError, match=r"scenes: none of the training photos can be read; the first is broken\.jpg"
    ) as caught:
        train(recipe, nothing, tmp_path / "none", device="cpu", features=stores)
    assert "\n" not in str(caught.value)


def test_phrases_and_the_model_must_go_together(corpus, recipe, tmp_path):
    (stage,) = recipe.stage
    plain = recipe.model_copy(update={"stage": (stage.model_copy(update={"phrases": None, "select": "rsum"}),)})
    with pytest.raises(RecipeError, match=r"^stage\.1\.phrases: the model reads regions of photos.*set phrases = \{\}"):
        train(plain, corpus, tmp_path)
    with pytest.raises(RecipeError, match=r"^stage\.1\.phrases: the model reads whole images; use a two-branch model"):
        train(load_recipe("scenes", ["stage.1.phrases={}"]), corpus, tmp_path)
    with pytest.raises(RecipeError, match=r"^stage\.1\.select = 'rsum': not a metric of this stage"):
        train(load_recipe("phrases-scenes", [*SMALL, "stage.1.select=rsum"]), corpus, tmp_path)
    assert not list(tmp_path.iterdir())
