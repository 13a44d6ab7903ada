"""The page of claims."""

from dataclasses import replace

from diptych.reproduction.page import claims_page, write_claims_page


def test_the_page_counts_verdicts_and_shows_every_claim(reproduced, tmp_path):
    _, found = reproduced
    page = claims_page(found)
    facts = {fact.name: fact.value for fact in page.facts}
    verdicts = [result.verdict for result in found.results]
    for verdict in ("holds", "does not hold", "undecided", "not measured"):
        assert facts[verdict] == str(verdicts.count(verdict))
    assert facts["not applicable"] == "1"
    (paper,) = page.papers
    assert [claim.id for claim in paper.claims] == ["tiny.max-beats-sum", "tiny.many-things"]
    write_claims_page(tmp_path / "claims.html", found)
    text = (tmp_path / "claims.html").read_text()
    assert "Many &lt;things&gt;." in text
    assert "Many <things>" not in text
    assert "the sides differ on purpose" in text
    assert 'href="#tiny.many-things"' in text
    assert "diptych reproduce tiny.max-beats-sum" in text
    assert "no identity of train has several images" in text


def test_a_claim_that_was_not_measured_says_why(reproduced, tmp_path):
    _, found = reproduced
    write_claims_page(
        tmp_path / "claims.html", replace(found, results=[replace(found.results[0], measured=(), reason="it failed")])
    )
    assert "Not measured: it failed" in (tmp_path / "claims.html").read_text()
