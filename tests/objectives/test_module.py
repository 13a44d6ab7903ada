"""Objectives as modules: parameters, optimisers, devices, state, and training in several processes."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from diptych.errors import ScoreError
from diptych.objectives import Contrastive, Hinge, Instance
from diptych.objectives.extras import ClassifierInputs

SEEDED = torch.Generator().manual_seed(0)
IMAGES, TEXTS = torch.randn(6, 4, generator=SEEDED), torch.randn(6, 4, generator=SEEDED)
SCORES = torch.randn(6, 6, generator=SEEDED)
CLASSES = [0, 1, 2, 2, 1, 0]


def test_an_objective_without_parameters_is_called_as_before():
    module = Hinge(margin=0.3).as_module()
    assert isinstance(module, nn.Module)
    assert list(module.parameters()) == []
    assert torch.equal(module(SCORES, groups=CLASSES), Hinge(margin=0.3)(SCORES, groups=CLASSES))
    assert torch.equal(module(images=IMAGES, texts=TEXTS), Hinge(margin=0.3)(images=IMAGES, texts=TEXTS))
    assert "margin=0.3" in repr(module)


def test_a_learned_temperature_starts_at_the_given_one_and_is_trained():
    module = Contrastive(temperature=0.5, learn_temperature=True).as_module()
    assert list(module.state_dict()) == ["log_temperature"]
    assert module.log_temperature.exp().item() == pytest.approx(0.5)
    torch.testing.assert_close(module(SCORES).detach(), Contrastive(temperature=0.5)(SCORES).detach())
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        losses.append(module(SCORES))
        losses[-1].backward()
        optimiser.step()
    assert losses[-1] < losses[0]
    assert module.log_temperature.exp().item() > 0.5  # random scores deserve no confidence


def test_a_classifier_is_trained_and_reports_its_errors():
    torch.manual_seed(0)
    module = Instance(bias=True).as_module(classes=3, embedding_dim=4)
    assert {name: tuple(value.shape) for name, value in module.named_parameters()} == {
        "classifier": (3, 4),
        "classifier_bias": (3,),
    }
    optimiser = torch.optim.Adam(module.parameters(), 0.3)
    for _ in range(100):
        optimiser.zero_grad()
        loss = module(images=IMAGES, texts=IMAGES, classes=CLASSES)
        loss.backward()
        optimiser.step()
    assert list(loss.terms) == ["visual", "textual"]
    assert loss.error_rates["visual"].item() <= 1 / 3
    logits = torch.nn.functional.linear(IMAGES, module.classifier, module.classifier_bias)
    again = module(images=IMAGES, texts=IMAGES, classes=CLASSES)
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(CLASSES))
    torch.testing.assert_close(again.terms["visual"], expected)


def test_a_classifier_with_a_ranking_term_reads_scores_too():
    module = Instance(rank=1.0).as_module(classes=3, embedding_dim=4)
    loss = module(images=IMAGES, texts=TEXTS, classes=CLASSES, groups=CLASSES)
    assert list(loss.terms) == ["image_to_text", "text_to_image", "visual", "textual"]
    ranked = Instance(rank=1.0, visual=0.0, textual=0.0)(images=IMAGES, texts=TEXTS, groups=CLASSES)
    torch.testing.assert_close(loss.terms["image_to_text"], ranked.terms["image_to_text"])


def test_a_classifier_within_autocast():
    module = Instance(classes_at_once=2).as_module(classes=3, embedding_dim=4)
    with torch.autocast("cpu", torch.bfloat16):
        loss = module(images=IMAGES.bfloat16(), texts=TEXTS.bfloat16(), classes=CLASSES)
    loss.backward()
    assert loss.dtype == module.classifier.grad.dtype == torch.float32
    whole = Instance().as_module(classes=3, embedding_dim=4)
    whole.load_state_dict(module.state_dict())
    expected = whole(images=IMAGES.bfloat16().float(), texts=TEXTS.bfloat16().float(), classes=CLASSES)
    torch.testing.assert_close(loss.detach(), expected.detach())


def test_state_goes_from_one_to_another():
    one, other = (Instance().as_module(classes=3, embedding_dim=4) for _ in range(2))
    other.load_state_dict(one.state_dict())
    inputs = {"images": IMAGES, "texts": TEXTS, "classes": CLASSES}
    assert torch.equal(one(**inputs), other(**inputs))


def test_another_device():
    module = Contrastive(learn_temperature=True).as_module().to("meta")
    assert module(SCORES.to("meta")).device.type == "meta"
    with pytest.raises(ScoreError, match=r"^log_temperature on meta, the rest of the batch on cpu; move with"):
        module(SCORES)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"images": IMAGES[:, :3], "texts": TEXTS[:, :3]},
            r"images of shape \(6, 3\) for a classifier of embeddings of size 4",
        ),
        (
            {"images": IMAGES, "texts": TEXTS, "classes": [0, 1, 2, 3, 1, 0]},
            "classes from 0 to 3 for a classifier of 3; number",
        ),
        (
            {"images": IMAGES, "texts": TEXTS, "classes": [0, 1, 2, -1, 1, 0]},
            "classes from -1 to 2 for a classifier of 3",
        ),
    ],
)
def test_what_does_not_fit_the_classifier(inputs, message):
    with pytest.raises(ScoreError, match=f"^{message}"):
        Instance().as_module(classes=3, embedding_dim=4)(**{"classes": CLASSES, **inputs})


def test_features_of_distinct_images_can_be_passed():
    module = Instance().as_module(classes=3, embedding_dim=4)
    image_of, rows = torch.tensor([0, 1, 1, 0, 1, 0]), torch.arange(6)
    classes = image_of
    inputs = ClassifierInputs(IMAGES[:2], TEXTS, image_of, rows, classes)
    loss = module(SCORES, extras=[inputs])
    repeated = module(images=IMAGES[image_of], texts=TEXTS, classes=classes)
    torch.testing.assert_close(loss.detach(), repeated.detach())


def test_the_sizes_of_a_classifier_are_needed():
    with pytest.raises(ScoreError, match=r"^Instance needs a size: as_module\(classes=\.\.\.\)$"):
        Instance().as_module(embedding_dim=4)
    with pytest.raises(ScoreError, match=r"^Instance classifies embeddings, so it needs their size: as_module\("):
        Instance().as_module(classes=3)


def test_a_misspelt_argument():
    with pytest.raises(TypeError, match="grups"):
        Hinge().as_module()(SCORES, grups=CLASSES)


PROCESS = """
import os
import sys
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from diptych.objectives import Contrastive, Hinge

