from diptych.index.backend import Problem
from diptych.index.milvus import about


class Rows:
    """A client that holds rows."""

    def __init__(self, rows):
        self.rows = {row["id"]: row for row in rows}

    def count(self, *args, **options):
        return len(self.rows)

    def query(self, collection, where, fields, partition, *, level):
        if not where.startswith("id in ["):
            return list(self.rows.values())
        ids = [int(id) for id in where[7:-1].split(", ")]
        return [self.rows[id] for id in reversed(ids) if id in self.rows]


def test_a_long_value_has_several_rows():
    value = {"folders": [f"häuser/{number}" for number in range(10_000)]}
    rows = about.value_rows("facets", value, 4)
    assert len(rows) > 2
    assert all(len(row["text"].encode()) <= 65_535 and len(row["vector"]) == 4 for row in rows)
    assert about.read_value(Rows(rows), "c", "facets", "Strong") == value
    assert about.read_value(Rows(rows), "c", "other", "Strong") is None


def test_a_value_that_is_being_replaced_is_not_half_read():
    rows = about.value_rows("facets", ["x" * 100_000], 4)
    assert about.read_value(Rows(rows[:1]), "c", "facets", "Strong") is None


def test_problems_are_read_as_they_were_written():
    written = [Problem("b.jpg", 3, 2**60 + 1, "cut short"), Problem("*.mov", None, None, "no package")]
    rows = [about.problem_row(problem, 4) for problem in written]
    assert about.problems(Rows(rows), "c", "Strong") == written[::-1]
    assert about.problem_ids(["b.jpg", "*.mov"]) == [row["id"] for row in rows]
