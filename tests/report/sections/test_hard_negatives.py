from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Corpus
from diptych.errors import ImageError
from diptych.model import Model
from diptych.objectives.hinge import Hinge
from diptych.objectives.objective import ScoredPairs
from diptych.report.sections.hard_negatives import hard_negatives_section, hardest_negatives, sample_batch
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train

TINY = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "model.image.width=2", "model.image.pixels=32"]
MARGIN = 0.3


class Broken:
    def load(self):
        raise ImageError("broken.jpg: damaged")


class Counted:
    def __init__(self, picture, loads: list[int]) -> None:
        self.picture, self.loads = picture, loads

    def load(self):
        self.loads.append(1)
        return self.picture.load()


def with_pictures(corpus: Corpus, pictures) -> Corpus:
    return Corpus(**{**vars(corpus), "pictures": pictures})


@given(st.integers(1, 7), st.integers(1, 4), st.floats(0, 1), st.integers(0, 10_000))
def test_the_hardest_negative_equals_a_slow_search_and_the_loss_of_max_of_hinges(pairs, names, margin, seed):
    random = np.random.default_rng(seed)
    scores = torch.from_numpy(random.normal(size=(pairs, pairs)))
    groups = torch.from_numpy(random.integers(names, size=pairs))
    positives = groups[:, None] == groups[None, :]

    found = hardest_negatives(scores, positives, margin)

    for row in range(pairs):
        others = [column for column in range(pairs) if groups[column] != groups[row]]
        assert bool(found.exists[row]) == bool(others)
        if others:
            worst = max(others, key=lambda column: scores[row, column])
            assert int(found.columns[row]) == worst
            expected = max(0.0, margin + float(scores[row, worst]) - float(scores[row, row]))
            assert float(found.costs[row]) == pytest.approx(expected)
    loss = Hinge(margin=margin).loss(ScoredPairs(scores, positives))
    assert float(found.costs[found.exists].sum()) == pytest.approx(float(loss.terms["image_to_text"]))
    other = hardest_negatives(scores.T, positives, margin)
    assert float(other.costs[other.exists].sum()) == pytest.approx(float(loss.terms["text_to_image"]))


def test_a_batch_contains_pairs_of_the_split_with_their_scores(trained, corpus):
    batch = sample_batch(trained, corpus, ("train",), 16, seed=0)
    assert batch.scores.shape == (16, 16)
    assert set(batch.corpus.image_splits) == set(batch.corpus.text_splits) == {"train"}
    assert (batch.corpus.image_groups[batch.images] == batch.corpus.text_groups[batch.texts]).all()
    for row, column in ((0, 0), (3, 9), (15, 2)):
        one = batch.corpus.take(batch.images[[row]], np.array([], np.int64))
        text = trained.torch_engine.text_tensor([batch.corpus.texts[batch.texts[column]]])
        alone = trained.matcher.score(trained.torch_engine.encode_corpus_images(one, 0)[0], text)
        assert float(batch.scores[row, column]) == pytest.approx(float(alone), abs=1e-5)


def test_only_the_sampled_images_are_read(trained, corpus):
    loads: list[int] = []
    counted = with_pictures(corpus, [Counted(picture, loads) for picture in corpus.pictures])
    batch = sample_batch(trained, counted, ("train",), 4, seed=0)
    assert len(loads) == len(set(batch.images.tolist())) <= 4


def test_pairs_of_an_unreadable_image_are_dropped_without_shifting_the_others(trained, corpus):
    whole = sample_batch(trained, corpus, ("train",), 16, seed=0)
    name = whole.corpus.image_ids[whole.images[5]]
    pictures = [Broken() if i == name else p for i, p in zip(corpus.image_ids, corpus.pictures, strict=True)]
    batch = sample_batch(trained, with_pictures(corpus, pictures), ("train",), 16, seed=0)
    kept = [row for row in range(16) if whole.corpus.image_ids[whole.images[row]] != name]
    assert len(kept) < 16
    names = [[b.corpus.image_ids[i] for i in b.images] for b in (whole, batch)]
    assert names[1] == [names[0][row] for row in kept]
    assert torch.allclose(batch.scores, whole.scores[kept][:, kept], atol=1e-5)
    texts = [[b.corpus.texts[i] for i in b.texts] for b in (whole, batch)]
    assert texts[1] == [texts[0][row] for row in kept]


def test_the_highest_costs_and_a_random_sample_are_shown(run, trained, corpus):
    section = hard_negatives_section(run, trained, corpus, size=16)
    batch = sample_batch(trained, corpus, ("train",), 16, seed=0)
    group_of = dict(zip(corpus.texts, corpus.text_groups, strict=True))
    image_group = dict(zip(corpus.image_ids, corpus.image_groups, strict=True))
    assert [group.heading.split(":")[0] for group in section.groups] == 2 * ["Hardest negative texts"] + 2 * [
        "Hardest negative images"
    ]
    for (top, drawn), scores in ((section.groups[:2], batch.scores), (section.groups[2:], batch.scores.T)):
        costs = hardest_negatives(scores, batch.positives, MARGIN).costs
        assert float(top.cards[0].entries[1].value) == pytest.approx(float(costs.max()), abs=0.0051)
        values = [float(card.entries[1].value) for card in top.cards]
        assert values == sorted(values, reverse=True)
        assert max(float(card.entries[1].value) for card in drawn.cards) <= values[-1] + 0.0051
        shown = []
        for card in [*top.cards, *drawn.cards]:
            own, negative = card.entries
            assert (own.label, own.value, negative.label) == ("GT", "", "HN")
            groups = image_group if card.direction == "text to image" else group_of
            query = (group_of if card.direction == "text to image" else image_group)[card.query_text]
            assert groups[own.text] == query != groups[negative.text]
            shown.append(query)
        assert len(set(shown)) == len(shown) == 8
    assert f"cost of HN: {MARGIN} + score of HN − score of GT, at least 0" in section.note
    assert "One batch of 16 pairs from scenes, split train, sampled with seed 0" in section.note


def test_the_sample_depends_on_the_seed_only(run, trained, corpus):
    assert hard_negatives_section(run, trained, corpus) == hard_negatives_section(run, trained, corpus)
    assert hard_negatives_section(run, trained, corpus) != hard_negatives_section(run, trained, corpus, seed=1)


def test_a_corpus_that_is_too_small_has_no_section(run, trained, corpus):
    assert hard_negatives_section(run, trained, corpus.split("test")) is None
    lone = np.flatnonzero(corpus.image_groups == corpus.image_groups[0])
    texts = np.flatnonzero(corpus.text_groups == corpus.image_groups[0])
    assert hard_negatives_section(run, trained, corpus.take(lone, texts)) is None
    broken = with_pictures(corpus, [Broken() for _ in corpus.pictures])
    assert hard_negatives_section(run, trained, broken) is None
    two = [p if i in (0, 3) else Broken() for i, p in enumerate(corpus.pictures)]
    assert hard_negatives_section(run, trained, with_pictures(corpus, two), size=2) is None


def test_an_objective_without_a_margin_has_costs_without_one(corpus, tmp_path):
    recipe = load_recipe("scenes", [*TINY, "text.threshold=1", "stage.1.objective={name='contrastive'}"]).first(1)
    run = train(recipe, corpus, tmp_path, device="cpu")
    section = hard_negatives_section(run, Model.load(run, "cpu"), corpus)
    assert "cost of HN: score of HN − score of GT, at least 0" in section.note
