import pytest
from pydantic import ValidationError

from diptych.errors import DataError
from diptych.index.entries import Filters, SearchRequest
from diptych.serve.schemas.requests import PictureOptions, SearchBody, SearchParameters


def test_empty_filters_let_everything_through():
    assert PictureOptions(folder="", since="", until="", split="").request() == SearchRequest(k=20)


def test_url_and_body_are_the_same_request():
    url = SearchParameters(text="a", k="3", to="text", folder="x", since="2026-01-02", where=["year=1999", "who=Ada"])
    body = SearchBody(text="a", k=3, to="text", folder="x", since="2026-01-02", where={"year": "1999", "who": "Ada"})
    expected = SearchRequest("text", 3, Filters("x", "2026-01-02", columns=(("year", "1999"), ("who", "Ada"))), 7)
    assert url.request(without=7) == body.request(without=7) == expected


def test_days_and_conditions_are_checked_by_the_rules_of_the_index():
    with pytest.raises(DataError, match="not a day"):
        PictureOptions(until="2026-02-30").request()
    with pytest.raises(DataError, match="column=value"):
        PictureOptions(where=["year"]).request()


@pytest.mark.parametrize(
    "wrong",
    [{"text": " "}, {"text": "a" * 1001}, {"text": "a", "k": 501}, {"text": "a", "k": 0}, {"text": "a", "x": 1}],
)
def test_limits(wrong):
    with pytest.raises(ValidationError):
        SearchParameters(**wrong)
