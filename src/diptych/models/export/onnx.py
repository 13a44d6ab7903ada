"""Exports a matcher as two ONNX graphs, one per tower, for use with onnxruntime and without torch.

The graphs become a folder of their own, or are added to the run, whose weights they then share:

    image.onnx      images (images, 3, side, side) or (images, crops, 3, side, side), bytes     to (images, joint)
    text.onnx       ids (texts, length) and lengths (texts,), as the tokeniser makes them       to (texts, joint)

Outputs are float32; the numbers of images and texts and the lengths of texts are free. The outputs of the graphs are
compared with those of torch before the export is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import diptych
from diptych.errors import RunError
from diptych.files import file_hash, write_json
from diptych.models.address import ModelFiles
from diptych.models.calibration.calibration import copy_calibration
from diptych.models.engines.onnx_engine import TextSide
from diptych.models.engines.onnx_graph import Graph
from diptych.models.engines.torch_engine import TorchEngine
from diptych.models.export.exported import (
    CARD,
    IMAGE,
    TEXT,
    WEIGHTS,
    Exported,
    ExportedInput,
    exported_files,
    new_folder,
    remove_graphs,
)
from diptych.models.export.numpy_text import numpy_text
from diptych.models.export.onnx_graphs import image_graph, image_shape, text_graph, write_graph
from diptych.models.export.weight_references import refer_to_weights
from diptych.models.matcher import Matcher
from diptych.models.sentence.numpy_layers import NumpySentence, TextLayers
from diptych.models.tower import Tokens
from diptych.optional import import_onnxruntime, import_optional
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.text.vocabulary import require_words

TOLERANCE = 1e-4
IMAGES = (1, 2, 5)  # the numbers of images, and of texts and words, that an export is checked with
TEXTS = ((1, 0), (1, 7), (2, 1), (7, 38))
_UNKNOWN_WORD = "\N{SNOWMAN}\N{COMET}"


def export_onnx(run: str | Path, into: Path) -> float:
    """Write the best model of a run as a folder of graphs, completely or not at all.

    Returns the largest difference from torch, relative to a vector's largest component if that exceeds one. A model
    that differs by more than 1e-4 is refused.
    """
    files, engine = _opened(run)
    with new_folder(into) as temporary:
        engine.tokeniser.save(temporary)
        with _has_onnx_form(run):
            write_graph(image_graph(engine.matcher), temporary / IMAGE)
            write_graph(text_graph(engine.matcher), temporary / TEXT)
            size, difference = checked(engine, Graph(temporary / IMAGE), Graph(temporary / TEXT))
        _write_card(temporary, files, engine, size, exported_files(temporary))
        if files.pair is None:
            copy_calibration(files.folder, temporary, files.identity())
    return difference


def export_in_place(run: str | Path) -> float:
    """Add graphs that share the weights of a run's best model to the run, which is then used without torch.

    The returned difference is that of `export_onnx`. A text side whose encoder comes with a package needs no graph.
    """
    files, engine = _opened(run)
    if files.pair is not None:
        raise RunError(f"{run}: a pretrained pair is no run; export it into a folder: diptych export {run} --onnx")
    folder, text = files.paths[1].parent, numpy_text(engine.matcher)
    remove_graphs(folder)
    try:
        with _has_onnx_form(run):
            graphs = {IMAGE: image_graph(engine.matcher, keeps_weights=True)}
            if text is None:
                graphs[TEXT] = text_graph(engine.matcher, keeps_weights=True)
            for name, graph in graphs.items():
                refer_to_weights(graph, folder / WEIGHTS)
                write_graph(graph, folder / name)
            texts = Graph(folder / TEXT) if text is None else NumpySentence(text, folder / WEIGHTS)
            size, difference = checked(engine, Graph(folder / IMAGE), texts)
        _write_card(folder, files, engine, size, tuple(graphs), text)
    except BaseException:
        remove_graphs(folder)
        raise
    return difference


def _opened(run: str | Path) -> tuple[ModelFiles, TorchEngine]:
    """The files and the torch engine of a run that can be exported."""
    import_onnxruntime()
    for module in ("onnx", "onnxscript"):
        import_optional(module, "pip install 'diptych[onnx]'", instead="the run itself")
    files = ModelFiles.find(run)
    files.check_is_run()
    engine = TorchEngine.open(files, "cpu")
    check_exportable(engine.matcher, run)
    return files, engine


@contextmanager
def _has_onnx_form(run: str | Path) -> Iterator[None]:
    try:
        yield
    except RunError as reason:
        raise RunError(f"{run}: has no ONNX form: {reason}; use the run itself") from None


def _write_card(
    folder: Path,
    files: ModelFiles,
    engine: TorchEngine,
    size: int,
    names: tuple[str, ...],
    text: TextLayers | None = None,
) -> None:
    wanted = engine.matcher.image_input
    card = Exported(
        version=diptych.__version__,
        run=files.name,
        identity=files.identity(),
        image_input=ExportedInput.model_validate({"kind": wanted.kind, "shape": wanted.shape, "crops": wanted.crops}),
        size=size,
        unknown=_unknown(engine),
        text=text,
        files={name: file_hash(folder / name) for name in names},
    )
    write_json(folder / CARD, card.model_dump(mode="json", exclude={"text"} if text is None else None))


def check_exportable(matcher: Matcher, run: str | Path) -> None:
    """Refuse a matcher that does not encode photos and texts as one vector each, scored by the inner product."""
    wanted, name = matcher.image_input, matcher.settings.name
    if not matcher.is_inner_product:
        reason = f"the score of {name!r} is not an inner product"
    elif wanted.kind == "features":
        reason = "it reads features that came with its data, and cannot see photos"
    elif wanted.regions is not None and wanted.regions.from_map:
        reason = f"{name!r} reads regions of photos, whose number is not fixed"
    else:
        return
    raise RunError(f"{run}: has no ONNX form: {reason}; use the run itself")


@torch.inference_mode()
def checked(engine: TorchEngine, of_images: Graph, of_texts: TextSide) -> tuple[int, float]:
    """The size of the vectors, and the largest difference from torch on random inputs; a large one is an error."""
    random = torch.Generator().manual_seed(0)
    matcher = engine.matcher
    differences, size = [], 0
    for count in IMAGES:
        images = _some_images(matcher, count, random)
        differences.append(_difference(of_images.encode_images(images.numpy()), matcher.encode_images(images)))
    for texts, longest in TEXTS:
        tokens = _some_tokens(engine.tokeniser, texts, longest, random)
        expected = matcher.encode_texts(tokens)
        differences.append(_difference(of_texts(tokens.ids.numpy(), tokens.lengths.numpy()), expected))
        size = expected.shape[1]
    if not all(difference <= TOLERANCE for difference in differences):  # a NaN is not, either
        raise RunError(f"it differs from torch by {max(differences):.1e}, more than {TOLERANCE:g}")
    return size, max(differences)


def _difference(own: NDArray[np.float32], expected: Tensor) -> float:
    """The difference of a tower's output from the expected one, relative to values above one."""
    if own.shape != expected.shape:
        return math.inf
    return float((torch.from_numpy(own) - expected).abs().amax() / expected.abs().amax().clamp(min=1))


def _some_images(matcher: Matcher, count: int, random: torch.Generator) -> Tensor:
    return torch.randint(256, (count, *image_shape(matcher)), generator=random, dtype=torch.uint8)


def _some_tokens(tokeniser: Tokeniser, texts: int, longest: int, random: torch.Generator) -> Tokens:
    """Texts of random words, the last of them the longest; some words are unknown."""
    words = [_UNKNOWN_WORD, *tokeniser.sample_words]
    counts = torch.randint(longest + 1, (texts,), generator=random)
    counts[-1] = longest
    chosen = [torch.randint(len(words), (count,), generator=random).tolist() for count in counts.tolist()]
    table = tokeniser.encode_words([[words[word] for word in text] for text in chosen])
    ids, lengths = table.batch(range(texts))
    return Tokens(torch.from_numpy(ids), torch.from_numpy(lengths))


def _unknown(engine: TorchEngine) -> tuple[str, ...]:
    """Words of the vocabulary that a fitted text tower does not know."""
    if engine.matcher.fitted_text_tower is None:
        return ()
    words = require_words(engine.tokeniser, "a fitted text tower reads words").words
    known = engine.known_words(words)
    return tuple(word for word, is_known in zip(words, known.tolist(), strict=True) if not is_known)
