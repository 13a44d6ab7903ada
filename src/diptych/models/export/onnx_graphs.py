"""The two sides of a matcher as ONNX models, exported by torch; GRUs over words are built by hand."""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diptych.errors import RunError, one_line
from diptych.models.matcher import Matcher
from diptych.models.tower import TextTower, Tokens
from diptych.models.towers.text.gru import TextGRU
from diptych.optional import quiet
from diptych.text.tokenisers.token_table import END

OPSET = 20


class _Images(nn.Module):
    """The image side of a matcher."""

    def __init__(self, matcher: Matcher) -> None:
        super().__init__()
        self.matcher = matcher

    def forward(self, images: Tensor) -> Tensor:
        return self.matcher.encode_images(images)


class _Texts(nn.Module):
    """The text side of a matcher."""

    def __init__(self, matcher: Matcher) -> None:
        super().__init__()
        self.matcher = matcher

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        return self.matcher.encode_texts(Tokens(ids, lengths))


class _PrecomputedText(TextTower):
    """A tower that returns a span of the vectors in `Tokens.features`."""

    def __init__(self, start: int, size: int) -> None:
        super().__init__()
        self.start, self.size = start, size

    def forward(self, tokens: Tokens) -> Tensor:
        assert tokens.features is not None
        return tokens.features[:, self.start : self.start + self.size]


class _AfterTextTower(nn.Module):
    """What a matcher does after its text tower."""

    def __init__(self, matcher: Matcher) -> None:
        super().__init__()
        self.matcher = matcher

    def forward(self, features: Tensor) -> Tensor:
        nothing = torch.zeros(1, 1, dtype=torch.int64)
        return self.matcher.encode_texts(Tokens(nothing, nothing[0], features))


def image_shape(matcher: Matcher) -> tuple[int, ...]:
    """The shape of one image in the tower's input."""
    wanted = matcher.image_input
    return wanted.shape if wanted.crops is None else (wanted.crops.count, *wanted.shape)


def image_graph(matcher: Matcher, *, keeps_weights: bool = False) -> Any:
    """The image side as an ONNX model; the number of crops is free. `keeps_weights` is that of `exported`."""
    shape, axes = image_shape(matcher), {0: "images"}
    if matcher.image_input.crops is not None:
        shape, axes = (2, *shape[1:]), {0: "images", 1: "crops"}  # the exporter regards a one as fixed
    images = torch.zeros(2, *shape, dtype=torch.uint8)
    return exported(_Images(matcher), {"images": images}, {"images": axes}, keeps_weights=keeps_weights)


def text_graph(matcher: Matcher, *, keeps_weights: bool = False) -> Any:
    """The text side as an ONNX model; GRUs become ONNX's GRUs, everything else is exported by torch.

    `keeps_weights` is that of `exported`.
    """
    grus = [name for name, part in matcher.named_modules() if isinstance(part, TextGRU)]
    if not grus:
        ids = torch.full((2, 7), END)
        axes = {"ids": {0: "texts", 1: "length"}, "lengths": {0: "texts"}}
        tokens = {"ids": ids, "lengths": torch.full((2,), 7)}
        return exported(_Texts(matcher), tokens, axes, keeps_weights=keeps_weights)
    towers, behind, size = [], copy.deepcopy(matcher), 0
    for name in grus:
        tower = matcher.get_submodule(name)
        assert isinstance(tower, TextGRU)
        parent, _, own = name.rpartition(".")
        setattr(behind.get_submodule(parent), own, _PrecomputedText(size, tower.size))
        towers.append(tower)
        size += tower.size
    if any(isinstance(part, TextTower) and not isinstance(part, _PrecomputedText) for part in behind.modules()):
        raise RunError("a GRU beside another kind of text tower cannot be exported")
    rest = exported(_AfterTextTower(behind), {"features": torch.zeros(2, size)}, {"features": {0: "texts"}})
    return _joined(_gru_graph(towers, rest.ir_version), rest)


