from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from diptych.errors import ScoreError
from diptych.evaluation.metrics.scores import matrix_score
from diptych.evaluation.protocols.within_modality import evaluate_within_modality, within_ranks
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.order import OrderSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings

TOWERS = {"joint": 4, "text": GRUSettings(hidden=4), "image": FeatureSettings(shape=(4,)), "words": 9}
VSE = VSESettings(**TOWERS)
ALL = [-np.inf, -1.0, 0.0, 0.5, 1.0, np.inf]
TIES = st.sampled_from(ALL)


@st.composite
def ties(draw: st.DrawFn, *shape: int) -> np.ndarray:
    """All of these values, two or three, or a single one all over a matrix; drawing each entry would be slow."""
    values = np.array(draw(st.lists(TIES, min_size=1, max_size=3) | st.just(ALL)), np.float32)
    return np.random.default_rng(draw(st.integers(0, 2**32))).choice(values, shape)


def plain(scores, groups):
    """One query at a time: the others of its group, the rest, and how many of the rest are at least as high."""
    found = {}
    for query, group in enumerate(groups):
        others = [scores[query, item] for item in range(len(groups)) if groups[item] == group and item != query]
        rest = [scores[query, item] for item in range(len(groups)) if groups[item] != group]
        if others:
            found[query] = 1 + sum(score >= max(others) for score in rest)
    return found


@st.composite
def cases(draw):
    names = draw(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=6, unique=True))
    first = [names[0], names[0]]  # one group at least has somebody to find
    groups = draw(st.permutations(first + [name for name in names for _ in range(draw(st.integers(0, 4)))]))
    return draw(ties(len(groups), len(groups))), np.array(groups), draw(st.integers(1, 30))


@settings(max_examples=30)
@given(cases())
def test_ranks_equal_a_slow_loop(case):
    scores, groups, block = case
    images = within_ranks(matrix_score(torch.from_numpy(scores)), groups, "images", block=block)
    expected = plain(scores, groups)
    assert images.rows.tolist() == list(expected)
    assert images.ranks.tolist() == list(expected.values())
    assert images.groups.tolist() == groups[list(expected)].tolist()
    assert images.singletons == len(groups) - len(expected)
    # a text is the second argument: its scores are a column
    texts = within_ranks(matrix_score(torch.from_numpy(scores)), groups, "texts", block=block)
    assert texts.ranks.tolist() == list(plain(scores.T, groups).values())


def encodings(settings=VSE, images=24, seed=0, digest="one"):
    random = torch.Generator().manual_seed(seed)
    image_groups, text_groups = np.arange(images) // 2, np.arange(4 * images) // 8
    centres = torch.randn(images // 2, 4, generator=random)
    vectors = [
        normalize(centres[torch.from_numpy(groups)] + torch.randn(len(groups), 4, generator=random))
        for groups in (image_groups, text_groups)
    ]
    return EncodedCorpus(settings, *vectors, image_groups, text_groups, digest)


@pytest.mark.parametrize("modality", ["texts", "images"])
def test_recalls_agree_with_torchmetrics(modality, torchvision):
    from torchmetrics.retrieval import RetrievalHitRate  # imports torchvision

    one = encodings()
    result = evaluate_within_modality([one], modality)
    items, groups = (one.texts, one.text_groups) if modality == "texts" else (one.images, one.image_groups)
    scores = items @ items.T + 2  # torchmetrics drops scores below 0
    query, answer = torch.meshgrid(torch.arange(len(items)), torch.arange(len(items)), indexing="ij")
    others = query != answer
    right = torch.from_numpy(groups[:, None] == groups)
    for cutoff, recall in result.metrics.recalls.items():
        oracle = RetrievalHitRate(top_k=cutoff)(scores[others], right[others], indexes=query[others])
        assert recall == pytest.approx(100 * float(oracle))
    assert 0 < result.metrics.recalls[1] < result.metrics.recalls[5]


def test_json_has_stable_names_and_intervals_around_the_recalls():
    one = encodings()
    told = evaluate_within_modality([one], "texts").to_json()
    assert list(told["metrics"]) == ["t2t_r1", "t2t_r5", "t2t_r10", "t2t_median", "t2t_mean"]
    assert (told["protocol"], told["texts"], told["queries"], told["alone"]) == ("texts among texts", 96, 96, 0)
    for name, (low, high) in told["intervals"]["bounds"].items():
        assert low <= told["metrics"][name] <= high
        assert low < high or told["metrics"][name] in (0, 100)
    assert list(told["intervals"]["bounds"]) == ["t2t_r1", "t2t_r5", "t2t_r10"]
    assert "i2i_r1" in evaluate_within_modality([one], "images").to_json()["metrics"]


def test_singletons_are_negatives_but_no_queries():
    vectors = normalize(torch.tensor([[1.0, 0.0], [0.9, 0.4], [1.0, 0.1], [0.0, 1.0]]))
    groups = np.array([5, 5, 6, 7])
    settings = VSESettings(**{**TOWERS, "joint": 2, "text": GRUSettings(hidden=2)})
    one = EncodedCorpus(settings, vectors, vectors, groups, groups, "one")
    result = evaluate_within_modality([one], "images")
    assert result.ranks.ranks.tolist() == [2, 2]  # the item of group 6 lies between the two of group 5
    assert result.to_json()["alone"] == 2
    assert result.to_json()["images"] == 4


def test_equal_embeddings_rank_last():
    groups = np.arange(60) // 3
    one = EncodedCorpus(VSE, torch.ones(60, 4), torch.ones(60, 4), groups, groups, "one")
    assert set(evaluate_within_modality([one], "texts").ranks.ranks) == {58}


def test_an_ensemble_ranks_by_the_mean_and_needs_one_corpus():
    one, two = encodings(seed=0), encodings(seed=1)
    mean = ((one.texts @ one.texts.T + two.texts @ two.texts.T) / 2).numpy()
    found = evaluate_within_modality([one, two], "texts").ranks.ranks.tolist()
    assert found == list(plain(mean, one.text_groups).values())
    with pytest.raises(ScoreError, match="differ in their corpus"):
        evaluate_within_modality([one, encodings(digest="other")], "texts")


def test_with_an_asymmetric_score_a_query_keeps_its_argument():
    one = encodings(OrderSettings(**TOWERS))
    matcher = one.matcher()
    with torch.no_grad():
        texts, images = matcher.score(one.texts, one.texts).numpy(), matcher.score(one.images, one.images).numpy()
    assert evaluate_within_modality([one], "texts").ranks.ranks.tolist() == list(
        plain(texts.T, one.text_groups).values()
    )
    assert evaluate_within_modality([one], "images").ranks.ranks.tolist() == list(
        plain(images, one.image_groups).values()
    )


def test_refusals():
    groups = np.arange(3)
    alone = EncodedCorpus(VSE, torch.ones(3, 4), torch.ones(3, 4), groups, groups, "one")
    with pytest.raises(ScoreError, match="no group has two images"):
        evaluate_within_modality([alone], "images")
    scan = SCANSettings(joint=4, image=RegionFeatureSettings(shape=(3, 4)), words=9)
    sets = EncodedCorpus(scan, torch.ones(3, 3, 4), torch.ones(3, 5, 4), groups, groups, "one")
    with pytest.raises(ScoreError, match="'scan' scores images with texts only; texts among texts need an embedding"):
        evaluate_within_modality([sets], "texts")
    scores = torch.zeros(4, 4)
    scores[1, 2] = torch.nan
    with pytest.raises(ScoreError, match="not a number"):
        within_ranks(matrix_score(scores), np.array([0, 0, 1, 1]), "texts")
