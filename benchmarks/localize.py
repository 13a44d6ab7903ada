"""Compare the evaluation of phrase localisation, all phrases of a photo in one product, with one call per phrase.

Both read stored features. The plain way takes the phrases one by one: it reads the photo's regions, encodes them and
the phrase, scores, sorts, and looks for the first correct region. Diptych reads and encodes the regions once per photo
and each distinct phrase once, in batches; the ranks must agree. There are 16 phrases per photo, about as many as in
Flickr30K Entities, and half of them repeat another one, as `a man` does.

`bound` is the largest possible ratio: the plain way relative to encoding each photo's regions once and nothing else.
"""

from __future__ import annotations

import numpy as np
import torch

from diptych.data.boxes import box_iou
from diptych.data.corpus import Features, Floats
from diptych.data.phrases import Mentions
from diptych.evaluation.localisation.evaluate_phrases import measure_phrases
from diptych.evaluation.localisation.phrase_metrics import MIN_OVERLAP
from diptych.features.readers import RegionReader
from diptych.features.regions import Regions
from diptych.machine import keep_freed_memory
from diptych.model import Model
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.towers.image.regions import RegionSettings
from diptych.text.vocabulary import Vocabulary
from harness import arguments, finish, interleaved

REGIONS, SIZE, PHRASES = 200, 1280, 16
TARGET = 20
WORDS = [f"word{number}" for number in range(2000)]


def make_model() -> Model:
    """An untrained embedding network on proposed regions."""
    torch.manual_seed(0)
    vocabulary = Vocabulary.from_texts(WORDS, 1)
    image = RegionSettings(regions=Regions(method="selective-search", count=REGIONS))
    matcher = TwoBranchSettings(image=image, words=len(vocabulary)).build()
    return Model.from_matcher(matcher.eval(), vocabulary, torch.device("cpu"))


def make_boxes(random: np.random.Generator, *shape: int) -> Floats:
    """Random boxes: left, top, right, bottom."""
    return np.sort(random.random((*shape, 2, 2), np.float32), axis=-2).reshape(*shape, 4)


def make_mentions(random: np.random.Generator, photos: int) -> Mentions:
    """Sixteen phrases per photo, of three words each, every phrase twice."""
    count = photos * PHRASES
    distinct = [" ".join(random.choice(WORDS, 3)) for _ in range(count // 2)]
    words = random.permutation(distinct * 2).tolist()
    rows = np.arange(count)
    return Mentions(words, rows // PHRASES, rows, rows, make_boxes(random, count), [()] * count)


@torch.inference_mode()
def one_call_per_phrase(trained: Model, mentions: Mentions, regions: Features, boxes: Floats) -> list[float]:
    """The rank of each mention, with regions and phrase encoded anew for each."""
    ranks = []
    for phrase, image, box in zip(mentions.phrases, mentions.images, mentions.boxes, strict=True):
        encoded = trained.matcher.encode_images(torch.from_numpy(regions[np.array([image])][0]))
        scores = trained.matcher.score(encoded, trained.torch_engine.text_tensor([phrase]))[:, 0]
        order = scores.argsort(descending=True).numpy()
        right = np.flatnonzero(box_iou(boxes[image], box[None])[order, 0] >= MIN_OVERLAP)
        ranks.append(float(right[0] + 1) if len(right) else np.inf)
    return ranks


def main() -> None:
    """Check that the ranks agree, then compare the times."""
    options = arguments(__doc__)
    keep_freed_memory()  # as every command does
    trained, random = make_model(), np.random.default_rng(0)
    photos = 4 if options.quick else 16
    regions = Features([random.random((photos, REGIONS, SIZE), np.float32).astype(np.float16)])  # as in a store
    boxes, mentions = make_boxes(random, photos, REGIONS), make_mentions(random, photos)
    names = [str(photo) for photo in range(photos)]

    def ours() -> list[float]:
        reader = RegionReader(regions, names, boxes=Features([boxes]))
        return list(measure_phrases(trained, mentions, reader, names).ranks)

    def plain() -> list[float]:
        return one_call_per_phrase(trained, mentions, regions, boxes)

    @torch.inference_mode()
    def regions_alone() -> None:
        for photo in range(photos):
            trained.matcher.encode_images(torch.from_numpy(regions[np.array([photo])][0]))

    agreement = float(np.mean(np.array(ours()) == plain()))
    works = {"localize": ours, "call_a_phrase": plain, "regions_alone": regions_alone}
    times = interleaved(works, rounds=3 if options.quick else 7)
    ratio, bound = (times["call_a_phrase"].wall / times[name].wall for name in ("localize", "regions_alone"))
    finish(
        "localize",
        ratio=ratio,
        target=TARGET,
        ok=ratio >= TARGET and agreement > 0.98,  # rounding may swap regions of equal score
        bound=round(bound, 2),
        cpu_ratio=round(times["call_a_phrase"].cpu / times["localize"].cpu, 2),
        cpu_bound=round(times["call_a_phrase"].cpu / times["regions_alone"].cpu, 2),
        agreement=agreement,
        milliseconds_a_phrase={name: round(1000 * timing.wall / len(mentions), 3) for name, timing in times.items()},
        shape=[photos, REGIONS, SIZE, PHRASES],
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