def exported(
    module: nn.Module, inputs: dict[str, Tensor], axes: dict[str, dict[int, str]], *, keeps_weights: bool = False
) -> Any:
    """A module as an ONNX model with named inputs, of which these axes are dynamic, and one output, `vectors`.

    With `keeps_weights`, its weights are those of the module; otherwise some are combined, such as those of a
    convolution with those of the batch normalisation after it.
    """
    names = {axis for of_input in axes.values() for axis in of_input.values()}
    dims = {name: torch.export.Dim(name, min=1) for name in names}
    shapes = {name: {axis: dims[dim] for axis, dim in of_input.items()} for name, of_input in axes.items()}
    try:
        # The exporter also prints what it cannot export.
        with quiet(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), torch.no_grad():
            program = torch.export.export(module.eval(), (), inputs, dynamic_shapes=shapes, strict=False)
            made = torch.onnx.export(
                program,
                dynamo=True,
                input_names=list(inputs),
                output_names=["vectors"],
                opset_version=OPSET,
                optimize=not keeps_weights,
                verbose=False,
            )
    except Exception as reason:  # the exporter raises anything
        raise RunError(f"torch cannot export it ({one_line(reason)})") from None
    assert made is not None
    model = _folded(made.model) if keeps_weights else made.model_proto
    for thing in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        thing.ClearField("metadata_props")  # paths of source files
        thing.ClearField("doc_string")
    return model


def _folded(model: Any) -> Any:
    """A model whose constant expressions are computed, except those of weights."""
    from onnxscript import ir, optimizer

    optimizer.fold_constants(model)
    optimizer.remove_unused_nodes(model)
    return ir.to_proto(model)


def _gru_graph(towers: Sequence[TextGRU], ir_version: int) -> Any:
    """GRU text towers: ids and lengths to the states at each text's last word, side by side, (texts, sum of sizes)."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Transpose", ["ids"], ["by_place"], perm=[1, 0]),
        helper.make_node("Cast", ["lengths"], ["lengths_32"], to=TensorProto.INT32),
    ]
    weights: list[Any] = []
    for number, tower in enumerate(towers):
        own_nodes, own_weights = _gru_nodes(tower, f"{number}_")
        nodes += own_nodes
        weights += own_weights
    states = [f"{number}_state" for number in range(len(towers))]
    nodes.append(helper.make_node("Concat", states, ["features"], axis=1))
    graph = helper.make_graph(
        nodes,
        "gru",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["texts", "length"]),
            helper.make_tensor_value_info("lengths", TensorProto.INT64, ["texts"]),
        ],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["texts", sum(tower.size for tower in towers)])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=ir_version)


def _gru_nodes(tower: TextGRU, prefix: str) -> tuple[list[Any], list[Any]]:
    """The nodes of one tower, whose names have a prefix and whose output is `state`, and its weights."""
    from onnx import helper, numpy_helper

    inner, recurrent, *biases = (_by_gate(weights) for weights in tower.gru.parameters())
    parts = {
        "words": tower.words.weight.detach(),
        "inner": inner[None],  # (1, 3 hidden, word)
        "recurrent": recurrent[None],  # (1, 3 hidden, hidden)
        "biases": torch.cat(biases)[None],  # (1, 6 hidden)
        "direction": torch.tensor([0]),
    }
    read = [f"{prefix}{name}" for name in ("spoken", "inner", "recurrent", "biases")]
    nodes = [
        helper.make_node("Gather", [f"{prefix}words", "by_place"], [f"{prefix}spoken"]),  # (length, texts, word)
        helper.make_node(
            "GRU", [*read, "lengths_32"], ["", f"{prefix}last"], hidden_size=tower.size, linear_before_reset=1
        ),
        helper.make_node("Squeeze", [f"{prefix}last", f"{prefix}direction"], [f"{prefix}state"]),
    ]
    weights = [numpy_helper.from_array(value.contiguous().numpy(), f"{prefix}{name}") for name, value in parts.items()]
    return nodes, weights


def _by_gate(weights: Tensor) -> Tensor:
    """A GRU's weights in the order of ONNX, update before reset."""
    reset, update, new = weights.detach().chunk(3)
    return torch.cat([update, reset, new])


def _joined(first: Any, second: Any) -> Any:
    """Two models as one: the output of the first is the input `features` of the second."""
    from onnx import compose

    first = compose.add_prefix(first, "gru_", rename_inputs=False, rename_outputs=False)
    return compose.merge_models(first, second, io_map=[("features", "features")])


def write_graph(model: Any, path: Path) -> None:
    """Write an ONNX model as one file, which is limited to 2 GB."""
    import onnx

    try:
        onnx.save(model, path)
    except ValueError as reason:
        raise RunError(f"{path.name} cannot be written as one file ({one_line(reason)})") from None
