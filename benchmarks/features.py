"""Compare the extraction of 1C features from JPEG files into a new store with the bare forward pass of lite0.

Diptych opens, hashes, decodes, resizes and crops every photo and writes the store; the bare pass reads the same crops
from memory and stores nothing, in batches of 16 or 32, whichever is faster. Both use all cores. The photos are drawn:
noise with as much detail as photos of this size have, 384 x 288 pixels and about 30 KB.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from diptych.data.images import PictureFile, decode
from diptych.features.backbone import Backbone
from diptych.features.backbones.registry import load_backbone
from diptych.features.crops import Crops, fixed_crops, resized_side
from diptych.features.extract import extract
from diptych.features.store import FeatureStoreSpec
from diptych.machine import available_cores, keep_freed_memory
from harness import arguments, finish, interleaved

WIDTH, HEIGHT = 384, 288
TARGET = 0.85


def draw_photos(folder: Path, count: int) -> list[PictureFile]:
    """Photos whose contrast decreases towards fine scales, as in natural images."""
    random = np.random.default_rng(0)
    pictures = []
    for number in range(count):
        pixels = np.full((HEIGHT, WIDTH, 3), 128.0)
        for cells in (3, 6, 12, 24, 48, 96, 192):
            noise = random.normal(0, 255, (cells * HEIGHT // WIDTH, cells, 3)).clip(-255, 255) / 2 + 127.5
            layer = Image.fromarray(noise.astype(np.uint8)).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
            pixels += (np.asarray(layer) - 127.5) / cells**0.5
        path = folder / f"{number:05d}.jpg"
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=90)
        pictures.append(PictureFile(path))
    return pictures


@torch.inference_mode()
def forward(backbone: Backbone, squares: Tensor, at_once: int) -> Tensor:
    """The bare forward pass."""
    return torch.cat([backbone(some) for some in squares.split(at_once)])


def main() -> None:
    """Check that both give the same features, then compare the times."""
    options = arguments(__doc__)
    keep_freed_memory()
    count, rounds = (96, 4) if options.quick else (384, 8)
    backbone, crops, device = load_backbone("lite0"), Crops(), torch.device("cpu")
    spec = FeatureStoreSpec.for_backbone(backbone, crops)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pictures = draw_photos(folder, count)
        kilobytes = np.mean([picture.path.stat().st_size for picture in pictures]) / 1000
        loaded = (decode(picture.path, resized_side(backbone.side)) for picture in pictures)
        squares = torch.from_numpy(np.concatenate([fixed_crops(image, crops, backbone.side) for image in loaded]))
        stores = (folder / f"store-{number}" for number in range(1000))

        def store() -> np.ndarray:
            stored = extract(pictures, backbone, spec, next(stores), workers=available_cores(), device=device)
            return stored.features[np.arange(len(stored.features))]

        wanted = forward(backbone, squares, 16).numpy()
        agree = bool(np.allclose(store(), wanted, rtol=1e-4, atol=2e-5))
        times = interleaved(
            {
                "store": store,
                "bare_16": lambda: forward(backbone, squares, 16),
                "bare_32": lambda: forward(backbone, squares, 32),
            },
            rounds,
        )
    bare = min(times["bare_16"].wall, times["bare_32"].wall)
    bare_cpu = min(times["bare_16"].cpu, times["bare_32"].cpu)
    ratio = bare / times["store"].wall
    finish(
        "features",
        ratio=ratio,
        target=TARGET,
        ok=ratio >= TARGET and agree,
        cpu_ratio=round(bare_cpu / times["store"].cpu, 3),
        same_features=agree,
        images_per_second={name: round(count / timing.wall, 1) for name, timing in times.items()},
        cpu_milliseconds_an_image={name: round(1000 * timing.cpu / count, 2) for name, timing in times.items()},
        images=count,
        photo={"pixels": [WIDTH, HEIGHT], "kilobytes": round(float(kilobytes), 1)},
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
