"""Several processes encode what one would, and one that ends does not leave the others waiting."""

import multiprocessing
import os
import signal

import numpy as np
import pytest
from PIL import Image

from diptych.errors import DiptychError, RunError
from diptych.index.encoding_pool import EncodingPool, OwnEncoder, image_encoder
from diptych.model import Model


@pytest.fixture(scope="module")
def model():
    return Model.load("starter", quality="fast")


@pytest.fixture(scope="module")
def batches(model):
    noise = np.random.default_rng(0).integers(0, 256, (4, 60, 80, 3), np.uint8)
    prepared = [model.engine.preprocess(Image.fromarray(each)) for each in noise]
    return [prepared[:1], prepared[1:3], prepared[3:]]


def vectors(encoder, batches):
    results = [encoder.begin(batch) for batch in batches]
    return [result().vectors for result in results]


def test_processes_give_the_vectors_of_one(model, batches, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with image_encoder(model) as alone:
        assert isinstance(alone, OwnEncoder)
        expected = vectors(alone, batches)
    with image_encoder(model, 2) as pool:
        assert isinstance(pool, EncodingPool)
        for found, wanted in zip(vectors(pool, batches), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
        with pytest.raises(DiptychError):
            pool.begin([np.zeros(3)])()
        np.testing.assert_allclose(vectors(pool, batches[:1])[0], expected[0], rtol=0, atol=1e-5)
    assert not multiprocessing.active_children()


def test_a_process_that_is_killed_is_noticed(model, batches):
    with image_encoder(model, 2) as pool:
        for process in multiprocessing.active_children():
            os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(DiptychError, match="a process that encodes has ended; what was written is complete"):
            pool.begin(batches[1])()


def test_a_model_in_memory_cannot_be_loaded_by_others():
    with pytest.raises(RunError, match="a model in memory"), image_encoder(Model(), 2):
        pass
