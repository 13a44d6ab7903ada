"""What a stage reads: stored features if the backbone is frozen, and crops of the photos otherwise."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.data.images import PictureFile
from diptych.errors import DataError, DiptychError, RecipeError
from diptych.features.backbones.registry import load_backbone
from diptych.features.crops import Crops, fixed_crops
from diptych.features.extract import extract
from diptych.features.image_input import ImageInput
from diptych.features.store import FeatureStoreSpec
from diptych.model import Model
from diptych.models.storage import load_tensors, save_tensors
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.engine.trainable import set_trainable
from diptych.training.inputs.images import StageImages
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback

SIDE = 64
SMALL = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "text.threshold=1", f"model.image.side={SIDE}"]
STORE = f"lite0-1C-{SIDE}"
CPU = torch.device("cpu")
LAST = "image.backbone.head"
FINE_TUNE = [
    *SMALL,
    "stage.1.epochs=1",
    "stage.1.batches.size=4",
    "stage.2.epochs=1",
    "stage.2.batches.size=4",
    f"stage.2.trainable=['project', 'text', '{LAST}']",
    "stage.2.optimiser={rate=0.001, parts={image=0.5}}",
]


@dataclass(frozen=True)
class Drawn:
    """A picture that was drawn once, and smaller than a crop."""

    image: Image.Image

    def load(self):
        return self.image.copy()


@pytest.fixture(scope="module")
def corpus():
    scenes = make_scenes(train=6, val=3, test=3, texts=2)
    return replace(scenes, pictures=[Drawn(picture.load().resize((60, 48))) for picture in scenes.pictures])


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="module")
def tuned(corpus, stores, tmp_path_factory):
    recipe = load_recipe("vsepp-ft-small", FINE_TUNE)
    return train(recipe, corpus, tmp_path_factory.mktemp("runs") / "tuned", device="cpu", features=stores)


@pytest.fixture(scope="module")
def frozen(corpus, stores, tmp_path_factory):
    """A run whose backbone stayed as it was, and what was said."""
    callback, folder = RecordingCallback(), tmp_path_factory.mktemp("runs") / "frozen"
    recipe = load_recipe("vsepp", [*SMALL, "stage.1.epochs=1"])
    return train(recipe, corpus, folder, device="cpu", features=stores, callbacks=[callback]), "\n".join(
        callback.messages
    )


def test_a_frozen_backbone_is_read_from_the_store(corpus, stores, tuned):
    part = json.loads((stores / STORE / "part-00000.json").read_text())
    assert len(part["rows"]) == 6  # the training images, then the val images
    first = load_file(tuned / "stage-1" / "weights.safetensors")
    pretrained = load_backbone("lite0").state_dict()
    assert all(torch.equal(first[f"image.backbone.{name}"], value) for name, value in pretrained.items())


def test_fine_tuning_moves_the_named_blocks_and_no_statistics(tuned):
    before = load_file(tuned / "stage-1" / "weights.safetensors")
    after = {name[6:]: value for name, value in load_file(snapshot_path(tuned)).items() if name.startswith("model.")}
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert f"{LAST}.0.weight" in moved
    assert not any("running" in name for name in moved)
    assert {name for name in moved if name.startswith("image.")} <= {name for name in before if name.startswith(LAST)}


def test_validation_from_the_store_equals_encoding_the_pictures(corpus, frozen, stores):
    trained = Model.load(frozen[0], "cpu")
    val = corpus.split("val")
    from_pictures = trained.encode_corpus(val).images
    spec = FeatureStoreSpec.for_backbone(trained.matcher.pretrained, Crops(side=SIDE))
    stored = extract(val.pictures, trained.matcher.pretrained, spec, stores / STORE, workers=0, device=CPU)
    assert stored.computed == 0  # training left them all
    with torch.inference_mode():
        from_store = trained.matcher.encode_images(torch.from_numpy(stored.features[np.arange(3)]))
    torch.testing.assert_close(from_store, from_pictures, rtol=0, atol=1e-5)


def test_a_run_is_measured_from_the_store_if_there_is_one(corpus, frozen, tmp_path, stores, monkeypatch):
    run, _ = frozen
    computed = Model.load(run, "cpu").encode_corpus(corpus.split("val"))

    def decode(*_):
        raise AssertionError("read from the picture")

    monkeypatch.setattr("diptych.features.readers.load_for_crops", decode)
    stored = Model.load(run, "cpu", stores=stores).encode_corpus(corpus.split("val"))
    torch.testing.assert_close(stored.images, computed.images, rtol=1e-4, atol=1e-5)
    with pytest.raises(AssertionError, match="read from the picture"):
        Model.load(run, "cpu", stores=tmp_path / "nothing").encode_corpus(corpus.split("val"))


def test_a_resumed_run_on_random_crops_ends_with_the_same_weights(corpus, stores, tmp_path):
    recipe = load_recipe("vsepp", [*SMALL, "stage.1.crops=RC", "stage.1.epochs=2", "stage.1.batches.size=6"])
    whole = train(recipe, corpus, tmp_path / "whole", device="cpu", features=stores, workers=0)
    stopped = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, stopped, device="cpu", features=stores, callbacks=[RecordingCallback((3,))])
    again = train(recipe, corpus, stopped, resume=True, device="cpu", features=stores, workers=2)
    assert snapshot_path(whole).read_bytes() == snapshot_path(again).read_bytes()
    fixed = load_recipe("vsepp", [*SMALL, "stage.1.epochs=2", "stage.1.batches.size=6"])
    other = train(fixed, corpus, tmp_path / "fixed", device="cpu", features=stores)
    assert snapshot_path(other).read_bytes() != snapshot_path(whole).read_bytes()


def test_a_backbone_with_other_weights_gets_a_store_of_its_own(corpus, stores, tuned, tmp_path):
    file = tuned / "best" / "weights.safetensors"
    tensors, about = load_tensors(file)
    tensors[f"{LAST}.0.weight"] += 0.01
    save_tensors(file, tensors, about)
    recipe = load_recipe("vsepp", [*SMALL, f"stage.1.start={tuned}", "stage.1.epochs=1"])
    recipe = recipe.model_copy(update={"model": load_recipe("vsepp-ft-small", FINE_TUNE).model})
    train(recipe, corpus, tmp_path / "run", device="cpu", features=stores)
    assert len(list(stores.glob(f"{STORE}*"))) == 2


def test_pairs_of_an_unreadable_photo_are_skipped(corpus, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    pictures = list(corpus.pictures)
    pictures[1] = PictureFile(tmp_path / "broken.jpg")
    recipe = load_recipe("vsepp", [*SMALL, "stage.1.epochs=1"])
    run = train(
        recipe, replace(corpus, pictures=pictures), tmp_path / "run", device="cpu", features=tmp_path / "features"
    )
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    skipped = [line for line in lines if line["event"] == "skipped"]
    assert [line["image"] for line in skipped] == [corpus.image_ids[1]]
    assert "broken.jpg: not an image" in skipped[0]["message"]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        (["model.image.backbone=lite9"], RecipeError, "backbone 'lite9': no such name; did you mean 'lite"),
        (["stage.1.crops=RC", "model.image={name='cnn'}"], RecipeError, 'stage.1.crops = "RC": random crops need'),
        (
            ["stage.1.optimiser.parts={image=0.1}"],
            RecipeError,
            "stage.1.optimiser.parts: nothing in 'image'",
        ),
        (["stage.1.splits=['train', 'restval']"], DataError, "trains on the split restval, which has no images"),
        (["stage.1.optimiser.parts={imag=0.1}"], RecipeError, "stage.1.optimiser.parts: the model has no part 'imag'"),
    ],
    ids=["backbone", "crops", "frozen part", "split", "parts"],
)
def test_impossible_recipes_are_refused_before_anything_is_written(corpus, tmp_path, changes, error, words):
    with pytest.raises(error) as caught:
        train(load_recipe("vsepp", [*SMALL, *changes]), corpus, tmp_path / "run", features=tmp_path / "features")
    assert words in str(caught.value)
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "features").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["model.image.weights=nowhere.safetensors"], "nowhere.safetensors: no such file"),
        (["model.image.backbone=lite4"], "lite4"),
    ],
    ids=["weights", "no package"],
)
def test_a_failed_start_leaves_no_run_behind(corpus, tmp_path, changes, words):
    with pytest.raises(DiptychError, match=words):
        train(load_recipe("vsepp", [*SMALL, *changes]), corpus, tmp_path / "run", features=tmp_path / "features")
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_training_continues_after_an_interrupted_feature_extraction(corpus, tmp_path):
    recipe, folders = load_recipe("vsepp", [*SMALL, "stage.1.epochs=1"]), (tmp_path / "run", tmp_path / "features")
    with pytest.raises(KeyboardInterrupt):
        train(
            recipe,
            corpus,
            folders[0],
            device="cpu",
            features=folders[1],
            callbacks=[RecordingCallback(preparation="features")],
        )
    assert train(recipe, corpus, folders[0], device="cpu", features=folders[1]) == folders[0]


def test_photos_smaller_than_the_crop_are_reported(corpus, frozen):
    assert f"6 photos are smaller than the crop and were enlarged; the first is {corpus.image_ids[0]} (" in frozen[1]


@pytest.mark.parametrize("crops", ["RC", "window"])
def test_photos_too_small_for_random_crops_are_reported_as_they_are_read(corpus, images_of, crops):
    said = []
    images, part = replace(images_of(("project",), crops), report=said.append), corpus.split("train")
    reader = images.for_training(part)
    images.report_enlarged(reader, part.image_ids)
    assert said == []
    reader.read(np.array([4]), (0, 0))
    images.report_enlarged(reader, part.image_ids)
    reader.read(np.array([3, 2]), (0, 1))
    images.report_enlarged(reader, part.image_ids)
    width, height = part.pictures[0].load().size
    assert said == [
        f"1 photo is smaller than the crop and was enlarged; the first is {part.image_ids[4]} ({width} x {height})",
        f"3 photos are smaller than the crop and were enlarged; the first is {part.image_ids[2]} ({width} x {height})",
    ]
    images.report_enlarged(images.for_encoding(part), part.image_ids)
    assert said[2].startswith("6 photos are")  # reported when the store is opened, and not again
    assert len(said) == 3


def test_training_parts_of_a_backbone_needs_a_backbone(corpus, tmp_path):
    own = replace(corpus, pictures=None, features=Features([np.zeros((12, 5), np.float32)]))
    with pytest.raises(RecipeError, match="part of a backbone, and the model reads no photos through one"):
        train(load_recipe("vsepp-ft-small", FINE_TUNE), own, tmp_path / "run")


def test_a_damaged_store_is_an_error_with_its_file(corpus, tmp_path):
    about = tmp_path / "features" / STORE / "about.json"
    about.parent.mkdir(parents=True)
    about.write_text("{}")
    with pytest.raises(DataError, match=r"about\.json: key .* is missing; delete"):
        train(load_recipe("vsepp", SMALL), corpus, tmp_path / "run", device="cpu", features=tmp_path / "features")


@pytest.fixture(scope="module")
def images_of(tuned, stores):
    """How a stage reads, its backbone frozen or not."""

    def make(trainable, crops=None):
        trained = Model.load(tuned, "cpu", snapshot="stage-1")
        if crops == "one":
            trained.matcher.image.input = ImageInput("crops", (3, SIDE, SIDE), Crops(name="10C", side=SIDE))
        set_trainable(trained.matcher, trainable)
        stage = load_recipe("vsepp", SMALL).stage[0].model_copy(update={"crops": crops})
        return StageImages(trained, stage, stores, 0, lambda done, total: None, lambda message: None)

    return make


@pytest.mark.parametrize("crops", ["RC", "window", "one"])
def test_random_crops_change_with_the_draw_and_only_in_training(corpus, images_of, crops):
    images, two = images_of(("project",), crops), np.array([0, 3])
    train = images.for_training(corpus.split("train"))
    draws = [train.read(two, (0, step))[0] for step in (0, 0, 1, 2)]
    assert draws[0].dtype == np.uint8
    assert np.array_equal(draws[0], draws[1])
    assert len({draw.tobytes() for draw in draws}) == 3
    val = images.for_encoding(corpus.split("val"))
    assert np.array_equal(val.read(two[:1], (0, 0))[0], val.read(two[:1], (0, 1))[0])


@pytest.mark.parametrize(("trainable", "stored"), [(("project", "text"), True), (("project", LAST), False)])
def test_only_a_frozen_backbone_is_read_from_the_store(corpus, images_of, trainable, stored):
    images = images_of(trainable)
    for reader in (images.for_training(corpus.split("train")), images.for_encoding(corpus.split("val"))):
        values, _ = reader.read(np.array([0, 1]))
        assert values.shape == ((2, 1280) if stored else (2, 1, 3, SIDE, SIDE))


def test_one_fixed_crop_is_read_from_the_stored_maps_of_the_frozen_blocks(corpus, images_of):
    images, part = images_of(("project", LAST), "one"), corpus.split("train")
    matcher = images.model.matcher.eval()
    drawn, readable = images.for_training(part).read(np.array([2, 0]), (0, 7))
    everything, _ = images.for_encoding(part).read(np.array([2, 0]))
    assert readable.all()
    assert drawn.dtype == everything.dtype == np.float32
    assert (drawn.shape[:2], everything.shape[:2]) == ((2, 1), (2, 10))
    for one, all_of_them in zip(drawn, everything, strict=True):
        assert sum(np.array_equal(one[0], crop) for crop in all_of_them) == 1
    pixels = [fixed_crops(part.pictures[image].load(), matcher.image_input.crops, SIDE) for image in (2, 0)]
    with torch.inference_mode():
        from_maps = matcher.encode_images(torch.from_numpy(everything))
        from_pixels = matcher.encode_images(torch.from_numpy(np.stack(pixels)))
    torch.testing.assert_close(from_maps, from_pixels, rtol=0, atol=2e-3)  # maps are stored as float16


@pytest.mark.parametrize("trainable", [("project",), ("project", "image")], ids=["all frozen", "none frozen"])
def test_one_fixed_crop_of_a_backbone_that_is_not_partly_frozen_is_read_from_the_picture(corpus, images_of, trainable):
    images, part = images_of(trainable, "one"), corpus.split("train")
    (drawn, *_), _ = images.for_training(part).read(np.array([1]), (0, 3))
    fixed = fixed_crops(part.pictures[1].load(), Crops(name="10C", side=SIDE), SIDE)
    assert any(np.array_equal(drawn[0], crop) for crop in fixed)


def test_a_tower_that_does_not_read_maps_reads_pictures(corpus, images_of, monkeypatch):
    images, part = images_of(("project", LAST), "one"), corpus.split("train")
    assert images.model.matcher.reads_maps
    monkeypatch.setattr(type(images.model.matcher.image), "reads_maps", False)
    for reader in (images.for_training(part), images.for_encoding(part)):
        assert reader.read(np.array([1]))[0].dtype == np.uint8


def test_a_resumed_run_on_stored_maps_ends_with_the_same_weights(corpus, stores, tmp_path):
    one = ["model.image.crops=mirrored", "stage.2.crops=one", "stage.2.epochs=2", "stage.2.batches.size=6"]
    recipe = load_recipe("vsepp-ft-small", [*FINE_TUNE, *one])
    whole = train(recipe, corpus, tmp_path / "whole", device="cpu", features=stores, workers=0)
    stopped = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, stopped, device="cpu", features=stores, callbacks=[RecordingCallback((5,))])
    again = train(recipe, corpus, stopped, resume=True, device="cpu", features=stores, workers=2)
    assert snapshot_path(whole).read_bytes() == snapshot_path(again).read_bytes()
    assert (stores / f"lite0-17-mirrored-{SIDE}-crops-float16").is_dir()
    before, after = (load_file(whole / name / "weights.safetensors") for name in ("stage-1", "best"))
    changed = {
        name.split(".")[2]
        for name in before
        if name.startswith("image.backbone") and not before[name].equal(after[name])
    }
    assert changed <= {"head"}


def test_the_store_reader_of_a_corpus_is_created_once(corpus, images_of):
    said = []
    images, part = replace(images_of(("project",)), report=said.append), corpus.split("train")
    reader = images.for_encoding(part)
    assert images.for_training(part) is reader
    assert len(said) == 1  # the photos are small
    assert images.for_encoding(corpus.split("val")) is not reader
    assert len(said) == 2


def test_a_stage_from_scratch_measures_what_its_tower_standardises(corpus, stores, tmp_path):
    changes = [*SMALL, "model.image.standardise=true", "stage.1.epochs=1", "stage.1.batches.size=4"]
    recipe = load_recipe("vsepp", changes)
    train(recipe, corpus, tmp_path / "run", device="cpu", features=stores)
    model = Model.load(tmp_path / "run", "cpu", stores=stores)
    tower = model.matcher.image
    pictures = corpus.split("train")
    values, _ = model.torch_engine.image_reader(pictures).read(np.arange(len(pictures.image_ids)))
    with torch.inference_mode():
        vectors = tower(torch.from_numpy(values))
    torch.testing.assert_close(vectors.mean(0), torch.zeros(tower.size), atol=1e-4, rtol=0)
    spread = vectors.std(0, correction=0)
    is_one, is_constant = torch.isclose(spread, torch.ones(()), atol=1e-2), spread < 1e-4
    assert (is_one | is_constant).all()
    assert is_one.float().mean() > 0.5
