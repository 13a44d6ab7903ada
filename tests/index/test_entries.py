import pytest

from diptych.errors import DataError
from diptych.index.entries import Answer, Entry, Filters, Hit, SearchRequest, column_filters


@pytest.mark.parametrize("day", ["yesterday", "2026-02-30", "2026-1-01", "", "٢٠٢٦-٠١-٠١", "2026-01-01T00:00"])
@pytest.mark.parametrize("name", ["since", "until"])
def test_a_filter_takes_days_only(name, day):
    with pytest.raises(DataError, match=f"^{name} .*not a day; write it as 2026-11-16"):
        Filters(**{name: day})
    assert getattr(Filters(**{name: "2024-02-29"}), name) == "2024-02-29"


def test_conditions_are_columns_and_values():
    assert column_filters(["year=1999", "who=Ada=Bob", "empty="]) == (
        ("year", "1999"),
        ("who", "Ada=Bob"),
        ("empty", ""),
    )
    assert column_filters([]) == ()
    for wrong in ("year", "=1999", ""):
        with pytest.raises(DataError, match="column=value"):
            column_filters([wrong])


def test_requests_are_keys():
    assert len({SearchRequest(k=3), SearchRequest(k=3), SearchRequest(k=4), SearchRequest(filters=Filters("a"))}) == 3


def test_json_names_what_a_client_may_know_and_no_path():
    entry = Entry(3, "image", "a/b.jpg", 3, path="/home/ada/a/b.jpg", folder="a", columns={"year": "1999"})
    answer = Answer((Hit(entry, 0.5, "weak", 0.01, (7,)),), False, 12).to_json()
    (hit,) = answer.pop("hits")
    assert answer == {
        "found": False,
        "searched": 12,
        "method": "exact",
        "next": None,
        "suggestion": None,
        "words_exist": False,
    }
    assert (hit["fit"], hit["probability"], hit["stands_out"]) == ("weak", 0.01, False)
    assert "path" not in hit
    assert "/home" not in str(hit)
    assert (hit["key"], hit["score"], hit["near"], hit["columns"]) == ("a/b.jpg", 0.5, [7], {"year": "1999"})
