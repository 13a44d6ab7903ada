"""What several ranks train in tests: tiny recipes for every objective and kind of model, and data for them."""

from dataclasses import replace
from functools import cache

import numpy as np

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes

GRU = 'text = { name = "gru", word = 6, hidden = 8 }\n'
MEAN = 'text = { name = "words", word = 6, hidden = 8, dropout = 0 }\n'
CNN = 'text = { name = "cnn", depth = "small", word = 4, length = 16, alignment = "left" }\n'
FEATURES = 'image = { name = "features" }\n'
VSE = 'name = "vse"\njoint = 8\n' + GRU + FEATURES
WORDS = 'name = "vse"\njoint = 8\n' + MEAN + FEATURES
PICTURES = VSE.replace('"features"', '"cnn", pixels = 32, width = 2')
ORDER = VSE.replace("vse", "order")
BRANCHES = 'name = "two_branch"\nimage_layers = [9, 8]\ntext_layers = [9, 8]\ndropout = 0\n' + MEAN + FEATURES
SIMILARITY = BRANCHES.replace("two_branch", "similarity_net")
SCAN = 'name = "scan"\njoint = 8\ntext = { word = 6 }\n'
BFAN = SCAN.replace("scan", "bfan")
VSRN = 'name = "vsrn"\njoint = 8\nblocks = 2\ngeneration = { hidden = 6, word = 5, dropout = 0 }\n' + GRU
DUAL_PATH = 'name = "dual_path"\nhidden = 9\njoint = 8\ndropout = 0\n' + CNN + FEATURES

STAGE = "epochs = 2\nbatches = { size = 12 }\noptimiser = { rate = 0.003 }\n"
LISTS = 'offline = { lists = "previous", top_texts = 20, top_images = 6 }\n'
HINGE = '[[stage]]\nobjective = { name = "hinge" }\n' + STAGE
OFFLINE = '[[stage]]\nobjective = { name = "quintuplet" }\n' + LISTS + STAGE


# Trained by `diptych train`.
SMALL_RECIPE = f"""
[model]
{PICTURES}

[text]
threshold = 1

[[stage]]
epochs = 3
objective = {{ name = "hinge", negatives = "sum" }}
batches = {{ size = 16 }}
optimiser = {{ name = "sgd", rate = 0.005 }}
"""
DATA = "scenes:train=40,val=8,test=2"


def objective(settings, more=""):
    """A stage with an objective."""
    return f"[[stage]]\nobjective = {{ {settings} }}\n{STAGE}{more}"


# By name: the model, the stages, and the kind of data. The last stage is compared.
CASES = {
    "hinge": (VSE, HINGE, "features"),
    "hinge of sums": (VSE, objective('name = "hinge", negatives = "sum"'), "features"),
    "hinge, pictures": (PICTURES, HINGE, "pictures"),
    "hinge, order": (ORDER, HINGE, "features"),
    "hinge, chunks": (VSE, HINGE.replace("size = 12", "size = 12, chunk = 4"), "features"),
    "contrastive": (VSE, objective('name = "contrastive", learn_temperature = true'), "features"),
    "contrastive, chunks": (
        VSE,
        objective('name = "contrastive", learn_temperature = true').replace("size = 12", "size = 12, chunk = 5"),
        "features",
    ),
    "mvn": (WORDS, objective('name = "mvn"'), "features"),
    "mvn, chunks": (WORDS, objective('name = "mvn"').replace("size = 12", "size = 12, chunk = 5"), "features"),
    "instance": (DUAL_PATH, objective('name = "instance", rank = 1.0'), "features"),
    "instance, sampled": (DUAL_PATH, objective('name = "instance", sampled = 14'), "features"),
    "neighbourhood": (
        BRANCHES,
        objective('name = "neighbourhood"').replace("size = 12", "size = 12, neighbours = true"),
        "features",
    ),
    "logistic": (SIMILARITY, objective('name = "logistic"').replace("size = 12", "size = 12, rivals = 3"), "features"),
    "quintuplet": (WORDS, HINGE + OFFLINE, "features"),
    "scan": (SCAN, HINGE, "regions"),
    "bfan": (BFAN, HINGE, "regions"),
    "scan, quintuplet": (SCAN, HINGE + OFFLINE, "regions"),
    "vsrn": (VSRN, HINGE, "regions"),
    "vsrn, quintuplet": (VSRN, HINGE + OFFLINE, "regions"),
}


def recipe(name):
    """The recipe of a case as TOML."""
    model, stages, _ = CASES[name]
    return f"[model]\n{model}\n\n[text]\nthreshold = 1\n\n{stages}"


@cache
def corpus(kind):
    """Drawn scenes with stored features, or with sets of regions of which some are missing."""
    scenes = make_scenes(train=30, val=6, test=2, images=2, texts=3, seed=2)
    if kind == "pictures":
        return scenes
    cells = np.array([np.asarray(picture.load().resize((2, 2))).reshape(4, 3) / 255 for picture in scenes.pictures])
    values = cells.astype(np.float32)
    if kind == "regions":
        values[::3, 3:] = 0
    else:
        values = values.reshape(len(values), 12)
    return replace(scenes, pictures=None, features=Features([values]))