class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(5, 4), nn.Linear(6, 4)
    def forward(self, images, texts):
        return self.image(images), self.text(texts)

def gradients(wrap, share):
    torch.manual_seed(0)
    towers, objective = wrap(Towers()), wrap(Contrastive(learn_temperature=True).as_module())
    images, texts = torch.randn(2, 8, 5), torch.randn(2, 8, 6)
    for part in share:
        x, y = towers(images[part], texts[part])
        loss = objective(images=x, texts=y) + 0.1 * Hinge()(images=x, texts=y)
        (loss / len(share)).backward()
    return [parameter.grad for module in (towers, objective) for parameter in module.parameters()]

rank, store = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
together = gradients(DDP, [rank])
alone = gradients(lambda module: module, [0, 1])
for ours, theirs in zip(together, alone, strict=True):
    torch.testing.assert_close(ours, theirs)
assert len(together) == 5 and all(gradient.abs().sum() > 0 for gradient in together)
wrapped = DDP(Contrastive(learn_temperature=True).as_module())
assert list(wrapped(torch.eye(3)).terms) == ["image_to_text", "text_to_image"]
torch.distributed.barrier()
torch.distributed.destroy_process_group()
sys.stderr.flush()
os._exit(0)  # without the interpreter's shutdown, in which threads of gloo sometimes abort
"""


@pytest.mark.long
def test_gradients_of_several_processes_are_averaged(tmp_path):
    """Two processes under DDP, one batch each, have the mean of the gradients of both batches; the temperature, too."""
    script = tmp_path / "process.py"
    script.write_text(PROCESS, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    running = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store")],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=300)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], errors
