"""What a snapshot brings back, looked at without a whole training."""

import torch

from diptych.models.image_towers.features import FeatureSettings
from diptych.models.text_towers.gru import GRUSettings
from diptych.models.vse import VSESettings
from diptych.text.vocabulary import Vocabulary
from diptych.training.checkpoint import Position, Snapshot, save_snapshot
from diptych.training.recipe import Optimiser
from diptych.training.stage import make_optimiser

WORDS = Vocabulary.count(["a red circle"], 1)


def matcher():
    image = FeatureSettings(shape=(6,))
    return VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=image, words=len(WORDS)).build()


def test_the_random_state_comes_back(tmp_path):
    # what dropout draws; test_fine_tuning.py stops and resumes a whole training that depends on it
    model = matcher()
    optimiser = make_optimiser(model, Optimiser())
    torch.manual_seed(7)
    torch.rand(3)
    save_snapshot(tmp_path, model, WORDS, optimiser, Position(), "corpus")
    expected = torch.rand(4)
    torch.manual_seed(99)
    Snapshot.read(tmp_path).restore(model, optimiser)
    assert torch.equal(torch.rand(4), expected)


def test_the_position_comes_back(tmp_path):
    model = matcher()
    position = Position(2, 3, 4, 55.5, 2, 6, 70, {"image_to_text": 0.1}, False)
    save_snapshot(tmp_path, model, WORDS, make_optimiser(model, Optimiser()), position, "corpus")
    assert Snapshot.read(tmp_path).position == position
