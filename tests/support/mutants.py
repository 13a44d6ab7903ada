"""Small wrongs put into the syntax tree of a module, each of which its tests must notice."""

import ast
import copy
from collections.abc import Iterator

SWAPPED_OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Eq: ast.NotEq, ast.Gt: ast.LtE, ast.LtE: ast.Gt}
SWAPPED_METHODS = {"amax": "amin", "amin": "amax", "min": "max", "max": "min", "sum": "mean", "mean": "sum"}
DROPPED_METHODS = {"clamp", "masked_fill", "masked_fill_"}


def mutants(source: str, functions: set[str]) -> Iterator[tuple[str, str]]:
    """A description and the source of each mutant: one change in one of these functions or methods."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.FunctionDef) and node.name in functions:
            for inner, child in enumerate(ast.walk(node)):
                for name, change in _changes(child):
                    mutant = copy.deepcopy(tree)
                    target = list(ast.walk(list(ast.walk(mutant))[number]))[inner]
                    change(target)
                    before = ast.unparse(child)
                    yield f"{node.name}: {name} in {before[:60]}", ast.unparse(ast.fix_missing_locations(mutant))


def _changes(node):
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED_OPERATORS:
        yield "other sign", lambda target: setattr(target, "op", SWAPPED_OPERATORS[type(target.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED_OPERATORS:
        yield "other comparison", lambda target: setattr(target, "ops", [SWAPPED_OPERATORS[type(target.ops[0])]()])
    if isinstance(node, ast.IfExp):
        yield "other branch", _swap_branches
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in SWAPPED_METHODS:
            yield "other method", lambda target: setattr(target.func, "attr", SWAPPED_METHODS[target.func.attr])
        if node.func.attr in DROPPED_METHODS:
            yield "no call", _drop_call


def _swap_branches(target):
    target.body, target.orelse = target.orelse, target.body


def _drop_call(target):
    """Replace `x.method(...)` by `x`; written as a conditional, which keeps the node itself in place."""
    receiver = target.func.value
    target.func, target.args, target.keywords = ast.parse("(lambda value: value)", mode="eval").body, [receiver], []
