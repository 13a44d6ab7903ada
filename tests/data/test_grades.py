from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from diptych.data.corpus import Corpus
from diptych.data.grades import read_grades
from diptych.errors import DataError


def corpus(**columns):
    known = {
        "name": "mine",
        "image_ids": ["val/a.jpg", "b.jpg", "other/c.jpg", "val/c.jpg"],
        "image_groups": np.arange(4),
        "image_splits": np.array(["test"] * 4),
        "texts": ["a dog", "two dogs", "a dog", "17"],
        "text_groups": np.array([0, 0, 1, 3]),
        "text_splits": np.array(["test"] * 4),
        "text_ids": ["732091", "5", "17", "b.jpg#0"],
    }
    return Corpus(**{**known, **columns})


def rows(grades):
    return list(zip(grades.texts.tolist(), grades.images.tolist(), grades.values.tolist(), strict=True))


def test_texts_are_named_by_themselves_their_ids_or_a_label_and_images_by_file_or_id(tmp_path):
    file = tmp_path / "grades.csv"
    file.write_text(
        "text,image,grade\n"
        "a  dog,a.jpg,1\n"  # the first of equal texts
        "17,b.jpg,2.5\n"  # an id comes before a text
        "COCO_val2014:sentid:732091,val/a.jpg,-3\n"
        "b.jpg#0,val/c.jpg,4e0\n"
        "a  dog,a.jpg,2\n"  # another judge
    )
    assert rows(read_grades(file, corpus())) == [(0, 0, 1), (2, 1, 2.5), (0, 0, -3), (3, 3, 4), (0, 0, 2)]
    assert rows(read_grades(str(file), corpus())) == rows(read_grades(file, corpus()))


def test_rows_in_memory_and_other_tables_are_the_same(tmp_path):
    listed = [("two dogs", "b.jpg", 3), (5, "a.jpg", "2")]
    expected = [(1, 1, 3), (1, 0, 2)]
    assert rows(read_grades(listed, corpus())) == expected
    assert rows(read_grades(map(list, listed), corpus())) == expected
    file = tmp_path / "grades.jsonl"
    file.write_text(
        "\n".join(json.dumps({"caption": text, "file": image, "rating": grade}) for text, image, grade in listed)
    )
    assert rows(read_grades(file, corpus())) == expected
    (tmp_path / "cxc.csv").write_text(
        "caption,image,agg_score,sampling_method\nx:sentid:5,b.jpg,3.0,c2i\n5,a.jpg,2,c2i\n"
    )
    assert rows(read_grades(tmp_path / "cxc.csv", corpus())) == expected


def test_bad_rows_are_left_out_with_their_file_and_row(tmp_path):
    file = tmp_path / "grades.csv"
    file.write_text(
        "image,grade,text\n"
        "a.jpg,1,a dog\n"
        "z.jpg,1,a dog\n"
        "a.jpg,1,a cat\n"
        "a.jpg,good,a dog\n"
        "a.jpg,nan,a dog\n"
        "a.jpg,,a dog\n"
        "c.jpg,1,a dog\n"
        "a.jpg,1\n"
        ",1,a dog\n"
        "a.jpg,1,\n"
        "a.jpg,5,two dogs\n"
    )
    grades = read_grades(file, corpus())
    assert rows(grades) == [(0, 0, 1), (1, 0, 5)]
    assert len(grades) == 2
    assert sorted(str(problem).removeprefix(f"{file}:") for problem in grades.problems) == sorted(
        [
            "3: no image 'z.jpg' in test of mine",
            "4: no text 'a cat' in test of mine",
            "5: the grade 'good' is not a finite number",
            "6: the grade 'nan' is not a finite number",
            "7: the grade '' is not a finite number",
            "8: no image 'c.jpg' in test of mine; 2 images have this name: write 'other/c.jpg' or another",
            "9: 2 columns, not 3",
            "10: the image is empty",
            "11: the text is empty",
        ]
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("a dog", "b.jpg"), "not a text, an image and a grade"),
        ("a dog", "not a text, an image and a grade"),
        (("a dog", "b.jpg", True), "the grade True is not a finite number"),
        (("a dog", "b.jpg", 10**400), "is not a finite number"),
        ((1.5, "b.jpg", 1), "the text is of type float, not a string"),
        (("a dog", None, 1), "no image"),
    ],
)
def test_bad_rows_in_memory_are_named_by_their_number(row, reason):
    grades = read_grades([("a dog", "b.jpg", 1), row], corpus())
    assert rows(grades) == [(0, 1, 1)]
    assert grades.problems[0].row == 2
    assert reason in str(grades.problems[0])


def test_texts_without_ids_are_named_by_themselves_only():
    grades = read_grades([("a dog", "b.jpg", 1), ("732091", "b.jpg", 1)], corpus(text_ids=None))
    assert str(grades.problems[0]) == "grades:2: no text '732091' in test of mine, whose texts have no ids"


def test_a_table_without_a_usable_row_is_refused(tmp_path):
    with pytest.raises(
        DataError, match=r"^.*none\.csv: no such file; name a table with the columns text, image and grade$"
    ):
        read_grades(tmp_path / "none.csv", corpus())
    file = tmp_path / "grades.csv"
    file.write_text("text,image\na dog,b.jpg\n")
    with pytest.raises(
        DataError, match=r"grades.csv: no column grade or agg_score or rating or score; it has 'image', 'text'$"
    ):
        read_grades(file, corpus())
    file.write_text("text,image,grade\n")
    with pytest.raises(DataError, match=r"grades.csv: no usable grade in it$"):
        read_grades(file, corpus())
    file.write_text("text,image,grade\na cat,b.jpg,1\n")
    with pytest.raises(DataError, match=r"no usable grade in it; first problem: .*grades.csv:2: no text 'a cat'"):
        read_grades(file, corpus())


def test_the_split_is_named():
    part = replace(corpus(), image_splits=np.array(["val", "val", "test", "val"]))
    with pytest.raises(DataError, match="no image 'z' in test\\+val of mine"):
        read_grades([("a dog", "z", 1)], part)
