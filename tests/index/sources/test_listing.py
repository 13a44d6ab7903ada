import pytest

from diptych.errors import DataError
from diptych.index.sources.listing import describe_failure


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (FileNotFoundError(2, "No such file"), "no such file, or a link to nothing"),
        (PermissionError(13, "Permission denied"), "cannot be read (Permission denied)"),
        (DataError("its name is too long"), "its name is too long"),
    ],
)
def test_a_failure_is_described_in_a_few_words(reason, said):
    assert describe_failure(reason) == said
