from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from diptych.evaluation.analyses.score_overlap import score_overlap
from diptych.evaluation.runs import encoded_score
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.report.sections.score_distributions import score_distributions_section

SETTINGS = VSESettings(joint=4, text=GRUSettings(hidden=4), image=FeatureSettings(shape=(4,)), words=9)


@pytest.fixture
def encoded():
    random = torch.Generator().manual_seed(1)
    images, texts = (normalize(torch.randn(count, 4, generator=random), dim=1) for count in (8, 16))
    return EncodedCorpus(SETTINGS, images, texts, np.arange(8), np.arange(16) // 2, "one")


def test_the_section_shows_the_measured_values(encoded):
    found = score_overlap(encoded_score(encoded), encoded.image_groups, encoded.text_groups)
    section = score_distributions_section(encoded_score(encoded), encoded)
    assert (section.shared.value, section.shared.interval) == (found.shared, found.interval)
    assert (section.positive_mean, section.negative_mean) == (found.positive_mean, found.negative_mean)
    assert "100 bins from \u22121 to 1" in section.note
    chart = ElementTree.fromstring(section.chart)
    assert [path.get("class") for path in chart.iter()].count("area") == 2


def test_empty_bins_at_the_ends_are_cut_off(encoded):
    near = replace(encoded, texts=encoded.images.repeat_interleave(2, 0), images=encoded.images)
    near.texts[:] = near.images[0]  # all scores of an image are alike
    near.images[:] = near.images[0]  # and all are 1
    section = score_distributions_section(encoded_score(near), near)
    assert section.shared.value == 1
    assert "from 0.98 to 1" in ElementTree.fromstring(section.chart).get("aria-label")
    assert "\u22120.5" not in section.chart


def test_without_negatives_there_is_no_section(encoded):
    alone = replace(encoded, image_groups=np.zeros(8, int), text_groups=np.zeros(16, int))
    assert score_distributions_section(encoded_score(alone), alone) is None
