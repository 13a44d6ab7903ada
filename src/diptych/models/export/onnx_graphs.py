"""The two sides of a matcher as ONNX models, exported by torch; a GRU over words is built by hand."""

from __future__ import annotations

import copy
import io
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
    """A tower that returns the vectors in `Tokens.features`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, tokens: Tokens) -> Tensor:
        assert tokens.features is not None
        return tokens.features


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


def image_graph(matcher: Matcher) -> Any:
    """The image side as an ONNX model."""
    images = torch.zeros(2, *image_shape(matcher), dtype=torch.uint8)
    return exported(_Images(matcher), {"images": images}, {"images": {0: "images"}})


def text_graph(matcher: Matcher) -> Any:
    """The text side as an ONNX model; a GRU becomes ONNX's GRU, everything else is exported by torch."""
    grus = [name for name, part in matcher.named_modules() if isinstance(part, TextGRU)]
    if not grus:
        ids = torch.full((2, 7), END)
        axes = {"ids": {0: "texts", 1: "length"}, "lengths": {0: "texts"}}
        return exported(_Texts(matcher), {"ids": ids, "lengths": torch.full((2,), 7)}, axes)
    (name,) = grus
    tower = matcher.get_submodule(name)
    assert isinstance(tower, TextGRU)
    behind = copy.deepcopy(matcher)
    parent, _, own = name.rpartition(".")
    setattr(behind.get_submodule(parent), own, _PrecomputedText(tower.size))
    rest = exported(_AfterTextTower(behind), {"features": torch.zeros(2, tower.size)}, {"features": {0: "texts"}})
    return _joined(_gru_graph(tower, rest.ir_version), rest)


def exported(module: nn.Module, inputs: dict[str, Tensor], axes: dict[str, dict[int, str]]) -> Any:
    """A module as an ONNX model with named inputs, of which these axes are dynamic, and one output, `vectors`."""
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
                verbose=False,
            )
    except Exception as reason:  # the exporter raises anything
        raise RunError(f"torch cannot export it ({one_line(reason)})") from None
    assert made is not None
    model = made.model_proto
    for thing in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        thing.ClearField("metadata_props")  # paths of source files
        thing.ClearField("doc_string")
    return model


def _gru_graph(tower: TextGRU, ir_version: int) -> Any:
    """A GRU text tower: ids and lengths to the state at each text's last word, (texts, hidden)."""
    from onnx import TensorProto, helper, numpy_helper

    inner, recurrent, *biases = (_by_gate(weights) for weights in tower.gru.parameters())
    parts = {
        "words": tower.words.weight.detach(),
        "inner": inner[None],  # (1, 3 hidden, word)
        "recurrent": recurrent[None],  # (1, 3 hidden, hidden)
        "biases": torch.cat(biases)[None],  # (1, 6 hidden)
        "direction": torch.tensor([0]),
    }
    nodes = [
        helper.make_node("Transpose", ["ids"], ["by_place"], perm=[1, 0]),
        helper.make_node("Gather", ["words", "by_place"], ["spoken"]),  # (length, texts, word)
        helper.make_node("Cast", ["lengths"], ["lengths_32"], to=TensorProto.INT32),
        helper.make_node(
            "GRU",
            ["spoken", "inner", "recurrent", "biases", "lengths_32"],
            ["", "last"],
            hidden_size=tower.size,
            linear_before_reset=1,
        ),
        helper.make_node("Squeeze", ["last", "direction"], ["features"]),
    ]
    graph = helper.make_graph(
        nodes,
        "gru",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["texts", "length"]),
            helper.make_tensor_value_info("lengths", TensorProto.INT64, ["texts"]),
        ],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["texts", tower.size])],
        [numpy_helper.from_array(value.contiguous().numpy(), name) for name, value in parts.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=ir_version)


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
