"""Compare search by meaning, by words and by both, on captioned photos with one caption of each hidden.

    python benchmarks/probes/hybrid.py RUN FLICKR8K [--split test] [--captioned 1 0.3 0.1] [--hidden 5]

Each caption of a photo is a query once, and the index has the other captions: one index per hidden caption. With
`--captioned`, only a share of the photos, drawn at random, has captions, as in a folder of one's own. Recall is of
the photo that the query describes, the intervals are those of a paired bootstrap over photos.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.index.backend import Content, text_hash
from diptych.index.entries import Mode, SearchRequest
from diptych.index.query import Query
from diptych.index.search import Searcher
from diptych.index.sources.listing import ImageInfo
from diptych.index.spec import IndexSpec
from diptych.index.sqlite.store import Store
from diptych.index.sqlite.writer import Writer
from diptych.index.vectors import encode
from diptych.machine import keep_freed_memory
from diptych.model import Model
from diptych.models.engines.engine import Encodings

MODES: tuple[Mode, ...] = ("meaning", "words", "both")
DEPTH = 10
Values = NDArray[np.float32]


def make_index(file: Path, model: Model, images: Values, captions: list[list[str]], texts: dict[str, Values]) -> Store:
    """An index of encoded photos, whose names are numbers, with these captions."""
    spec = IndexSpec(model.address, model.identity, images.shape[1], False, "float32", "photos", None, "0")
    store = Store.create(file, spec)
    writer = Writer(store, [])
    with writer.transaction():
        for text in {text for some in captions for text in some}:
            writer.add(Content("text", text_hash(text), encode(texts[text][None], "float32")[0]))
        for number, (image, some) in enumerate(zip(images, captions, strict=True)):
            content = writer.add(
                Content("image", text_hash(str(number)), encode(image[None], "float32")[0], look=number)
            )
            writer.put_image(f"{number}.jpg", content, (1, 0, ""), ImageInfo(None, tuple(some), None, {}))
    return store


def ranks(searcher: Searcher, texts: list[str], encoded: Values, mode: Mode) -> NDArray[np.int64]:
    """The rank of the photo of each text, from 0; DEPTH if it is not among the first."""
    request, found = SearchRequest(k=DEPTH, mode=mode), np.full(len(texts), DEPTH)
    queries = [Query(Encodings(row[None]), "text", request, text) for row, text in zip(encoded, texts, strict=True)]
    for number, answer in enumerate(searcher.search(queries)):
        keys = [hit.entry.key for hit in answer.hits]
        if f"{number}.jpg" in keys:
            found[number] = keys.index(f"{number}.jpg")
    return found


def measure(
    model: Model, images: Values, captions: list[list[str]], texts: dict[str, Values], *, share: float, hidden: int
) -> dict[Mode, NDArray[np.int64]]:
    """The ranks of each mode: (hidden captions, photos)."""
    described = np.random.default_rng(0).random(len(images)) < share
    found: dict[Mode, list[NDArray[np.int64]]] = {mode: [] for mode in MODES}
    for number in range(min(hidden, *map(len, captions))):
        queries = [some[number] for some in captions]
        others = [[text for text in some if text != query] for some, query in zip(captions, queries, strict=True)]
        others = [some if has else [] for some, has in zip(others, described, strict=True)]
        with tempfile.TemporaryDirectory() as folder:
            store = make_index(Path(folder) / "photos.diptych", model, images, others, texts)
            searcher = Searcher(store, model)
            for mode in MODES:
                found[mode].append(ranks(searcher, queries, np.stack([texts[query] for query in queries]), mode))
            store.close()
    return {mode: np.stack(rows) for mode, rows in found.items()}


def report(found: dict[Mode, NDArray[np.int64]]) -> None:
    """Print the recalls of each mode, and their difference to meaning with an interval over photos."""
    draw = np.random.default_rng(1)
    photos = draw.integers(0, found["meaning"].shape[1], (2000, found["meaning"].shape[1]))
    for mode, rows in found.items():
        line = f"{mode:8}"
        for at in (1, 5, 10):
            recall = 100 * (rows < at)
            difference = (recall - 100 * (found["meaning"] < at)).mean(0)  # (photos,)
            low, high = np.quantile(difference[photos].mean(1), [0.025, 0.975])
            line += f"  R@{at} {recall.mean():5.1f} ({difference.mean():+.1f}, {low:+.1f} to {high:+.1f})"
        print(line, flush=True)


def main() -> None:
    """Print one line per share of captioned photos and mode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("data")
    parser.add_argument("--split", default="test")
    parser.add_argument("--captioned", nargs="*", type=float, default=[1.0, 0.3, 0.1])
    parser.add_argument("--hidden", type=int, default=5, help="the number of captions that are a query")
    parser.add_argument("--vectors", type=Path, help="encoded photos (.npy), which are encoded and written if missing")
    options = parser.parse_args()
    keep_freed_memory()
    model = Model.load(options.run)
    corpus: Corpus = open_corpus(options.data).split(options.split)
    if options.vectors is None or not options.vectors.exists():
        images = model.encode_images([picture.load() for picture in corpus.pictures or ()])
        if options.vectors is not None:
            np.save(options.vectors, images)
    else:
        images = np.load(options.vectors)
    captions: dict[int, list[str]] = {int(group): [] for group in corpus.image_groups}
    for text, group in zip(corpus.texts, corpus.text_groups.tolist(), strict=True):
        captions[int(group)].append(text)
    every = list(dict.fromkeys(corpus.texts))
    texts = dict(zip(every, model.encode_texts(every), strict=True))
    ordered = [captions[int(group)] for group in corpus.image_groups]
    for share in options.captioned:
        print(f"{options.split}, {share:.0%} of the photos have captions")
        report(measure(model, images, ordered, texts, share=share, hidden=options.hidden))


if __name__ == "__main__":
    main()
