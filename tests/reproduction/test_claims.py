"""Files of claims: what they say, and errors that name the file and the key."""

import pytest

from diptych.errors import RecipeError
from diptych.reproduction.claims import all_claims, find_claims
from support.claims import TINY, claim_files_of


def test_claims_are_found_by_id_paper_and_all(tiny_claims):
    ids = ["tiny.max-beats-sum", "tiny.many-things", "tiny.people"]
    assert [claim.id for claim in all_claims(tiny_claims)] == ids
    for names, found in ((["all"], ids), (["tiny"], ids), (["tiny.people", "tiny.max-beats-sum"], [ids[0], ids[2]])):
        assert [claim.id for claim in find_claims(names, tiny_claims)] == found
    claim = find_claims(["tiny.many-things"], tiny_claims)[0]
    assert claim.paper == "tiny"
    assert claim.claim.runs == ("offline", "sum", "max", "two", "continued")
    assert claim.claim.metric_of(claim.claim.compare[0]) == "t2t_r1"
    assert claim.claim.metric_of(claim.claim.compare[1]) == "rsum"


@pytest.mark.parametrize(
    ("name", "offer"),
    [("tiny.max-beats-sums", "'tiny.max-beats-sum'"), ("tinny", "'tiny'"), ("max-beats-sum", "'tiny.max-beats-sum'")],
)
def test_an_unknown_claim_is_an_error_that_offers_the_nearest(tiny_claims, name, offer):
    with pytest.raises(RecipeError, match=f"no claim '{name}'; did you mean .*{offer}"):
        find_claims(["all", name], tiny_claims)


def test_without_a_similar_name_the_list_is_offered(tiny_claims):
    with pytest.raises(RecipeError, match=r"no claim 'qqqqq'; see `diptych reproduce --list`"):
        find_claims(["qqqqq"], tiny_claims)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('says = "Max beats sum."', 'syas = "Max"', r"tiny.toml: claim max-beats-sum: .*claim.says' is missing"),
        ('higher = ["max"]', "higher = []", r"same number of entries, at least one"),
        ('expect = "equal"\nbound = 600', 'expect = "equal"', r"expect = 'equal' needs a bound"),
        ('metric = "first_epochs"\nepochs = 1', 'metric = "first_epochs"', r"which needs it"),
        ('lower = ["sum"]', 'lower = ["summ"]', r"claim max-beats-sum compares summ, which is not a run"),
        ('like = "sum"', 'like = "summ"', r"run max is like summ, which is not a run"),
        ("[run.sum]", "[run.sum", r"claims/tiny.toml: not valid TOML"),
        ('metric = "overlap"', 'metric = "r2"', r"tiny.toml: claim many-things: .*metric = 'r2'"),
        ("[3, 4, 5, 6, 7, 8]", "[3, 4]", r"tiny.toml: claim max-beats-sum: .*published"),
    ],
)
def test_errors_name_the_file_and_the_key(tmp_path, old, new, message):
    with pytest.raises(RecipeError, match=message):
        claim_files_of(tmp_path, TINY.replace(old, new, 1))
