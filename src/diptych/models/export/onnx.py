"""Exports a matcher as two ONNX graphs, one per tower, for use with onnxruntime and without torch.

    image.onnx      images (images, 3, side, side) or (images, crops, 3, side, side), bytes     to (images, joint)
    text.onnx       ids (texts, length) and lengths (texts,), as the tokeniser makes them       to (texts, joint)

Outputs are float32; the numbers of images and texts and the lengths of texts are free. The outputs of the graphs are
compared with those of torch before the export is written.
"""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

import diptych
from diptych.errors import RunError, one_line
from diptych.files import file_hash, write_json
from diptych.models.address import ModelFiles
from diptych.models.engines.torch_engine import TorchEngine
from diptych.models.export.exported import CARD, Exported, ExportedInput, exported_files, new_folder
from diptych.models.export.onnx_graphs import image_graph, image_shape, text_graph, write_graph
from diptych.models.matcher import Matcher
from diptych.models.tower import Tokens
from diptych.optional import import_optional
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
    for module in ("onnx", "onnxscript", "onnxruntime"):
        import_optional(module, "pip install 'diptych[onnx]'", instead="the run itself")
    files = ModelFiles.find(run)
    files.check_is_run()
    engine = TorchEngine.open(files, "cpu")
    check_exportable(engine.matcher, run)
    with new_folder(into) as temporary:
        engine.tokeniser.save(temporary)
        try:
            write_graph(image_graph(engine.matcher), temporary / "image.onnx")
            write_graph(text_graph(engine.matcher), temporary / "text.onnx")
            size, difference = checked(engine, temporary)
        except RunError as reason:
            raise RunError(f"{run}: has no ONNX form: {reason}; use the run itself") from None
        wanted = engine.matcher.image_input
        card = Exported(
            version=diptych.__version__,
            run=files.name,
            identity=files.identity(),
            image_input=ExportedInput.model_validate(
                {"kind": wanted.kind, "shape": wanted.shape, "crops": wanted.crops}
            ),
            size=size,
            unknown=_unknown(engine),
            files={name: file_hash(temporary / name) for name in exported_files(temporary)},
        )
        write_json(temporary / CARD, card.model_dump(mode="json"))
    return difference


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
def checked(engine: TorchEngine, folder: Path) -> tuple[int, float]:
    """The size of the vectors, and the largest difference from torch on random inputs; a large one is an error."""
    random = torch.Generator().manual_seed(0)
    matcher = engine.matcher
    images = [_some_images(matcher, count, random) for count in IMAGES]
    tokens = [_some_tokens(engine.tokeniser, texts, longest, random) for texts, longest in TEXTS]
    of_images = [({"images": some}, matcher.encode_images(some)) for some in images]
    of_texts = [({"ids": some.ids, "lengths": some.lengths}, matcher.encode_texts(some)) for some in tokens]
    differences = [*_differences(folder / "image.onnx", of_images), *_differences(folder / "text.onnx", of_texts)]
    if not all(difference <= TOLERANCE for difference in differences):  # a NaN is not, either
        raise RunError(f"it differs from torch by {max(differences):.1e}, more than {TOLERANCE:g}")
    return of_texts[0][1].shape[1], max(differences)


def _differences(graph: Path, expected: list[tuple[dict[str, Tensor], Tensor]]) -> list[float]:
    """The differences of a graph's outputs from the expected ones, relative to values above one."""
    try:
        session = import_module("onnxruntime").InferenceSession(graph, providers=["CPUExecutionProvider"])
        made = [session.run(None, {name: value.numpy() for name, value in given.items()})[0] for given, _ in expected]
    except Exception as reason:  # onnxruntime raises a class of its own for every reason
        raise RunError(f"{graph.name}: onnxruntime cannot run it ({one_line(reason)})") from None
    pairs = [(torch.from_numpy(own), wanted) for own, (_, wanted) in zip(made, expected, strict=True)]
    if any(own.shape != wanted.shape for own, wanted in pairs):
        return [math.inf]
    return [float((own - wanted).abs().amax() / wanted.abs().amax().clamp(min=1)) for own, wanted in pairs]


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
