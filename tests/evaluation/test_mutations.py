"""Systematic small errors in the code that ranks, each of which the comparison with a plain loop must catch.

Every mutant changes one node of the syntax tree: a comparison, an operator, a reduction, a call that is left out. So
the test survives a rename, and new code is mutated without anybody listing it.
"""

import ast
import copy
import sys
import types
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from diptych.evaluation.metrics import ranks as ranks_module
from diptych.evaluation.metrics import tiles as tiles_module
from diptych.evaluation.metrics.scores import embedding_score, matrix_score
from diptych.models.spread_rows import SpreadRows
from support.ranks import on_threads

SWAPPED_NAMES = {"ge": ["gt", "le"], "maximum": ["minimum"], "amax": ["amin"]}
SWAPPED_OPERATORS = {ast.Eq: ast.NotEq, ast.IsNot: ast.Is, ast.Is: ast.IsNot}

PLACE = ("lineno", "col_offset", "end_lineno", "end_col_offset")

# Functions that decide what a rank is; others choose sizes of tiles, check inputs, or only affect speed.
MUTATED = {
    ranks_module: {"collect_positives", "collect_negatives", "_in_given_order"},
    tiles_module: {"count_at_least", "_positives", "_steps", "_steps_on_ranks", "_collect"},
}


def mutations(node):
    """The mutants of one node: functions that change a copy of it in place, and what they change."""
    if isinstance(node, ast.Attribute) and node.attr in SWAPPED_NAMES:
        for name in SWAPPED_NAMES[node.attr]:
            yield f"{node.attr} becomes {name}", lambda mutant, name=name: setattr(mutant, "attr", name)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED_OPERATORS:
        operator = SWAPPED_OPERATORS[type(node.ops[0])]
        yield f"{type(node.ops[0]).__name__} turned", lambda mutant: setattr(mutant, "ops", [operator()])
    yield from operator_mutations(node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "call left out", lambda mutant: setattr(mutant, "value", ast.Constant(None))
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith("masked_fill"):
        yield "mask emptied", lambda mutant: mutant.args.__setitem__(0, emptied(mutant.args[0]))
    if isinstance(node, ast.Tuple) and [getattr(item, "value", None) for item in node.elts] == [1, 0]:
        yield "axes swapped", lambda mutant: mutant.elts.reverse()
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.slice, ast.Attribute):
        yield "order lost", lambda mutant: setattr(mutant, "slice", ast.Slice())


def operator_mutations(node):
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        yield "not turned", lambda mutant: setattr(mutant, "op", ast.UAdd())
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield "+ becomes -", lambda mutant: setattr(mutant, "op", ast.Sub())
    if isinstance(node, ast.AugAssign):
        yield "accumulation left out", lambda mutant: setattr(mutant, "op", ast.Mult())


def emptied(mask):
    """An expression that is false everywhere: the mask, exclusive or itself."""
    return ast.BinOp(mask, ast.BitXor(), copy.deepcopy(mask))


def mutants():
    for module, functions in MUTATED.items():
        tree = ast.parse(Path(module.__file__).read_text())
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef) or function.name not in functions:
                continue
            for node in ast.walk(function):
                for what, change in mutations(node):
                    mutant = copy.deepcopy(tree)
                    change(next(other for other in ast.walk(mutant) if same_place(other, node)))
                    name = f"{function.name}, line {node.lineno}: {what}"
                    yield pytest.param(module, ast.fix_missing_locations(mutant), id=name)


def same_place(one, other):
    places = [(type(node), *(getattr(node, name, None) for name in PLACE)) for node in (one, other)]
    return places[0] == places[1]


def load(module, tree, monkeypatch):
    """A module of this name from a syntax tree, put where others import it from."""
    loaded = types.ModuleType(module.__name__)
    monkeypatch.setitem(sys.modules, module.__name__, loaded)
    exec(compile(tree, module.__file__, "exec"), vars(loaded))
    return loaded


def plain_ranks(scores, query_groups, answer_groups):
    """1 + the negatives that score at least as high as the best positive, one query at a time."""
    found = []
    for row, group in zip(scores, query_groups, strict=True):
        best = max(score for score, other in zip(row, answer_groups, strict=True) if other == group)
        above = sum(score >= best for score, other in zip(row, answer_groups, strict=True) if other != group)
        found.append(1 + above)
    return found


def differs_from_plain(ranks):
    """Whether an implementation differs from the plain one in a random case; scores are coarse, so ties are common."""
    random = np.random.default_rng(0)
    for _ in range(20):
        image_groups = random.permutation(np.repeat(np.arange(5), [1, 2, 1, 3, 1]))
        text_groups = random.permutation(np.repeat(np.arange(5), [5, 1, 2, 3, 4]))
        scores = random.integers(0, 6, (8, 15)).astype(np.float32)
        everything = [ranks(matrix_score(torch.from_numpy(scores)), image_groups, text_groups, block=24)]
        everything += on_threads(2, partial(ranks_of_spread, ranks, scores, image_groups, text_groups))
        expected = plain_ranks(scores, image_groups, text_groups), plain_ranks(scores.T, text_groups, image_groups)
        if any((found.images.tolist(), found.texts.tolist()) != expected for found in everything):
            return True
    return False


def ranks_of_spread(ranks, scores, image_groups, text_groups, processes):
    """The ranks of encodings that are spread over processes, whose inner products are the scores."""
    images, texts = torch.eye(len(scores)), torch.from_numpy(scores.T.copy())
    spread = [SpreadRows(rows[processes.share(len(rows))], processes) for rows in (images, texts)]
    return ranks(embedding_score(lambda rows, columns: rows @ columns.T, *spread), image_groups, text_groups, block=24)


@pytest.mark.parametrize(("module", "tree"), list(mutants()))
def test_every_mutant_is_caught(module, tree, monkeypatch):
    mutant = load(module, tree, monkeypatch)
    if module is not ranks_module:  # loaded again, so that it imports the mutant
        mutant = load(ranks_module, ast.parse(Path(ranks_module.__file__).read_text()), monkeypatch)
    try:
        caught = differs_from_plain(mutant.ranks)
    except Exception:  # a mutant that crashes is caught as well
        caught = True
    assert caught


def test_the_original_is_not_caught(monkeypatch):
    for module in (tiles_module, ranks_module):
        loaded = load(module, ast.parse(Path(module.__file__).read_text()), monkeypatch)
    assert not differs_from_plain(loaded.ranks)


def test_there_are_mutants_of_every_function():
    names = [mutant.id.partition(",")[0] for mutant in mutants()]
    assert set(names) == set().union(*MUTATED.values())
    assert len(names) >= 18
