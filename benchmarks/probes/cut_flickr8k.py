"""Cut two small corpora from Flickr8k's split file: photos that the starter was trained on, and photos that it was not.

`seen.json` has 300 photos of train, and val and test as they are. `unseen.json` has the photos of test only: 300 to
train on, 350 for val and 350 for test.

    python benchmarks/probes/cut_flickr8k.py FLICKR8K
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any


def main() -> None:
    """Write both files into the working directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with dataset_flickr8k.json")
    content = json.loads((parser.parse_args().folder / "dataset_flickr8k.json").read_text(encoding="utf-8"))
    splits: dict[str, list[dict[str, Any]]] = {"train": [], "val": [], "test": [], "restval": []}
    for image in content["images"]:
        splits[image["split"]].append(image)
    seen = [*random.Random(0).sample(splits["train"], 1000)[:300], *splits["val"], *splits["test"]]
    _write("seen.json", seen)
    unseen = random.Random(0).sample(splits["test"], 1000)
    for number, image in enumerate(unseen):
        image["split"] = "train" if number < 300 else "val" if number < 650 else "test"
    _write("unseen.json", unseen)


def _write(name: str, images: list[dict[str, Any]]) -> None:
    Path(name).write_text(json.dumps({"images": images, "dataset": "flickr8k"}), encoding="utf-8")
    print(f"{name}: {len(images):,} photos")


if __name__ == "__main__":
    main()
