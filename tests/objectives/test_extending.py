"""The examples of docs/extend/objective.md: written to their files, they work in a training as the page says."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import softplus

import diptych
from diptych.data.formats.scenes import make_scenes
from diptych.data.sampling.extras import Extras
from diptych.objectives import extras
from diptych.objectives.objective import ObjectiveContext, ScoredPairs
from diptych.training.needs.need import Need, find_need
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.corpora import with_features
from support.runs import journal

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "objective.md"
TEXT = PAGE.read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# src/diptych/(\S+)\n(.*?)```", TEXT, re.DOTALL))
SCORES = torch.tensor([[0.9, 0.2, 0.1], [0.8, 0.3, 0.4], [-0.5, 0.7, 0.6]])
POSITIVES = torch.tensor([[1, 0, 0], [0, 1, 1], [0, 1, 1]], dtype=torch.bool)
SMALL = ["model.joint=8", "model.text.hidden=8", "model.text.word=4", "model.image={name='features'}"]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The files of the page as modules of the package, in a folder of their own."""
    modules = {}
    for file, code in FILES.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
        package = importlib.import_module(".".join(["diptych", *Path(file).parent.parts]))
        if str(path.parent) not in package.__path__:
            monkeypatch.setattr(package, "__path__", [*package.__path__, str(path.parent)])
        modules[path.stem] = f"{package.__name__}.{path.stem}"
    importlib.invalidate_caches()
    yield modules
    for module in modules.values():
        package, _, name = module.rpartition(".")
        if sys.modules.pop(module, None):
            delattr(sys.modules[package], name)


def objective(written, name, **settings):
    (found,) = (
        value
        for value in vars(importlib.import_module(written[name])).values()
        if getattr(value, "model_fields", {}).get("name") is not None and value.model_fields["name"].default == name
    )
    return found(**settings)


def test_the_files_of_the_page_are_found():
    assert {Path(file).stem for file in FILES} == {
        "exponential",
        "scaled",
        "yes_or_no",
        "group_sizes",
        "group_balanced",
    }
    assert not any((Path(diptych.__file__).parent / file).exists() for file in FILES)


def test_exponential(written):
    terms = objective(written, "exponential", scale=2.0).loss(ScoredPairs(SCORES, POSITIVES)).terms
    negatives = {0: [1, 2], 1: [0], 2: [0]}
    for name, scores in (("image_to_text", SCORES), ("text_to_image", SCORES.t())):
        expected = sum(torch.exp(2 * (scores[k, m] - scores[k, k])) for k, others in negatives.items() for m in others)
        torch.testing.assert_close(terms[name], expected)


def test_scaled(written):
    scaled = objective(written, "scaled")
    parameters = scaled.initial_parameters(ObjectiveContext())
    terms = scaled.loss(ScoredPairs(SCORES, POSITIVES, parameters=parameters)).terms
    hardest = torch.tensor([0.2, 0.8, -0.5])
    expected = softplus(torch.tensor(2.0).exp() * (hardest - SCORES.diagonal())).sum()
    torch.testing.assert_close(terms["image_to_text"], expected)


def test_yes_or_no(written):
    terms = objective(written, "yes_or_no", scale=3.0).loss(ScoredPairs(SCORES, POSITIVES)).terms
    torch.testing.assert_close(terms["pairs"], softplus(-3 * SCORES.diagonal()).sum())
    torch.testing.assert_close(terms["negatives"], softplus(3 * SCORES[~POSITIVES]).sum())


def test_group_balanced(written):
    balanced = objective(written, "group_balanced", temperature=0.5)
    sizes = importlib.import_module(written["group_balanced"]).GroupSizes(torch.tensor([1, 3, 3]))
    terms = balanced.loss(ScoredPairs(SCORES, POSITIVES, Extras(sizes))).terms
    negatives = {0: [1, 2], 1: [0], 2: [0]}
    for name, scores in (("image_to_text", SCORES), ("text_to_image", SCORES.t())):
        logits = scores / 0.5
        losses = torch.stack([logits[k, [k, *others]].logsumexp(0) - logits[k, k] for k, others in negatives.items()])
        torch.testing.assert_close(terms[name], (losses * torch.tensor([0.6, 0.2, 0.2])).sum())


@pytest.mark.parametrize("name", ["exponential", "scaled", "yes_or_no", "group_balanced"])
def test_recipes_can_name_them(written, name, tmp_path):
    changes = [f"stage.1.objective={{name='{name}'}}", "stage.1.batches.size=8", *SMALL]
    recipe = load_recipe("scenes", changes).first(1)
    corpus = with_features(make_scenes(train=6, val=3, test=3, texts=2))
    run = train(recipe, corpus, tmp_path / "run", device="cpu", workers=0)
    (line,) = journal(run)
    assert line["loss"] > 0
    if name == "group_balanced":
        assert find_need("group_sizes").__module__ == written["group_sizes"]


def table(heading):
    """The first column of a table, without quotes and arguments."""
    rows = TEXT.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return {name for cell in re.findall(r"^\| ([^|]+) \|", rows, re.MULTILINE) for name in re.findall(r"`(\w+)", cell)}


def test_the_tables_list_needs_that_exist_and_all_methods():
    needs = table("Need")
    assert len(needs) >= 5
    assert all(find_need(name).name == name for name in needs)
    assert table("Method of `Need`") == {name for name in vars(Need) if not name.startswith("_")} - {"name"}


def test_the_files_and_types_that_the_page_mentions_exist():
    source = Path(diptych.__file__).parent
    named = set(re.findall(r"`((?:src|tests|objectives|training|data)/[\w/]+\.py)`", TEXT))
    named = {file for file in named if "NAME" not in file}
    assert len(named) > 5
    missing = {file for file in named if not (source / file).is_file() and not (PAGE.parents[2] / file).is_file()}
    assert not missing
    types = set(re.findall(r"^\| `\w+` \| `(\w+)` \|", TEXT, re.MULTILINE))
    assert types
    assert all(hasattr(extras, name) for name in types)
