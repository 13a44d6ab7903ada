"""Compare `model.encode_images` of a pretrained pair with open_clip's own loop over the same files, on the CPU.

The image network is that of ViT-B-32, with random weights. open_clip's loop is what its readme shows: `Image.open`,
`preprocess`, a batch, `encode_image`; both use all cores and the same batch size. The photos are drawn as for
`features.py`, or those of a folder (`--photos FOLDER`). The embeddings must agree within 1e-5.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from diptych.machine import keep_freed_memory
from diptych.model import Model
from diptych.models.encode import CROPS_PER_BATCH
from diptych.models.matchers.pair import PairSettings
from diptych.models.pretrained_pairs.open_clip_layout import described
from diptych.models.pretrained_pairs.open_clip_networks import network_weights
from diptych.models.pretrained_pairs.weights import load_into
from harness import arguments, finish, interleaved
from indexing import photos_of
from peers import import_open_clip

TARGET = 0.9
CONFIG = {
    "embed_dim": 512,
    "vision_cfg": {"image_size": 224, "layers": 12, "width": 768, "patch_size": 32},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 1, "layers": 1},
}


def both(open_clip: Any) -> tuple[Any, Any, Model]:
    """A model of open_clip with its preprocessing, and a pair with the same weights."""
    torch.manual_seed(0)
    theirs = open_clip.CLIP(**json.loads(json.dumps(CONFIG))).eval()
    preprocess = open_clip.image_transform(224, is_train=False)
    source = described("ViT-B-32", CONFIG, {}, (), None)
    matcher = PairSettings(model="ViT-B-32", architecture=source.architecture).build()
    parts = network_weights(theirs.state_dict())
    load_into(matcher.image.backbone.network, parts["image"], Path("ViT-B-32"))
    load_into(matcher.text.network, parts["text"], Path("ViT-B-32"))
    return theirs, preprocess, Model.from_matcher(matcher.eval(), source.tokeniser())


@torch.inference_mode()
def own_loop(theirs: Any, preprocess: Any, paths: Sequence[Path]) -> NDArray[np.float32]:
    """The embeddings by open_clip's functions."""
    rows = []
    for start in range(0, len(paths), CROPS_PER_BATCH):
        batch = torch.stack([preprocess(Image.open(path)) for path in paths[start : start + CROPS_PER_BATCH]])
        rows.append(theirs.encode_image(batch, normalize=True))
    found: NDArray[np.float32] = torch.cat(rows).numpy()
    return found


def main() -> None:
    """Time both, and check that they agree."""
    given = arguments(__doc__, photos="a folder of photos")
    keep_freed_memory()
    count, rounds = (32, 2) if given.quick else (256, 5)
    theirs, preprocess, model = both(import_open_clip())
    with tempfile.TemporaryDirectory() as name:
        _, pictures = photos_of(given.photos, Path(name, "photos"), count)
        paths = [picture.path for picture in pictures][:count]
        found: dict[str, NDArray[np.float32]] = {}

        def by_diptych() -> None:
            found["diptych"] = model.encode_images(paths)

        def by_open_clip() -> None:
            found["open_clip"] = own_loop(theirs, preprocess, paths)

        times = interleaved({"diptych": by_diptych, "open_clip": by_open_clip}, rounds)
    difference = float(np.abs(found["diptych"] - found["open_clip"]).max())
    ratio = times["open_clip"].wall / times["diptych"].wall
    finish(
        "pair_overhead",
        ratio=ratio,
        target=TARGET,
        ok=ratio >= TARGET and difference < 1e-5,
        photos=len(paths),
        images_per_second={name: round(len(paths) / each.wall, 1) for name, each in times.items()},
        cpu_ratio=round(times["open_clip"].cpu / times["diptych"].cpu, 3),
        difference=difference,
    )


if __name__ == "__main__":
    main()
