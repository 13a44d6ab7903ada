"""The base of fake models: a model that is its own engine, so that one class says how everything is encoded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych import model
from diptych.models.address import ModelFiles
from diptych.text.vocabulary import Vocabulary

Model: Any = model.Model  # for mypy: the methods of an engine do not have the signatures of a model's


class OwnEngine(Model):
    """Its `encode_texts`, `score` and so on are those of an engine, which return and take `Encodings`."""

    address, identity, is_inner_product = "runs/fake", "fake", True
    reads_pictures, localises, encodes_vectors, decode_size, quality = True, False, True, 224, "best"
    tokeniser = Vocabulary((), (), 1)  # splits texts; what is known is asked of the model

    def __init__(self):
        super().__init__(engine=self)


def model_from(open_engine, address, identity):
    """A model as `Model.load` makes it: at an address, with an engine that is opened when it is needed."""

    @dataclass
    class Source:
        quality: str = "best"

        files = ModelFiles(address, Path(), (), ())
        has_graphs = True

        def open_graphs(self):
            return open_engine()

        @property
        def identity(self):
            return identity()

    return Model(Source())
