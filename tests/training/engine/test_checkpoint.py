"""What a snapshot brings back, looked at without a whole training."""

import torch

from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.contrastive import Contrastive
from diptych.text.vocabulary import Vocabulary
from diptych.training.engine.checkpoint import Position, Snapshot, save_snapshot
from diptych.training.prepare import make_step
from diptych.training.recipe import Stage

WORDS = Vocabulary.from_texts(["a red circle"], 1)


def step(learn_temperature=False):
    image = FeatureSettings(shape=(6,))
    matcher = VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=image, words=len(WORDS)).build()
    stage = Stage(objective=Contrastive(temperature=0.3, learn_temperature=learn_temperature))
    return make_step(matcher, stage, torch.device("cpu"))


def test_the_random_state_comes_back(tmp_path):
    # what dropout draws; test_train_fine_tuning.py stops and resumes a whole training that depends on it
    made = step()
    torch.manual_seed(7)
    torch.rand(3)
    save_snapshot(tmp_path, WORDS, made, Position(), "corpus")
    expected = torch.rand(4)
    torch.manual_seed(99)
    Snapshot.read(tmp_path).restore(made)
    assert torch.equal(torch.rand(4), expected)


def test_the_position_comes_back(tmp_path):
    position = Position(2, 3, 4, 55.5, 2, 6, 70, {"image_to_text": 0.1}, False)
    save_snapshot(tmp_path, WORDS, step(), position, "corpus")
    assert Snapshot.read(tmp_path).position == position


def test_what_the_objective_learned_comes_back_with_its_optimiser(tmp_path):
    made = step(learn_temperature=True)
    parameter = made.parameters["log_temperature"]
    for _ in range(3):
        made.optimiser.zero_grad()
        (5 * parameter).backward()
        made.optimiser.step()
    save_snapshot(tmp_path, WORDS, made, Position(), "corpus")
    again = step(learn_temperature=True)
    Snapshot.read(tmp_path).restore(again)
    restored = again.parameters["log_temperature"]
    assert torch.equal(restored, parameter)
    assert not torch.equal(restored, step(learn_temperature=True).parameters["log_temperature"])
    for key, value in made.optimiser.state[parameter].items():
        assert torch.equal(again.optimiser.state[restored][key], value)
