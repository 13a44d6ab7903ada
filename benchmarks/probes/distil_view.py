"""Distil the four views of the starter into one view of a whole photo.

The student starts from the starter's weights. Its later blocks are trained so that its vector of one view equals the
starter's vector of four views, on the photos of the training split and their mirror images; captions are not used.
Batch norm statistics, the first blocks, the projection and the text side stay. Val decides between epochs.

    python benchmarks/probes/distil_view.py DATASET_JSON IMAGES OUT.safetensors --epochs 6
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import diptych
from diptych.features.crops import fixed_crops

FROZEN_SHARE = 0.025  # of the parameters: those of the first three groups of blocks
BATCH = 32


def main() -> None:
    options = _options()
    torch.manual_seed(options.seed)
    torch.set_num_threads(2)
    model = diptych.load("starter")
    teacher = model.engine.matcher
    student = copy.deepcopy(teacher)
    splits = {name: _photos(options, name) for name in ("train", "val")}
    views = {name: _views(teacher, files, options) for name, (files, _) in splits.items()}  # whole views and vectors
    texts = model.encode_texts([text for _, captions in [splits["val"]] for text in captions])
    print(f"four views: rsum {rsum(views['val'][1].numpy(), texts):.1f}", flush=True)
    print(f"one view, before: rsum {rsum(_encode(student, views['val'][0]), texts):.1f}", flush=True)
    parameters = _trainable(student)
    optimiser = torch.optim.AdamW(parameters, lr=options.rate, weight_decay=0.0)
    pixels, wanted = views["train"]
    steps, done, best = options.epochs * math.ceil(len(pixels) / BATCH), 0, 0.0
    for epoch in range(options.epochs):
        began, total = time.monotonic(), 0.0
        for rows in torch.randperm(len(pixels)).split(BATCH):
            batch = pixels[rows]
            batch = torch.where((torch.rand(len(rows)) < 0.5)[:, None, None, None], batch.flip(3), batch)
            made = student.encode_images(batch[:, None])
            loss = (1 - (made * wanted[rows]).sum(1)).mean()
            for group in optimiser.param_groups:
                group["lr"] = options.rate * 0.5 * (1 + math.cos(math.pi * done / steps))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            done, total = done + 1, total + float(loss.detach()) * len(rows)
        reached = rsum(_encode(student, views["val"][0]), texts)
        print(f"epoch {epoch + 1}: loss {total / len(pixels):.4f}, val rsum {reached:.1f}, "
              f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
        if reached > best:
            best = reached
            save_file({name: value.contiguous() for name, value in student.image.state_dict().items()}, options.out)


def rsum(images: np.ndarray, texts: np.ndarray) -> float:
    """The sum of recall at 1, 5 and 10 in both directions; five texts per image, in order."""
    scores = images @ texts.T  # (images, texts)
    owner = np.arange(len(texts)) // 5
    of_images = (owner[np.argsort(-scores, 1, kind="stable")] == np.arange(len(images))[:, None]).argmax(1)
    of_texts = (np.argsort(-scores.T, 1, kind="stable") == owner[:, None]).argmax(1)
    return float(sum(100 * (ranks < k).mean() for ranks in (of_images, of_texts) for k in (1, 5, 10)))


def _photos(options: argparse.Namespace, split: str) -> tuple[list[Path], list[str]]:
    rows = [row for row in json.loads(options.data.read_text())["images"] if row["split"] == split]
    return [options.images / row["filename"] for row in rows], [s["raw"] for row in rows for s in row["sentences"]]


@torch.inference_mode()
def _views(teacher: nn.Module, files: list[Path], options: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole view of every photo, (photos, 3, side, side), and the teacher's vector of its four views."""
    crops, side = teacher.image_input.crops, teacher.image_input.shape[-1]

    def read(file: Path) -> tuple[np.ndarray, np.ndarray]:
        with Image.open(file) as image:
            image = image.convert("RGB")
            own = fixed_crops(image, crops.model_copy(update={"name": "whole", "side": options.side}), options.side)
            return own[0], fixed_crops(image, crops, side)

    wholes, vectors = [], []
    with ThreadPoolExecutor(2) as pool:
        for begin in range(0, len(files), 16):
            own, four = zip(*pool.map(read, files[begin : begin + 16]), strict=True)
            wholes.append(torch.from_numpy(np.stack(own)))
            vectors.append(teacher.encode_images(torch.from_numpy(np.stack(four))))
    return torch.cat(wholes), torch.cat(vectors)


def _trainable(student: nn.Module) -> list[nn.Parameter]:
    """Freeze everything but the later blocks of the backbone, and return what is trained."""
    student.eval().requires_grad_(False)
    parameters = list(student.image.backbone.parameters())
    total, seen, trained = sum(parameter.numel() for parameter in parameters), 0, []
    for parameter in parameters:
        seen += parameter.numel()
        if seen > FROZEN_SHARE * total:
            trained.append(parameter.requires_grad_())
    return trained


@torch.inference_mode()
def _encode(student: nn.Module, pixels: torch.Tensor) -> np.ndarray:
    return torch.cat([student.encode_images(part[:, None]) for part in pixels.split(BATCH)]).numpy()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--side", type=int, default=288)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
