"""A small file of claims on drawn scenes, whose runs take a fraction of a second."""

from diptych.reproduction.claims import read_claim_files

DATA = "scenes:train=40,val=10,test=16,texts=2"

TINY = """
title = "Tiny"
reference = "Nobody, 2020"

[run.sum]
title = "sum of hinges"
small.recipe = "scenes"
small.set.model = { joint = 16, text = { hidden = 16, word = 8 }, image = { width = 2, pixels = 16 } }
small.set.stage.1.batches.size = 16
small.set.stage.2 = { epochs = 1, batches = { size = 16 }, objective = { negatives = "sum" } }
small.pace = 2.0
full.recipe = "vse0-1c-vgg19"

[run.max]
title = "max of hinges"
like = "sum"
small.set.stage.2.objective.negatives = "max"
full.set.stage.1.objective.negatives = "max"

[run.offline]
title = "offline negatives"
like = "sum"
small.set.stage.2.objective.name = "quintuplet"
small.set.stage.2.offline = { lists = "run:sum", top_texts = 5, top_images = 3 }
small.pace = 4.0

[run.continued]
title = "continued"
like = "sum"
small.set.stage.1.start = "run:sum"

[combined.two]
title = "two seeds"
run = "sum"
next_seed = true

[claim.max-beats-sum]
says = "Max beats sum."
where = "Table 1"
fair = "the same epochs"
[[claim.max-beats-sum.compare]]
higher = ["max"]
lower = ["sum"]
[[claim.max-beats-sum.compare.published]]
where = "Table 1, rows 1 and 2"
data = "COCO"
higher = [[3, 4, 5, 6, 7, 8]]
lower = [[1, 2, 3, 4, 5, 6]]

[claim.many-things]
says = "Many <things>."
where = "Table 2"
fair = "nothing"
unequal = "the sides differ on purpose"
[[claim.many-things.compare]]
higher = ["offline", "sum"]
lower = ["sum", "max"]
metric = "t2t_r1"
[[claim.many-things.compare]]
higher = ["two"]
lower = ["continued"]
[[claim.many-things.compare]]
higher = ["offline"]
lower = ["sum"]
metric = "seconds"
expect = "less"
bound = 1000
[[claim.many-things.compare]]
higher = ["max"]
lower = ["sum"]
metric = "first_epochs"
epochs = 1
expect = "equal"
bound = 600
[[claim.many-things.compare]]
higher = ["max"]
lower = ["sum"]
metric = "overlap"

[claim.people]
says = "People are found."
where = "Table 3"
fair = "nothing"
needs = ["identities"]
[[claim.people.compare]]
higher = ["max"]
lower = ["sum"]
"""


def claim_files_of(folder, content=TINY):
    """The files of claims in a folder, after writing one."""
    (folder / "tiny.toml").write_text(content)
    return read_claim_files(folder)
