from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from diptych.errors import ScoreError
from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.recall import metrics_from_ranks
from diptych.evaluation.metrics.scores import embedding_score, matrix_score
from diptych.evaluation.protocols.rerank import pair_score, rerank, rerank_scores
from diptych.evaluation.runs import encoded_score
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings

ALL = [-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf]
TIES = st.sampled_from(ALL)
VSE = VSESettings(joint=4, text=GRUSettings(hidden=4), image=FeatureSettings(shape=(4,)), words=9)
SCAN = SCANSettings(joint=4, image=RegionFeatureSettings(shape=(3, 4)), words=9)


@st.composite
def ties(draw: st.DrawFn, *shape: int) -> np.ndarray:
    """All of these values, two or three, or a single one all over a matrix; drawing each entry would be slow."""
    values = np.array(draw(st.lists(TIES, min_size=1, max_size=3) | st.just(ALL)), np.float32)
    return np.random.default_rng(draw(st.integers(0, 2**32))).choice(values, shape)


@st.composite
def cases(draw: st.DrawFn):
    """Two scores of the same images and texts with many ties, groups of any size in any order, and a block."""
    names = draw(st.lists(st.integers(-9, 9), min_size=1, max_size=5, unique=True))
    images = draw(st.permutations([name for name in names for _ in range(draw(st.integers(1, 2)))]))
    texts = draw(st.permutations([name for name in names for _ in range(draw(st.integers(1, 4)))]))
    cheap, costly = (draw(ties(len(images), len(texts))) for _ in range(2))
    return cheap, costly, np.array(images), np.array(texts), draw(st.integers(1, 30))


def slow_ranks(cheap: np.ndarray, costly: np.ndarray, queries: np.ndarray, answers: np.ndarray, top: int) -> list[int]:
    """Sort by the retriever, then the first again by the reranker; if they hold no positive, look further."""
    found = []
    for query, group in enumerate(queries):
        right = (answers == group).tolist()
        order = sorted(range(len(answers)), key=lambda item: (-cheap[query, item] + 0.0, right[item], item))
        first = sorted(order[:top], key=lambda item: (-costly[query, item] + 0.0, right[item]))
        listed = [right[item] for item in first]
        found.append(1 + (listed if any(listed) else [right[item] for item in order]).index(True))
    return found


