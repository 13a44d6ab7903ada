"""Compare indexing photos with the starter model with the bare forward pass of its image tower.

Diptych reads, hashes, decodes and crops every photo, makes its thumbnail and writes the index; the bare pass reads the
same crops from memory and stores nothing. Both run in onnxruntime on all cores, with the default quality. The photos
are drawn as for `features.py`, or those of a folder (`--photos FOLDER`).

The figures also have the rates of the quality "best", and of the image network of another photo search: rclip runs
ViT-B-32-256 in onnxruntime. Here it has random weights, which take as long as others, and reads pixels from memory.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import torch

from diptych.data.file_kinds import IMAGE_SUFFIXES
from diptych.data.images import PictureFile, decode
from diptych.features.choices import Quality
from diptych.index.decoding import photo_options
from diptych.index.sqlite.store import Store
from diptych.index.sync import sync
from diptych.machine import available_cores, keep_freed_memory
from diptych.model import Model
from diptych.models.engines.onnx_graph import Graph
from features import draw_photos
from harness import arguments, finish, interleaved
from peers import import_open_clip

TARGET = 0.85
MODEL = "starter"
BARE = 256  # photos in memory, half a megabyte each; the bare rate does not depend on their number
PEER, PEER_SIDE = "ViT-B-32-256", 256  # of rclip 3.3


def photos_of(folder: str | None, made: Path, count: int) -> tuple[Path, list[PictureFile]]:
    """The folder with the photos to index, and the photos."""
    if folder is None:
        made.mkdir()
        return made, draw_photos(made, count)
    files = sorted(file for file in Path(folder).rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)[:count]
    made.mkdir()
    for number, file in enumerate(files):
        (made / f"{number:05d}{file.suffix}").write_bytes(file.read_bytes())
    return made, [PictureFile(file) for file in sorted(made.iterdir())]


def bare(model: Model, prepared: list[np.ndarray], at_once: int) -> np.ndarray:
    """The vectors of preprocessed photos."""
    parts = [
        model.engine.encode_preprocessed(prepared[begin : begin + at_once]).vectors
        for begin in range(0, len(prepared), at_once)
    ]
    return np.concatenate(parts)


def peer(folder: Path, at_once: int) -> Callable[[], object]:
    """A pass of the other search's image network over one batch in memory."""
    network = import_open_clip().create_model(PEER, pretrained=None).visual.eval()
    pixels = torch.zeros(at_once, 3, PEER_SIDE, PEER_SIDE)
    with redirect_stdout(sys.stderr):
        torch.onnx.export(network, (pixels,), folder / "peer.onnx", dynamo=True, verbose=False, input_names=["pixels"])
    graph = Graph(folder / "peer.onnx")
    return lambda: graph.run(pixels=pixels.numpy())


def main() -> None:
    """Check that both give the same vectors, then compare the times."""
    options = arguments(__doc__, photos="a folder of photos to index instead of drawn ones")
    keep_freed_memory()
    count, rounds = (240, 2) if options.quick else (2000, 3)
    model = Model.load(MODEL, "cpu", quality="fast")
    at_once = photo_options(model.engine).batch_size
    with tempfile.TemporaryDirectory() as name:
        photos, pictures = photos_of(options.photos, Path(name, "photos"), count)
        quarter = Path(name, "quarter")  # enough for a rate that is not compared with the target
        quarter.mkdir()
        for picture in pictures[::4]:
            (quarter / picture.path.name).hardlink_to(picture.path)
        engine = model.engine
        prepared = [engine.preprocess(decode(picture.path, engine.decode_size)) for picture in pictures[:BARE]]
        indexes = (Path(name, f"{number}.diptych") for number in range(1000))
        last = Path()

        def index(folder: Path, quality: Quality) -> None:
            nonlocal last
            last = next(indexes)
            sync(model, str(folder), last, storage="float32", quality=quality)

        works = {
            "best": lambda: index(quarter, "best"),
            "index": lambda: index(photos, "fast"),
            "bare": lambda: bare(model, prepared, at_once),
            "rclip's network": peer(Path(name), at_once),
        }
        times = interleaved(works, rounds)
        store = Store.open(last)
        wanted = bare(model, prepared, at_once)
        agree = bool(np.allclose(store.vectors("image")[1][: len(wanted)], wanted, atol=1e-4))
        store.close()
    counts = {"best": len(pictures[::4]), "index": len(pictures), "bare": len(prepared), "rclip's network": at_once}
    rates = {name: counts[name] / timing.wall for name, timing in times.items()}
    work = {name: timing.cpu / counts[name] for name, timing in times.items()}
    ratio = rates["index"] / rates["bare"]
    finish(
        "indexing",
        ratio=ratio,
        target=TARGET,
        ok=ratio >= TARGET and agree,
        cpu_ratio=round(work["bare"] / work["index"], 3),
        same_vectors=agree,
        photos_per_second={name: round(rate, 1) for name, rate in rates.items()},
        cpu_milliseconds={name: round(1000 * seconds, 1) for name, seconds in work.items()},
        photos=len(pictures),
        threads=available_cores(),
    )


if __name__ == "__main__":
    main()
