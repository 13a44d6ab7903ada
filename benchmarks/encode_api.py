"""Compare the public calls of a model with what they are made of: the starter model, on the CPU.

- `model.encode_images(paths)` with `diptych index` of the same photos, which also hashes them, makes thumbnails and
  writes the index. The photos are drawn as for `features.py`, or those of a folder (`--photos FOLDER`).
- `model.encode_texts` of 10,000 sentences with the bare text tower on token batches that are ready in memory, in the
  order of the list. The sentences are drawn from everyday words, or the lines of a file (`--texts FILE`).

Both use all cores. The ratio is the smaller of the two rates relative to what it is compared with.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diptych.index.sqlite.store import Store
from diptych.index.sync import sync
from diptych.machine import keep_freed_memory
from diptych.model import Model, load
from diptych.models.engines.torch_engine import TEXTS_AT_ONCE
from diptych.models.tower import Tokens
from harness import Timing, arguments, finish, interleaved
from indexing import photos_of
from sentence import draw_texts

TARGET = 0.9
TEXTS = 10_000


def token_batches(model: Model, texts: list[str]) -> list[Tokens]:
    """The tokens of the texts in batches, as the text tower reads them."""
    table = model.tokeniser.encode_all(texts)
    spans = np.split(np.arange(len(texts)), range(TEXTS_AT_ONCE, len(texts), TEXTS_AT_ONCE))
    return [Tokens(*(torch.from_numpy(part) for part in table.batch(span))) for span in spans]


@torch.inference_mode()
def bare(model: Model, batches: list[Tokens]) -> list[Tensor]:
    """The bare text tower."""
    return [model.matcher.encode_texts(batch) for batch in batches]


def compare_texts(model: Model, file: str | None, rounds: int) -> tuple[dict[str, Timing], bool]:
    """The times of both ways of encoding texts, and whether they agree."""
    texts = draw_texts(TEXTS) if file is None else Path(file).read_text(encoding="utf-8").splitlines()[:TEXTS]
    batches = token_batches(model, texts)
    times = interleaved(
        {"encode_texts": lambda: model.encode_texts(texts), "bare_tower": lambda: bare(model, batches)}, rounds
    )
    wanted = torch.cat(bare(model, batches)).numpy()
    return times, bool(np.allclose(model.encode_texts(texts), wanted, atol=1e-5))


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
    model = load("starter", "cpu")
    model.encode_texts(["a"])  # open it
    of_texts, same_texts = compare_texts(model, options.texts, 3 * rounds)
    of_images, same_images, images = compare_images(model, options.photos, count, rounds)
    text_ratio = of_texts["bare_tower"].wall / of_texts["encode_texts"].wall
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
        text_cpu_ratio=round(of_texts["bare_tower"].cpu / of_texts["encode_texts"].cpu, 3),
        same_embeddings=same_texts and same_images,
        seconds={name: round(timing.wall, 3) for name, timing in {**of_texts, **of_images}.items()},
        photos=images,
        texts=TEXTS,
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