class Pairs:
    """Looks scores up and records which."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores, self.asked = scores, list[tuple[int, int]]()

    def __call__(self, images: np.ndarray, texts: np.ndarray) -> Tensor:
        self.asked += zip(images.tolist(), texts.tolist(), strict=True)
        return torch.from_numpy(self.scores[images, texts])


@settings(max_examples=40)
@given(cases(), st.sets(st.integers(1, 25), min_size=1, max_size=3))
def test_ranks_equal_two_sorts_and_each_pair_is_scored_once(case, tops):
    cheap, costly, images, texts, block = case
    pairs = Pairs(costly)
    found = list(rerank_scores(pairs, matrix_score(torch.from_numpy(cheap)), images, texts, list(tops), block=block))

    assert [row.top for row in found] == [0, *sorted(tops)]
    for row in found[1:]:
        assert row.ranks.images.tolist() == slow_ranks(cheap, costly, images, texts, row.top)
        assert row.ranks.texts.tolist() == slow_ranks(cheap.T, costly.T, texts, images, row.top)
    assert len(set(pairs.asked)) == len(pairs.asked) == found[-1].pairs
    assert len(pairs.asked) <= (len(images) + len(texts)) * max(tops)


@settings(max_examples=25)
@given(cases())
def test_lists_of_all_answers_give_the_full_ranks_and_lists_of_one_the_retrievers_recall(case):
    cheap, costly, images, texts, block = case
    every = max(2, len(images), len(texts))
    listing = matrix_score(torch.from_numpy(cheap))
    first, one, last = rerank_scores(Pairs(costly), listing, images, texts, [every, 1], block=block)
    full = ranks(matrix_score(torch.from_numpy(costly)), images, texts)
    alone = ranks(listing, images, texts, block=block)

    assert first.ranks.images.tolist() == alone.images.tolist()
    assert (last.ranks.images.tolist(), last.ranks.texts.tolist()) == (full.images.tolist(), full.texts.tolist())
    assert last.percent_scored == pytest.approx(100)
    for side in ("image_to_text", "text_to_image"):
        recalls = [getattr(row.metrics, side).recalls[1] for row in (one, first)]
        assert recalls[0] == recalls[1] == getattr(metrics_from_ranks(alone), side).recalls[1]


def test_by_hand():
    cheap = np.array([[3.0, 2.0, 1.0, 0.0], [3.0, 2.0, 0.0, 1.0]], np.float32)
    costly = np.array([[0.0, 9.0, 1.0, 5.0], [4.0, 3.0, 8.0, 7.0]], np.float32)
    groups = np.array([0, 1]), np.array([1, 0, 0, 1])
    _, two, three = rerank_scores(Pairs(costly), matrix_score(torch.from_numpy(cheap)), *groups, [2, 3])
    # image 0 lists texts 0 and 1, and its own text 1 is better by the costly score; image 1 lists its own and text 1
    assert two.ranks.images.tolist() == [1, 1]
    # with three, image 1 also lists text 3, its own as well
    assert three.ranks.images.tolist() == [1, 1]
    assert two.pairs == 8  # a text lists both images: everything
    assert two.ranks.texts.tolist() == [1, 1, 2, 1]


def test_a_positive_beyond_the_list_keeps_its_rank():
    cheap = np.array([[5.0, 4.0, 3.0, 2.0, 9.0]], np.float32).repeat(5, 0)
    costly = np.zeros((5, 5), np.float32) + 7 * np.eye(5, dtype=np.float32)
    _, two = rerank_scores(Pairs(costly), matrix_score(torch.from_numpy(cheap)), np.arange(5), np.arange(5), [2])
    assert two.ranks.images.tolist() == [1, 3, 4, 5, 1]  # lists are texts 4 and 0


def test_equal_embeddings_rank_last():
    score = embedding_score(lambda images, texts: images @ texts.T, torch.ones(30, 8), torch.ones(60, 8))
    groups = np.arange(30), np.arange(60) // 2
    found = list(rerank_scores(Pairs(np.ones((30, 60))), score, *groups, [5], block=200))
    assert found[1].ranks.images.tolist() == [59] * 30
    assert found[1].ranks.texts.tolist() == [30] * 60


def encodings(digest: str = "one", images: int = 8) -> tuple[EncodedCorpus, EncodedCorpus]:
    random = torch.Generator().manual_seed(0)
    groups = np.arange(images), np.repeat(np.arange(images), 2)
    sizes = ((images, 4), (2 * images, 4)), ((images, 3, 4), (2 * images, 5, 4))
    vectors, sets = (
        [torch.nn.functional.normalize(torch.randn(size, generator=random), dim=-1) for size in both] for both in sizes
    )
    sets[1][::3, 3:] = 0  # shorter texts
    return EncodedCorpus(VSE, *vectors, *groups, digest), EncodedCorpus(SCAN, *sets, *groups, digest)


def test_an_interaction_model_reranks_the_lists_of_an_embedding_model():
    cheap, scan = encodings()
    seen = []
    found = rerank([scan], cheap, [16, 3], all_pairs=True, progress=lambda done, total: seen.append((done, total)))
    assert [row.top for row in found.rows] == [0, 3, 16, None]
    alone, three, lists, full = found.rows
    assert (
        alone.ranks.images.tolist()
        == ranks(encoded_score(cheap), cheap.image_groups, cheap.text_groups).images.tolist()
    )
    assert lists.ranks.images.tolist() == full.ranks.images.tolist()
    assert lists.ranks.texts.tolist() == full.ranks.texts.tolist()
    assert lists.ranks.images.tolist() != three.ranks.images.tolist()
    assert 0 < three.percent_scored < lists.percent_scored == full.percent_scored == 100
    assert seen[-1] == (128, 128)
    told = json.loads(json.dumps(found.to_json()))
    assert [row["top"] for row in told["rerank"]] == [0, 3, 16, "all"]
    assert told["rerank"][1]["metrics"] == three.metrics.to_json()


@pytest.mark.parametrize("numbers", [1, 100, 10**6])
def test_pair_scores_equal_those_of_the_matrix_in_blocks_of_any_size(numbers):
    _, scan = encodings()
    other = replace(scan, images=scan.images.flip(0))
    whole = [each.matcher().score(each.images, each.texts) for each in (scan, other)]
    images, texts = np.array([0, 7, 3, 3]), np.array([15, 0, 3, 4])
    mean = (whole[0] + whole[1])[images, texts] / 2
    torch.testing.assert_close(pair_score([scan, other], numbers)(images, texts), mean)


def test_refusals():
    cheap, scan = encodings()
    with pytest.raises(ScoreError, match=r"'scan' scores each pair separately.*list with an embedding run"):
        rerank([scan], scan, [3])
    with pytest.raises(ScoreError, match=r"lists of 5, 0 answers; take lengths of 1 or more"):
        rerank([scan], cheap, [5, 0])
    with pytest.raises(ScoreError, match="lists of no answers"):
        rerank([scan], cheap, [])
    with pytest.raises(ScoreError, match=r"\(8 x 16 and 6 x 12\): they are of different corpora"):
        rerank([scan], encodings("other", 6)[0], [3])
    broken = replace(encodings("other", 7)[0], skipped={"a.jpg": "a.jpg: damaged"})
    with pytest.raises(ScoreError, match=r"\(8 x 16 and 7 x 14\): only one of them could read a\.jpg; encode the same"):
        rerank([scan], broken, [3])
    wrong = np.zeros((3, 3))
    wrong[1, 2] = np.nan
    with pytest.raises(ScoreError, match=r"^image 1 and text 2: their score is not a number"):
        list(rerank_scores(Pairs(wrong), matrix_score(torch.zeros(3, 3)), np.arange(3), np.arange(3), [3]))
