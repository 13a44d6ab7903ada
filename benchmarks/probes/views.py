"""Recall and CPU time of fewer, smaller and larger views of a photo, of int8 weights, and of OpenVINO.

The starter was trained with four views of 288 pixels. This runs its image tower in onnxruntime on one thread, with
other crops and sides, and prints the rsum of a split and the CPU time per photo of the tower alone. The int8 graph is
calibrated on photos of the training split. OpenVINO is measured if it is installed.

    python benchmarks/probes/views.py FLICKR8K [--split test] [--only "views 288" "scales 288"]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import diptych
from diptych.data.corpus import Corpus
from diptych.data.images import decode, picture_path
from diptych.features.crops import Crops, decode_size, fixed_crops
from diptych.models.export.onnx_graphs import image_graph
from diptych.models.matcher import Matcher

sys.path.insert(0, str(Path(__file__).parents[1]))

from probes.captioned_photos import captions_of

SIDES = (256, 288, 320, 352)
TRAINED = 288
CROPS = ("whole", "scales", "mirrored", "views")
CALIBRATION = 128  # photos
BATCH = 16

Run = Callable[[np.ndarray], np.ndarray]


def main() -> None:
    """Print one line per combination."""
    options = _options()
    model, corpus = diptych.load("starter", "cpu"), diptych.open_corpus(options.data)
    photos = _files(corpus.split(options.split))
    texts = model.encode_texts([text for some in captions_of(corpus.split(options.split)) for text in some])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side in SIDES:
            onnx.save(image_graph(_at_side(model.matcher, side)), folder / f"{side}.onnx")
            run = _onnx(folder / f"{side}.onnx")
            for crops in CROPS if side == TRAINED else CROPS[:2]:
                if options.only and f"{crops} {side}" not in options.only:
                    continue
                _measure(f"{crops} {side}", run, photos, Crops(name=crops, side=side), texts)
        if options.only:
            return
        quant_pre_process(folder / f"{TRAINED}.onnx", folder / "plain.onnx", skip_symbolic_shape=True)
        scales, train = Crops(name="scales", side=TRAINED), _files(corpus.split("train"))
        quantize_static(
            folder / "plain.onnx",
            folder / "int8.onnx",
            _Calibration(train[:: len(train) // CALIBRATION], scales),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        _measure(f"scales {TRAINED} int8", _onnx(folder / "int8.onnx"), photos, scales, texts)
        try:
            _measure(f"scales {TRAINED} OpenVINO", _openvino(folder / "plain.onnx"), photos, scales, texts)
        except ModuleNotFoundError:
            print("OpenVINO is not installed")


def rsum(images: np.ndarray, texts: np.ndarray) -> float:
    """The sum of recall at 1, 5 and 10 in both directions; five texts per image, in order."""
    ranks = diptych.evaluate_embeddings(images, texts, text_groups=np.arange(len(texts)) // 5)
    return float(ranks.metrics.rsum)


def _measure(name: str, run: Run, photos: Sequence[Path], crops: Crops, texts: np.ndarray) -> None:
    assert crops.side is not None
    side, cpu, rows = crops.side, 0.0, []

    def read(file: Path) -> np.ndarray:
        return fixed_crops(decode(file, decode_size(side, crops)), crops, side)

    with ThreadPoolExecutor(1) as pool:
        for begin in range(0, len(photos), BATCH):
            pixels = np.stack(list(pool.map(read, photos[begin : begin + BATCH])))
            began = time.process_time()
            rows.append(run(pixels))
            cpu += time.process_time() - began
    print(f"{name:24} rsum {rsum(np.concatenate(rows), texts):.1f}, {1000 * cpu / len(photos):.1f} ms", flush=True)


def _at_side(matcher: Matcher, side: int) -> Matcher:
    """The matcher for squares of another side; the weights of a convolutional network fit any."""
    settings: Any = matcher.settings
    other: Matcher = settings.model_copy(update={"image": settings.image.model_copy(update={"side": side})}).build()
    other.load_state_dict(matcher.state_dict())
    return other.eval()


def _onnx(path: Path) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda pixels: session.run(None, {"images": pixels})[0]


def _openvino(path: Path) -> Run:
    core = import_module("openvino").Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1})
    compiled = core.compile_model(path, "CPU")
    return lambda pixels: np.array(compiled(pixels)[0])


class _Calibration(CalibrationDataReader):  # type: ignore[misc]
    """The pixels of photos, from which the ranges of activations are read."""

    def __init__(self, photos: Sequence[Path], crops: Crops) -> None:
        self._pixels: Iterator[np.ndarray] = (fixed_crops(decode(file), crops, TRAINED)[None] for file in photos)

    def get_next(self) -> dict[str, np.ndarray] | None:
        pixels = next(self._pixels, None)
        return None if pixels is None else {"images": pixels}


def _files(corpus: Corpus) -> list[Path]:
    """The files of the photos."""
    return [path for picture in corpus.pictures or () if (path := picture_path(picture)) is not None]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--split", default="val")
    parser.add_argument("--only", nargs="*", help="the crops and the side of some combinations, without int8")
    return parser.parse_args()


if __name__ == "__main__":
    main()
