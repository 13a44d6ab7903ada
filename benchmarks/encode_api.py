"""Compare the public calls of a model with what they are made of: the starter model, on the CPU, without torch.

- `model.encode_images(paths)` with `diptych index` of the same photos, which also hashes them, makes thumbnails and
  writes the index. The photos are drawn as for `features.py`, or those of a folder (`--photos FOLDER`).
- `model.encode_texts` of 10,000 sentences (`--quick`: 1,000) with the bare text side on token batches of similar
  length that are ready in memory. The sentences are drawn from everyday words, or the lines of a file (`--texts FILE`).

Both sides run the same engine on all cores. The ratio is the smaller of the two rates relative to what it is compared
with.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.index.sqlite.store import Store
from diptych.index.sync import sync
from diptych.machine import available_cores, keep_freed_memory
from diptych.model import Model
from diptych.models.address import ModelFiles
from diptych.models.engines.onnx_engine import TEXTS_AT_ONCE, TextSide, text_side
from diptych.models.export.exported import Exported
from harness import Timing, arguments, finish, interleaved
from indexing import photos_of
from sentence import draw_texts

TARGET = 0.9
TEXTS, QUICK_TEXTS = 10_000, 1_000


@dataclass(frozen=True)
class TokenBatch:
    """The padded ids and lengths of some texts, and the positions of these texts in the list."""

    positions: Integers
    ids: Integers
    lengths: Integers


def token_batches(model: Model, texts: list[str]) -> list[TokenBatch]:
    """The texts in batches of similar length, as the text side reads them."""
    table = model.tokeniser.encode_all(texts)
    order = np.argsort(table.lengths, kind="stable")
    parts = np.split(order, range(TEXTS_AT_ONCE, len(order), TEXTS_AT_ONCE))
    return [TokenBatch(part, *table.batch(part)) for part in parts]


def bare(side: TextSide, batches: list[TokenBatch]) -> list[Floats]:
    """The bare text side."""
    return [side(batch.ids, batch.lengths) for batch in batches]


def compare_texts(model: Model, texts: list[str], rounds: int) -> tuple[dict[str, Timing], bool]:
    """The times of both ways of encoding texts, and whether they agree."""
    batches = token_batches(model, texts)
    folder = ModelFiles.find(model.address).graphs
    assert folder is not None
    side = text_side(folder, Exported.read(folder))
    times = interleaved(
        {"encode_texts": lambda: model.encode_texts(texts), "bare_text_side": lambda: bare(side, batches)}, rounds
    )
    order = np.concatenate([batch.positions for batch in batches])
    wanted = np.concatenate(bare(side, batches))
    return times, bool(np.allclose(model.encode_texts(texts)[order], wanted, atol=1e-5))


def compare_images(model: Model, folder: str | None, count: int, rounds: int) -> tuple[dict[str, Timing], bool, int]:
    """The times of both ways of encoding photos, whether they agree, and the number of photos."""
    with tempfile.TemporaryDirectory() as name:
        photos, pictures = photos_of(folder, Path(name, "photos"), count)
        paths = [picture.path for picture in pictures]
        indexes = (Path(name, f"{number}.diptych") for number in range(1000))
        last, found = Path(), np.empty(0, np.float32)

        def index() -> None:
            nonlocal last
            last = next(indexes)
            sync(model, str(photos), last, storage="float32", quality="best")

        def encode() -> None:
            nonlocal found
            found = model.encode_images(paths)

        times = interleaved({"encode_images": encode, "index": index}, rounds)
        store = Store.open(last)
        agree = bool(np.allclose(store.vectors("image")[1], found, atol=1e-4))
        store.close()
    return times, agree, len(paths)


def main() -> None:
    """Check that each pair gives the same embeddings, and compare the times."""
    options = arguments(
        __doc__,
        photos="a folder of photos to encode instead of drawn ones",
        texts="a file with one sentence per line to encode instead of drawn ones",
    )
    keep_freed_memory()
    count, rounds = (16, 2) if options.quick else (64, 6)
    model = Model.load("starter", "cpu", quality="best")
    if options.texts is None:
        texts = draw_texts(QUICK_TEXTS if options.quick else TEXTS)
    else:
        texts = Path(options.texts).read_text(encoding="utf-8").splitlines()[:TEXTS]
    of_texts, same_texts = compare_texts(model, texts, 3 * rounds)
    of_images, same_images, images = compare_images(model, options.photos, count, rounds)
    text_ratio = of_texts["bare_text_side"].wall / of_texts["encode_texts"].wall
    image_ratio = of_images["index"].wall / of_images["encode_images"].wall
    ratio = min(text_ratio, image_ratio)
    finish(
        "encode_api",
        ratio=ratio,
        target=TARGET,
        ok=ratio >= TARGET and same_texts and same_images,
        image_ratio=round(image_ratio, 3),
        image_cpu_ratio=round(of_images["index"].cpu / of_images["encode_images"].cpu, 3),
        text_ratio=round(text_ratio, 3),
        text_cpu_ratio=round(of_texts["bare_text_side"].cpu / of_texts["encode_texts"].cpu, 3),
        same_embeddings=same_texts and same_images,
        seconds={name: round(timing.wall, 3) for name, timing in {**of_texts, **of_images}.items()},
        photos=images,
        texts=len(texts),
        threads=available_cores(),
    )


if __name__ == "__main__":
    main()
