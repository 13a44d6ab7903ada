"""Tiny recipes, and changes that make a recipe tiny."""

SMALL = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "stage.1.batches.size=16"]
TINY = [*SMALL, "model.image.width=2", "model.image.pixels=32", "stage.2.batches.size=16", "stage.2.epochs=2"]


MODEL = """
[model]
name = "vse"
joint = 16
text = { name = "gru", word = 8, hidden = 16 }
image = { name = "cnn", pixels = 32, width = 2 }
"""
BASE = """
[text]
threshold = 1

[[stage]]
epochs = 2
objective = { name = "hinge", negatives = "sum" }
batches = { size = 16 }
optimiser = { rate = 0.005 }
"""
HEAD = """
[[stage]]
start = "previous"
head = { hidden = 12, output = 8, bias = false }
trainable = ["base.project", "base.text", "head_images", "head_texts"]
epochs = 2
objective = { name = "contrastive", negatives = "max", margin = 0.2, temperature = 0.1 }
batches = { size = 16 }
optimiser = { rate = 0.005 }
"""
