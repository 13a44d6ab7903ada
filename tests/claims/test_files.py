"""The claims of the five papers: every run can be planned, budgets are equal, and figures are those of the recipes."""

from importlib import resources

import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.reproduction.claims import PROFILES, all_claims, read_claim_files
from diptych.reproduction.plan import make_plan
from diptych.reproduction.planned_run import RUN, VECTORS, run_content
from diptych.reproduction.verdicts import published_effect
from diptych.training.published_rows import rows_of
from diptych.training.recipe_catalogue import catalogue, recipe_names

FILES = read_claim_files(resources.files("diptych.claims"))
CLAIMS = all_claims(FILES)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    file = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    file.write_text("a " + " ".join(["0"] * 100) + "\n")
    return file


def test_there_is_a_file_for_each_paper_with_some_forty_claims():
    assert set(FILES) == {"vsepp", "convse", "aoq", "two_branch", "dual_path"}
    assert 40 <= len(CLAIMS) <= 60
    for paper, file in FILES.items():
        assert file.reference == catalogue().papers[paper].reference
        assert file.title == catalogue().papers[paper].title


@pytest.mark.parametrize("profile", PROFILES)
def test_all_claims_can_be_planned_and_their_sides_are_of_equal_effort(profile, vectors, tmp_path):
    corpus = make_scenes(train=500, val=2, test=2, texts=2, images=2)
    plan = make_plan(CLAIMS, corpus, tmp_path, seeds=(0, 1, 2), profile=profile, vectors=vectors)
    # in a corpus this small there are fewer groups than the paper has clusters
    clusters = [each for each in plan.not_applicable if "objective.clusters" in each.reason]
    assert plan.not_applicable == clusters
    assert len(clusters) <= 1
    assert len(plan.claims) + len(clusters) == len(CLAIMS)
    if profile == "small":
        assert all(run.pace for run in plan.runs.values())


def test_every_run_is_compared_or_read_by_another_run():
    for file in FILES.values():
        compared = {name for claim in file.claim.values() for name in claim.runs}
        for combined in file.combined.values():
            compared |= {combined.run, combined.phrases}
        words = {str(run_content(file, name, profile)) for name in file.run for profile in PROFILES}
        for name in file.run:
            assert name in compared or any(f"'{RUN}{name}'" in content for content in words), name


def test_needs_are_those_of_the_runs():
    for named in CLAIMS:
        file, needs = named.file, named.claim.needs
        assert {"val", "test"} <= set(needs), named.id
        names = {name for name in named.claim.runs if name in file.run}
        combined = [file.combined[name] for name in named.claim.runs if name in file.combined]
        names |= {name for each in combined for name in (each.run, each.phrases) if name is not None}
        contents = [run_content(file, name, "small") for name in names]
        has_vectors = any(content.get("text", {}).get("vectors") == VECTORS for content in contents)
        assert ("vectors" in needs) == has_vectors, named.id
        on_phrases = any(stage.get("phrases") for content in contents for stage in content["stage"])
        assert ("boxes" in needs) == on_phrases, named.id


def test_published_rows_are_typed_as_in_the_recipes():
    known = {
        (*row.figures.i2t[:3], *row.figures.t2i[:3])
        for name in recipe_names()
        for row in rows_of(name)
        if row.figures.i2t is not None and row.figures.t2i is not None
    }
    found = 0
    for named in CLAIMS:
        for compare in named.claim.compare:
            for published in compare.published:
                for figures in (*published.higher, *published.lower):
                    if isinstance(figures, tuple):
                        found += 1
                        assert figures in known, (named.id, figures)
    assert found > 60


def test_single_figures_are_typed_as_in_the_recipes():
    known = set()
    for name in recipe_names():
        for row in rows_of(name):
            for figures in (row.figures.i2t, row.figures.t2i, row.figures.t2t, row.figures.phrases):
                known |= set(figures or ())
    others = {1.604, 1.096, 0.2563, 0.1633, 0.0914}  # seconds per batch and overlaps, which are in no recipe
    for named in CLAIMS:
        for compare in named.claim.compare:
            for published in compare.published:
                single = {each for each in (*published.higher, *published.lower) if not isinstance(each, tuple)}
                assert single <= known | others, (named.id, single - known)


def test_published_effects_have_the_sign_that_is_expected():
    for named in CLAIMS:
        for compare in named.claim.compare:
            metric = named.claim.metric_of(compare)
            bound = compare.bound or 0
            for published in compare.published[:1]:  # further ones may say where the paper itself is divided
                effect = published_effect(published, metric)
                if compare.expect == "greater":
                    assert effect > bound, named.id
                elif compare.expect == "less":
                    assert effect < bound, named.id
                else:
                    assert abs(effect) < bound, named.id
