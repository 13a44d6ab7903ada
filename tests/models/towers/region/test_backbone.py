"""Regions of a frozen backbone: from a store, or of a photo that nobody has seen."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from diptych.data.formats.scenes import make_scenes
from diptych.errors import ImageError, RecipeError
from diptych.features import proposals
from diptych.features.backbone import Backbone
from diptych.features.crops import Crops
from diptych.features.readers import StoreOptions, image_reader
from diptych.features.regions import Regions
from diptych.model import Model
from diptych.models.encode import encode_pictures
from diptych.models.matcher import Matcher
from diptych.models.towers import pretrained as module
from diptych.models.towers.region.backbone import RegionBackboneSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.text.vocabulary import Vocabulary

CPU = torch.device("cpu")
SEARCH = Regions(method="selective-search", count=3)
PHOTOS = make_scenes(train=1, val=1, test=5, texts=1).split("test")


class Tiny(Backbone):
    """Sees squares of 32 pixels, or others, as cells of 8 with three colours."""

    name, side, size, grid, any_side = "tiny", 32, 3, (16, 3), True

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1 / 256))

    def regions(self, pixels):
        cells = pixels.float().unfold(2, 8, 8).unfold(3, 8, 8).mean((4, 5))
        return (cells * self.scale).flatten(2).transpose(1, 2)

    def forward(self, pixels):
        return self.regions(pixels).mean(1)


class Seeing(Matcher):
    """A matcher that encodes images as their regions."""

    def __init__(self, tower):
        super().__init__()
        self.tower = tower

    @property
    def image_input(self):
        return self.tower.input

    @property
    def pretrained(self):
        return self.tower.pretrained

    def encode_images(self, images):
        return self.tower(images)

    encode_texts = score = load_pretrained = load_word_vectors = None


class Broken:
    def load(self):
        raise ImageError("broken.jpg: truncated")


def two_boxes(regions):
    """Stands for OpenCV: the whole photo, a box that depends on the photo, and places that stay empty."""

    def propose(photo):
        red, green, blue = (float(value) / 256 for value in photo.resize((1, 1)).getpixel((0, 0)))
        boxes = np.zeros((regions.count, 4), np.float32)
        boxes[:2] = [[0, 0, 1, 1], [red / 2, green / 2, 0.5 + blue / 2, 1]]
        return boxes

    return propose


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(module, "build_backbone", lambda name: Tiny())
    monkeypatch.setattr(module, "load_backbone", lambda name, weights: Tiny())
    monkeypatch.setattr(proposals, "proposer", two_boxes)


def trained(stores=None, **settings):
    matcher = Seeing(RegionBackboneSettings(**settings).build()).requires_grad_(False).eval()
    return Model.from_matcher(matcher, Vocabulary.from_texts(PHOTOS.texts, 1), CPU, stores=stores)


@pytest.mark.parametrize("regions", [Regions(), SEARCH], ids=["grid", "proposals"])
@pytest.mark.parametrize("side", [None, 64])
def test_a_photo_that_nobody_has_seen_gives_what_the_store_gives(tmp_path, regions, side):
    model = trained(regions=regions, side=side)
    live, numbers, _ = model.torch_engine.encode_corpus_images(PHOTOS, workers=2)
    assert numbers.tolist() == list(range(5))
    count = SEARCH.count if regions.are_boxes else (16 if side is None else 64)
    assert live.shape == (5, count, 3)
    store = StoreOptions(tmp_path, CPU, workers=0, create=True)
    stored = image_reader(PHOTOS, model.matcher.image_input, model.matcher.pretrained, store=store)
    filed, _, _ = model.torch_engine.encode_corpus_images(PHOTOS, reader=stored)
    torch.testing.assert_close(filed, live, atol=1e-3, rtol=1e-3)  # stored as float16
    from_store = trained(tmp_path, regions=regions, side=side)
    assert torch.equal(from_store.torch_engine.encode_corpus_images(PHOTOS)[0], filed)
    found = torch.from_numpy(encode_pictures(model.engine, PHOTOS.pictures)[0])
    torch.testing.assert_close(found, live[:, : found.shape[1]])
    assert not live[:, found.shape[1] :].any()


def test_a_photo_that_cannot_be_read_is_left_out_and_nobody_moves_up():
    model = trained(regions=SEARCH)
    whole, _, _ = model.torch_engine.encode_corpus_images(PHOTOS)
    pictures = [Broken() if number in (0, 3) else picture for number, picture in enumerate(PHOTOS.pictures)]
    found, numbers, skipped = model.torch_engine.encode_corpus_images(replace(PHOTOS, pictures=pictures))
    assert numbers.tolist() == [1, 2, 4]
    torch.testing.assert_close(found, whole[[1, 2, 4]])
    assert skipped == {PHOTOS.image_ids[number]: "broken.jpg: truncated" for number in (0, 3)}
    with pytest.raises(ImageError, match=r"broken\.jpg: truncated"):
        encode_pictures(model.engine, [Broken()])


def test_cells_of_pixels_and_stored_ones_as_they_are():
    tower = RegionBackboneSettings().build()
    assert (tower.size, tower.input.crops, tower.input.regions) == (3, Crops(name="whole"), Regions())
    pixels = torch.randint(0, 256, (2, 1, 3, 32, 32), dtype=torch.uint8)
    torch.testing.assert_close(tower(pixels), Tiny().regions(pixels[:, 0]))
    values = torch.randn(2, 16, 3)
    assert tower(values) is values
    tower.load_pretrained()


def test_a_corpus_with_regions_needs_no_backbone():
    assert RegionBackboneSettings().for_data(None) == RegionBackboneSettings()
    assert RegionBackboneSettings(regions=SEARCH).for_data((36, 2048)) == RegionFeatureSettings(shape=(36, 2048))


def test_proposals_need_the_whole_photo_and_a_frozen_backbone():
    with pytest.raises(RecipeError, match="selective-search needs crops = \"whole\", not '1C'"):
        RegionBackboneSettings(regions=SEARCH, crops="1C").build()
    matcher = trained(regions=SEARCH).matcher
    with pytest.raises(RecipeError, match="selective-search: regions are pooled beforehand"):
        matcher.encode_images(torch.zeros(1, 1, 3, 32, 32, dtype=torch.uint8))
