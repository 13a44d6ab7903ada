from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Box, Corpus, Phrase
from diptych.data.formats.scenes import make_scenes
from diptych.data.phrases import find_mentions
from diptych.errors import DataError

CHAINS = st.sampled_from("abc")
SPLITS = st.sampled_from(["train", "test"])


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    """Any number of images and texts per group, chains that recur in other groups, chains without a box."""
    groups = st.integers(0, 2)
    images = draw(st.lists(st.tuples(groups, st.sets(CHAINS)), max_size=5))
    texts = draw(st.lists(st.tuples(groups, st.lists(CHAINS, max_size=3)), max_size=5))
    split_of = draw(st.lists(SPLITS, min_size=3, max_size=3))
    return Corpus(
        name="mine",
        image_ids=[f"image {i}" for i in range(len(images))],
        image_groups=np.array([group for group, _ in images], np.int64),
        image_splits=np.array([split_of[group] for group, _ in images], np.str_),
        texts=[f"text {j}" for j in range(len(texts))],
        text_groups=np.array([group for group, _ in texts], np.int64),
        text_splits=np.array([split_of[group] for group, _ in texts], np.str_),
        boxes=[
            [Box(chain, i / 8, k / 8, i / 8 + 1 / 8, 1) for k, chain in enumerate(sorted(chains))]
            for i, (_, chains) in enumerate(images)
        ],
        phrases=[
            [Phrase(f"{chain} of text {j}, {k}", chain, (f"kind {chain}",)) for k, chain in enumerate(chains)]
            for j, (_, chains) in enumerate(texts)
        ],
    )


def rows(corpus: Corpus) -> list[tuple[object, ...]]:
    """Each mention with the names of its image and text, in the documented order, found by plain loops."""
    found: list[tuple[object, ...]] = []
    for j, text in enumerate(corpus.texts):
        for phrase in corpus.phrases[j]:
            for i, image in enumerate(corpus.image_ids):
                for box in corpus.boxes[i]:
                    if corpus.image_groups[i] == corpus.text_groups[j] and box.chain == phrase.chain:
                        sides = (box.left, box.top, box.right, box.bottom)
                        found.append((phrase.text, phrase.kinds, image, text, sides))
    return found


def mention_rows(corpus: Corpus) -> list[tuple[object, ...]]:
    """The same from `find_mentions`; all sides are eighths, exact in any float."""
    if not rows(corpus):
        with pytest.raises(DataError, match="mine: no phrase with a box; localisation needs annotated data"):
            find_mentions(corpus)
        return []
    known = find_mentions(corpus)
    images = [corpus.image_ids[i] for i in known.images]
    texts = [corpus.texts[j] for j in known.texts]
    sides = [tuple(box) for box in known.boxes.tolist()]
    assert len(known) == len(images)
    return list(zip(known.phrases, known.kinds, images, texts, sides, strict=True))


@given(corpora())
def test_mentions_are_what_a_slow_search_finds(corpus: Corpus) -> None:
    assert mention_rows(corpus) == rows(corpus)


@given(corpora())
def test_a_thing_is_a_chain_in_an_image(corpus: Corpus) -> None:
    if not rows(corpus):
        return
    known = find_mentions(corpus)
    chains = [kinds[0] for kinds in known.kinds]
    names = list(zip(known.images.tolist(), chains, strict=True))
    for one, other in zip(names, known.entities.tolist(), strict=True):
        assert [name == one for name in names] == (known.entities == other).tolist()
    assert sorted(set(known.entities.tolist())) == list(range(len(set(names))))
    assert (known.boxes.dtype, known.images.dtype) == (np.float32, np.int64)
    assert known.boxes.shape == (len(known), 4)


@given(corpora(), st.data())
def test_a_part_of_a_corpus_keeps_its_boxes_and_phrases(corpus: Corpus, data: st.DataObject) -> None:
    def some(count: int) -> np.ndarray:
        return np.array(data.draw(st.permutations(range(count)))[: data.draw(st.integers(0, count))], np.int64)

    part = corpus.take(some(len(corpus.image_ids)), some(len(corpus.texts)))
    assert mention_rows(part) == rows(part)
    assert set(rows(part)) == {
        row for row in rows(corpus) if row[2] in set(part.image_ids) and row[3] in set(part.texts)
    }


@given(corpora())
def test_matched_and_splits_lose_no_mention_of_their_own(corpus: Corpus) -> None:
    assert rows(corpus.matched()) == rows(corpus)
    of_splits = []
    for split in ("train", "test"):
        try:
            part = corpus.split(split)
        except DataError:
            continue
        assert mention_rows(part) == rows(part)
        of_splits += rows(part)
    assert sorted(of_splits) == sorted(rows(corpus))


@pytest.mark.parametrize("lacking", ["boxes", "phrases"])
def test_a_corpus_without_one_of_the_columns_has_no_mentions(lacking: str) -> None:
    scenes = make_scenes(2, 1, 1)
    columns = {"boxes": scenes.boxes, "phrases": scenes.phrases, lacking: None}
    corpus = Corpus(
        "bare",
        *(scenes.image_ids, scenes.image_groups, scenes.image_splits),
        *(scenes.texts, scenes.text_groups, scenes.text_splits),
        **columns,
    )
    with pytest.raises(DataError, match="bare: no phrase with a box"):
        find_mentions(corpus)


def test_every_phrase_of_a_scene_has_a_box_in_each_of_its_pictures() -> None:
    scenes = make_scenes(6, 2, 2, images=3, texts=2)
    known = find_mentions(scenes)
    assert len(known) == 3 * sum(len(phrases) for phrases in scenes.phrases)
    assert (scenes.image_groups[known.images] == scenes.text_groups[known.texts]).all()
    for row, (image, box) in enumerate(zip(known.images, known.boxes, strict=True)):
        thing = scenes.pictures[image].scene.things
        across, down = (box[0] + box[2]) / 2 * 3, (box[1] + box[3]) / 2 * 3
        (shape,) = {one.shape for one in thing if one.cell == (int(down), int(across))}
        assert known.kinds[row] == (shape,)
