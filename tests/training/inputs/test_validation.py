"""A stage is measured on the pairs of val, as an evaluation of its model measures them."""

import pytest
import torch

from diptych.data.formats.scenes import make_scenes
from diptych.evaluation.runs import validation_metrics
from diptych.model import Model
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.hinge import Hinge
from diptych.text.vocabulary import Vocabulary
from diptych.training.inputs.images import StageImages
from diptych.training.inputs.texts import StageTexts
from diptych.training.inputs.validation import RetrievalOnVal, describe_retrieval
from diptych.training.recipe import Stage


def test_it_measures_the_matched_pairs_of_val(tmp_path):
    corpus = make_scenes(train=4, val=9, test=2, texts=2)
    words = Vocabulary.from_texts(corpus.texts, 1)
    image, text = CNNSettings(pixels=16, width=2), GRUSettings(hidden=5, word=3)
    matcher = VSESettings(joint=5, text=text, image=image, words=len(words)).build()
    model = Model.from_matcher(matcher.eval(), words, torch.device("cpu"))
    images = StageImages(model, Stage(objective=Hinge()), tmp_path, 0, lambda *_: None, lambda _: None)
    texts = StageTexts(model, tmp_path, lambda *_: None, lambda _: None)
    calls = []
    on_val = RetrievalOnVal(corpus, images, texts)
    assert on_val.chance["t2i_r1"] == pytest.approx(100 / 9)
    assert on_val.chance["i2t_r1"] == pytest.approx(100 / 9)
    measured = on_val.measure(lambda *done: calls.append(done))
    assert calls[-1][0] == calls[-1][1]
    encoded = model.torch_engine.encode_corpus(corpus.split("val"), 0)
    assert measured == pytest.approx(validation_metrics(encoded))


def test_the_main_measures_in_one_line():
    assert describe_retrieval({"rsum": 123.46, "i2t_r1": 1, "t2i_r1": 2.25}) == "rsum 123.5  R@1 1.0 / 2.2"
