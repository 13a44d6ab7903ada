"""Runs of tiny models with random weights, which take no training."""

import torch

from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary
from diptych.training.make import MadeRun
from diptych.training.recipe import Recipe


def tiny_settings(words, joint=5, **changes):
    """The settings of a tiny model that reads pixels."""
    image = changes.pop("image", CNNSettings(pixels=16, width=2))
    return VSESettings(joint=joint, text=GRUSettings(hidden=joint, word=3), image=image, words=words, **changes)


def random_run(folder, texts, *, settings=tiny_settings, seed=0, **changes):
    """Write a run with random weights and the vocabulary of these texts; returns its folder."""
    vocabulary = Vocabulary.from_texts(texts, 1)
    torch.manual_seed(seed)
    model = settings(len(vocabulary), **changes)
    MadeRun(model.build(), vocabulary, Recipe(title=folder.name, model=model)).write(folder)
    return folder
