import numpy as np
import pytest
import torch
from PIL import Image

from diptych.data.scenes import make_scenes
from diptych.errors import DataError, ImageError
from diptych.index.search import Gallery
from diptych.models.image_towers.cnn import CNNSettings
from diptych.models.text_towers.gru import GRUSettings
from diptych.models.trained import Trained
from diptych.models.vse import VSESettings
from diptych.text.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def gallery():
    corpus = make_scenes(train=2, val=2, test=9, texts=2).split("test")
    vocabulary = Vocabulary.count(corpus.texts, 1)
    torch.manual_seed(0)
    image = CNNSettings(pixels=32, width=2)
    matcher = (
        VSESettings(joint=8, text=GRUSettings(hidden=8, word=4), image=image, words=len(vocabulary)).build().eval()
    )
    return Gallery(Trained(matcher, vocabulary, torch.device("cpu")), corpus)


def test_images_come_in_the_order_of_their_scores(gallery):
    trained, corpus = gallery.trained, gallery.corpus
    hits = gallery.find_images("two red circles", k=4)
    images, _, _ = trained.encode_images(corpus)
    scores = trained.matcher.score(images, trained.encode_texts(["two red circles"]))[:, 0]
    order = scores.argsort(descending=True)[:4].tolist()
    assert [hit.row for hit in hits] == order
    assert [hit.name for hit in hits] == [corpus.image_ids[row] for row in order]
    assert [hit.score for hit in hits] == pytest.approx(scores[order].tolist(), abs=1e-6)


def test_an_image_by_its_id_and_as_a_file_find_the_same_texts(gallery, tmp_path):
    row = 3
    gallery.corpus.pictures[row].load().save(tmp_path / "scene.png")
    by_id = gallery.find_texts(gallery.corpus.image_ids[row], k=5)
    by_file = gallery.find_texts(tmp_path / "scene.png", k=5)
    assert [hit.row for hit in by_id] == [hit.row for hit in by_file]
    assert [hit.score for hit in by_id] == pytest.approx([hit.score for hit in by_file], abs=1e-5)
    assert by_id[0].name == gallery.corpus.texts[by_id[0].row]


def test_blocks_change_nothing(gallery, monkeypatch):
    whole = gallery.find_images("a green star", k=9)
    monkeypatch.setattr("diptych.index.search.BLOCK", 2)
    assert [hit.row for hit in gallery.find_images("a green star", k=9)] == [hit.row for hit in whole]


def test_more_answers_than_there_are(gallery):
    assert len(gallery.find_images("a star", k=1000)) == 9
    assert len(gallery.find_texts(gallery.corpus.image_ids[0], k=1000)) == 18


def test_unknown_words_are_named(gallery):
    assert gallery.unknown_words("a zebra and a Zebra, red") == ["zebra"]


def test_an_unreadable_image_is_skipped_and_the_others_keep_their_names(gallery):
    class Broken:
        def load(self):
            raise ImageError("broken.jpg: truncated")

    corpus = gallery.corpus.take(np.arange(9), np.arange(18))
    pictures = [Broken() if row == 2 else picture for row, picture in enumerate(corpus.pictures)]
    object.__setattr__(corpus, "pictures", pictures)
    broken = Gallery(gallery.trained, corpus)
    hits = {hit.name: hit.score for hit in broken.find_images("a red circle", k=9)}
    whole = {hit.name: hit.score for hit in gallery.find_images("a red circle", k=9)}
    left_out = corpus.image_ids[2]
    assert broken.skipped == {left_out: "broken.jpg: truncated"}
    assert hits.keys() == whole.keys() - {left_out}
    assert all(hits[name] == pytest.approx(whole[name], abs=1e-5) for name in hits)


def test_bad_questions(gallery, tmp_path):
    with pytest.raises(DataError, match="question is empty"):
        gallery.find_images("  ")
    with pytest.raises(DataError, match="at least one"):
        gallery.find_images("x", k=0)
    with pytest.raises(ImageError, match="no such file"):
        gallery.find_texts(tmp_path / "none.jpg")
    Image.new("RGB", (4, 4)).save(tmp_path / "tiny.png")
    assert gallery.find_texts(tmp_path / "tiny.png", k=1)
