"""Compare search by meaning, by words and by both, on captioned photos with one caption of each hidden.

    python benchmarks/probes/hybrid.py RUN FLICKR8K [--split test] [--captioned 1 0.3 0.1] [--hidden 5]

Each caption of a photo is a query once, and the index has the other captions: one index per hidden caption. Recall is
of the photo that the query describes. Then the last two captions of each photo are hidden, and the queries are words,
phrases and captions drawn from these as people type them. A photo is correct if its hidden captions have the words;
the figure is the average precision. Intervals are those of a paired bootstrap over photos or queries. With
`--captioned`, only a share of the photos, drawn at random, has captions, as in a folder of one's own.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
from diptych.models.calibration.caption_queries import CaptionIndex
from diptych.models.engines.engine import Encodings

sys.path.insert(0, str(Path(__file__).parents[1]))

from probes.captioned_photos import Flags, Photos, Values, average_precision, interval, parser_of, read

MODES: tuple[Mode, ...] = ("meaning", "words", "both")
DEPTH = 10
HIDDEN = 2  # captions of each photo that drawn queries come from
DRAWN = 400


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


def described(photos: int, share: float) -> NDArray[np.bool_]:
    """Which photos have captions."""
    chosen: NDArray[np.bool_] = np.random.default_rng(0).random(photos) < share
    return chosen


def precisions(model: Model, photos: Photos, texts: dict[str, Values], share: float) -> dict[Mode, NDArray[np.float64]]:
    """The average precision of each mode for each drawn query."""
    hidden = [some[-HIDDEN:] for some in photos.captions]
    owners = np.repeat(np.arange(len(hidden)), [len(some) for some in hidden])
    captions = CaptionIndex([text for some in hidden for text in some], owners, len(hidden))
    queries = list(dict.fromkeys(captions.draw(2 * DRAWN, np.random.default_rng(0))))[:DRAWN]
    shown = [
        some[:-HIDDEN] if has else [] for some, has in zip(photos.captions, described(len(hidden), share), strict=True)
    ]
    found: dict[Mode, NDArray[np.float64]] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = make_index(Path(folder) / "photos.diptych", model, photos.vectors, shown, texts)
        searcher = Searcher(store, model)
        for mode in MODES:
            answers = searcher.search_texts(queries, SearchRequest(k=len(hidden), mode=mode))
            orders = [np.array([int(hit.entry.key.removesuffix(".jpg")) for hit in each.hits]) for each in answers]
            correct = [captions.mentions(query) > 0 for query in queries]
            found[mode] = np.array([precision(*each) for each in zip(orders, correct, strict=True)])
        store.close()
    return found


def precision(order: NDArray[np.int64], correct: Flags) -> float:
    """The average precision of a ranking, which may lack correct photos."""
    if not len(order) or not correct[order].any():
        return 0.0
    return average_precision(order, correct) * float(correct[order].sum() / correct.sum())


def measure(
    model: Model, photos: Photos, texts: dict[str, Values], *, share: float, hidden: int
) -> dict[Mode, NDArray[np.int64]]:
    """The ranks of each mode: (hidden captions, photos)."""
    images, captions, has_captions = photos.vectors, photos.captions, described(len(photos.captions), share)
    found: dict[Mode, list[NDArray[np.int64]]] = {mode: [] for mode in MODES}
    for number in range(min(hidden, *map(len, captions))):
        queries = [some[number] for some in captions]
        others = [[text for text in some if text != query] for some, query in zip(captions, queries, strict=True)]
        others = [some if has else [] for some, has in zip(others, has_captions, strict=True)]
        with tempfile.TemporaryDirectory() as folder:
            store = make_index(Path(folder) / "photos.diptych", model, images, others, texts)
            searcher = Searcher(store, model)
            for mode in MODES:
                found[mode].append(ranks(searcher, queries, np.stack([texts[query] for query in queries]), mode))
            store.close()
    return {mode: np.stack(rows) for mode, rows in found.items()}


def report(found: dict[Mode, NDArray[np.int64]]) -> None:
    """Print the recalls of each mode, and their difference to meaning with an interval over photos."""
    for mode, rows in found.items():
        line = f"{mode:8}"
        for at in (1, 5, 10):
            recall = 100 * (rows < at)
            difference = (recall - 100 * (found["meaning"] < at)).mean(0)  # (photos,)
            low, high = interval(difference)
            line += f"  R@{at} {recall.mean():5.1f} ({difference.mean():+.1f}, {low:+.1f} to {high:+.1f})"
        print(line, flush=True)


def report_precisions(found: dict[Mode, NDArray[np.float64]]) -> None:
    """Print the mean average precision of each mode, and its difference to meaning."""
    for mode, values in found.items():
        low, high = interval(difference := values - found["meaning"])
        print(f"{mode:8}  AP {values.mean():.3f} ({difference.mean():+.3f}, {low:+.3f} to {high:+.3f})", flush=True)


def main() -> None:
    """Print one line per share of captioned photos and mode."""
    parser = parser_of(__doc__)
    parser.add_argument("--split", default="test")
    parser.add_argument("--captioned", nargs="*", type=float, default=[1.0, 0.3, 0.1])
    parser.add_argument("--hidden", type=int, default=5, help="the number of captions that are a query")
    options = parser.parse_args()
    keep_freed_memory()
    model = Model.load(options.run)
    photos = read(model, open_corpus(options.data).split(options.split), options.vectors, options.split)
    every = list(dict.fromkeys(text for some in photos.captions for text in some))
    texts = dict(zip(every, model.encode_texts(every), strict=True))
    for share in options.captioned:
        print(f"{options.split}, {share:.0%} of the photos have captions")
        report(measure(model, photos, texts, share=share, hidden=options.hidden))
        report_precisions(precisions(model, photos, texts, share))


if __name__ == "__main__":
    main()
