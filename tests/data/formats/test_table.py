from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.formats.table import read
from diptych.data.images import PictureFile
from diptych.data.parsing import hashed_split
from diptych.errors import DataError


def folder_with(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def texts_of(corpus: Corpus) -> dict[str, list[str]]:
    """The texts that match each image, which is what a row may never change for its neighbours."""
    return {
        name: [text for text, other in zip(corpus.texts, corpus.text_groups, strict=True) if other == group]
        for name, group in zip(corpus.image_ids, corpus.image_groups, strict=True)
    }


def problems(corpus: Corpus) -> list[tuple[int | None, str]]:
    return [(problem.row, problem.message) for problem in corpus.problems]


def test_rows_of_the_same_image_are_one_image(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", "b.jpg")
    file = written(tmp_path / "t.csv", "image,text,split\na.jpg,one dog,train\nb.jpg,a cat,test\na.jpg,a dog,train\n")
    corpus = read(Address(file))
    assert texts_of(corpus) == {"a.jpg": ["one dog", "a dog"], "b.jpg": ["a cat"]}
    assert corpus.image_splits.tolist() == ["train", "test"]
    assert corpus.text_splits.tolist() == ["train", "test", "train"]
    assert corpus.pictures == (PictureFile(tmp_path / "a.jpg"), PictureFile(tmp_path / "b.jpg"))
    assert corpus.problems == ()
    assert corpus.name == "t"


def test_a_group_has_several_images_and_a_repeated_text_once(tmp_path: Path) -> None:
    folder_with(tmp_path, "1.jpg", "2.jpg", "3.jpg", "x.jpg")
    rows = ["image,text,group", "1.jpg,tall man,7", "2.jpg,tall man,7", "3.jpg,a man in black,7", "x.jpg,tall man,8"]
    corpus = read(Address(written(tmp_path / "t.csv", "\n".join(rows))))
    man = ["tall man", "a man in black"]
    assert texts_of(corpus) == {"1.jpg": man, "2.jpg": man, "3.jpg": man, "x.jpg": ["tall man"]}
    assert len(corpus.texts) == 3
    assert corpus.problems == ()


def test_an_empty_group_is_the_image_alone(tmp_path: Path) -> None:
    folder_with(tmp_path, "1.jpg", "2.jpg")
    corpus = read(Address(written(tmp_path / "t.csv", "image,text,group\n1.jpg,a,\n2.jpg,b, \n")))
    assert texts_of(corpus) == {"1.jpg": ["a"], "2.jpg": ["b"]}


@pytest.mark.parametrize("image", ["image", "file", "filename", "file_name", "image_path", "filepath", " Image "])
@pytest.mark.parametrize("text", ["text", "caption", "sentence", "description", "TEXT"])
def test_column_names(tmp_path: Path, image: str, text: str) -> None:
    folder_with(tmp_path, "a.jpg")
    assert texts_of(read(Address(written(tmp_path / "t.csv", f"{text},other,{image}\na dog,5,a.jpg\n")))) == {
        "a.jpg": ["a dog"]
    }


def test_the_plainest_name_wins_over_its_aliases(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg")
    corpus = read(Address(written(tmp_path / "t.csv", "filename,image,description,text\nx.jpg,a.jpg,no,yes\n")))
    assert texts_of(corpus) == {"a.jpg": ["yes"]}


def test_images_are_found_beside_the_table_in_images_or_in_a_named_folder(tmp_path: Path) -> None:
    folder_with(tmp_path, "data/a.jpg", "data/images/b.jpg", "data/sub/c.jpg", "else/d.jpg")
    absolute = tmp_path / "else/d.jpg"
    rows = f"image,text\na.jpg,a\nb.jpg,b\nsub/c.jpg,c\n./sub/c.jpg,c again\n{absolute},d\n"
    corpus = read(Address(written(tmp_path / "data/t.csv", rows)))
    assert texts_of(corpus) == {
        "a.jpg": ["a"], "b.jpg": ["b"], "sub/c.jpg": ["c", "c again"], str(absolute): ["d"],
    }  # fmt: skip
    corpus = read(Address(written(tmp_path / "data/u.csv", "image,text\nd.jpg,d\n"), str(tmp_path / "else")))
    assert corpus.pictures == (PictureFile(absolute),)
    with pytest.raises(DataError, match=r"nowhere: no such folder of images"):
        read(Address(tmp_path / "data/u.csv", str(tmp_path / "nowhere")))


def test_tsv_with_and_without_quotes(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    rows = 'image\ttext\na.jpg\t"stop" says a sign\nb.jpg\t"a ""big"" dog"\nc.jpg\tone, two; three\n'
    assert texts_of(read(Address(written(tmp_path / "t.tsv", rows)))) == {
        "a.jpg": ['"stop" says a sign'], "b.jpg": ['a "big" dog'], "c.jpg": ["one, two; three"],
    }  # fmt: skip


def test_csv_dialects(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", "b.jpg")
    for content in (
        'image;text\r\na.jpg;"one; two"\r\nb.jpg;three\r\n',
        'image, text\na.jpg, "one; two"\n\nb.jpg, three',
        "\ufeffimage,text\ra.jpg,one; two\rb.jpg,three\r",
    ):
        assert texts_of(read(Address(written(tmp_path / "t.csv", content)))) == {
            "a.jpg": ["one; two"], "b.jpg": ["three"],
        }  # fmt: skip


def test_jsonl_and_parquet_give_what_csv_gives(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    rows = [
        {"image": "a.jpg", "text": "one\ndog", "group": 1, "split": "train"},
        {"image": "b.jpg", "text": "two  dogs ", "group": 1, "split": "train"},
        {"image": "c.jpg", "text": "ein Hündchen 犬", "group": 2, "split": "dev"},
    ]
    with (tmp_path / "t.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    written(tmp_path / "t.jsonl", "\n\n".join(json.dumps(row) for row in rows))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    for suffix in ("csv", "jsonl", "parquet"):
        corpus = read(Address(tmp_path / f"t.{suffix}"))
        both = ["one dog", "two dogs"]
        assert texts_of(corpus) == {"a.jpg": both, "b.jpg": both, "c.jpg": ["ein Hündchen 犬"]}
        assert corpus.image_splits.tolist() == corpus.text_splits.tolist() == ["train", "train", "val"]
        assert corpus.problems == ()


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"t\.parquet: .*pip install 'diptych\[parquet\]'"):
        read(Address(tmp_path / "t.parquet"))


BROKEN_CSV = """image,text,split
a.jpg,first,train
b.jpg,,train
c.jpg,third,tset
gone.jpg,fourth,train
,fifth,train
d.jpg,sixth
e.jpg,a dog, running,train
f.jpg,"never closed,train
g.jpg,"closed",train
h.jpg,"closed"wrongly,train
a.jpg,first,train
a.jpg,other split,test
i.jpg,last,test
"""


def test_broken_rows_are_named_and_left_out_and_no_neighbour_moves(tmp_path: Path) -> None:
    folder_with(tmp_path, *(f"{letter}.jpg" for letter in "abcdefghi"))
    corpus = read(Address(written(tmp_path / "t.csv", BROKEN_CSV)))
    assert texts_of(corpus) == {"a.jpg": ["first"], "g.jpg": ["closed"], "i.jpg": ["last"]}
    assert [problem.file for problem in corpus.problems] == [str(tmp_path / "t.csv")] * 10
    assert problems(corpus) == [
        (3, "the text is empty"),
        (4, "unknown split 'tset'; did you mean 'test'?"),
        (5, f"no image 'gone.jpg' in {tmp_path}"),
        (6, "the image is empty"),
        (7, "2 columns, not 3"),
        (8, "4 columns, not 3; quote texts that hold ','"),
        (9, "not readable as CSV (',' expected after '\"')"),
        (11, "not readable as CSV (',' expected after '\"')"),
        (12, "the same image and text as at row 2"),
        (13, "image 'a.jpg' is in another split at row 2"),
    ]
    assert str(corpus.problems[0]) == f"{tmp_path / 't.csv'}:3: the text is empty"


def test_line_numbers_count_lines_not_rows(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg")
    content = 'image,text\na.jpg,"two\nlines"\n\na.jpg,\na.jpg,"open to the end\n'
    corpus = read(Address(written(tmp_path / "t.csv", content)))
    assert texts_of(corpus) == {"a.jpg": ["two lines"]}
    assert problems(corpus) == [(5, "the text is empty"), (6, "not readable as CSV (unexpected end of data)")]


def test_a_row_that_is_not_utf8_costs_that_row_only(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    for name, content in (
        ("t.csv", b"image,text\na.jpg,one\nb.jpg,caf\xe9\nc.jpg,three\n"),
        ("t.tsv", b"image\ttext\na.jpg\tone\nb.jpg\tcaf\xe9\nc.jpg\tthree\n"),
        (
            "t.jsonl",
            b'{"image":"a.jpg","text":"one"}\n{"image":"b.jpg","text":"\\ud800"}\n{"image":"c.jpg","text":"three"}',
        ),
    ):
        corpus = read(Address(written(tmp_path / name, content)))
        assert texts_of(corpus) == {"a.jpg": ["one"], "c.jpg": ["three"]}
        row = 2 if name == "t.jsonl" else 3
        assert problems(corpus) == [(row, "the text is not valid UTF-8; write it in UTF-8")]


def test_broken_json_lines(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", "b.jpg")
    lines = [
        '{"image": "a.jpg", "text": "one", "split": "train"}',
        '{"image": "a.jpg", "text": ',
        '["a.jpg", "two"]',
        '{"image": "a.jpg", "split": "train"}',
        '{"image": "a.jpg", "text": 5, "split": "train"}',
        '{"image": "a.jpg", "text": "no split"}',
        '{"image": "a.jpg", "text": "x", "split": "train", "group": [1]}',
        "[" * 100_000,
        '{"image": "b.jpg", "text": "last", "split": "val"}',
    ]
    corpus = read(Address(written(tmp_path / "t.jsonl", "\n".join(lines))))
    assert texts_of(corpus) == {"a.jpg": ["one"], "b.jpg": ["last"]}
    assert sorted(problems(corpus)) == [
        (2, "not valid JSON (Expecting value)"),
        (3, "a list, not a JSON object"),
        (4, "no text"),
        (5, "the text is of type int, not a string"),
        (6, "no split"),
        (7, "the group is of type list, not a string"),
        (8, "not valid JSON (nested too deeply)"),
    ]


def test_an_image_in_two_groups_keeps_the_first(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", "b.jpg")
    rows = "image,text,group,split\na.jpg,one,1,train\nb.jpg,two,2,train\na.jpg,three,2,train\n"
    corpus = read(Address(written(tmp_path / "t.csv", rows)))
    assert texts_of(corpus) == {"a.jpg": ["one"], "b.jpg": ["two"]}
    assert problems(corpus) == [(4, "image 'a.jpg' is in another group at row 2")]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.csv", "", "an empty file"),
        ("t.csv", "image,txt\na.jpg,x\n", "no column text or caption.*it has 'image', 'txt'"),
        ("t.csv", "text,text,image\nx,y,a.jpg\n", "two columns have the same name"),
        ("t.csv", "image,text\n", "no usable image in it"),
        ("t.csv", "image,text\ngone.jpg,x\n", r"no usable image in it; first problem: .*t\.csv:2: no image 'gone"),
        ("t.csv", "image,text\na.jpg,x\n".encode("utf-16"), "not UTF-8"),
        ("t.jsonl", "\n", "no JSON object in it"),
        ("t.jsonl", "nonsense\n", r"no JSON object in it; first problem: .*t\.jsonl:1: not valid JSON"),
        ("t.jsonl", '{"a": 1}', "no column image"),
        ("t.parquet", "not parquet", "not a readable parquet file"),
    ],
)  # fmt: skip
def test_tables_that_are_broken_as_a_whole(tmp_path: Path, name: str, content: str | bytes, reason: str) -> None:
    folder_with(tmp_path, "a.jpg")
    with pytest.raises(DataError, match=reason) as caught:
        read(Address(written(tmp_path / name, content)))
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_a_missing_table(tmp_path: Path) -> None:
    for name in ("t.csv", "t.jsonl", "t.parquet"):
        with pytest.raises(DataError, match="No such file"):
            read(Address(tmp_path / name))


def test_the_hash_splits_nine_to_a_half_to_a_half_and_never_changes() -> None:
    counts = Counter(hashed_split(f"image-{i}.jpg") for i in range(20_000))
    assert abs(counts["train"] - 18_000) < 200
    assert abs(counts["val"] - 1000) < 120
    assert abs(counts["test"] - 1000) < 120
    assert [hashed_split(name) for name in ("image-4.jpg", "image-22.jpg", "a.jpg")] == ["train", "val", "test"]


def test_without_a_split_column_the_group_decides(tmp_path: Path) -> None:
    names = [f"{i}.jpg" for i in range(60)]
    folder_with(tmp_path, *names)
    rows = "".join(f"{name},text {name},g{i // 3}\n" for i, name in enumerate(names))
    corpus = read(Address(written(tmp_path / "t.csv", "image,text,group\n" + rows)))
    assert corpus.image_splits.tolist() == [hashed_split(f"g{i // 3}") for i in range(60)]
    assert corpus.text_splits.tolist() == corpus.image_splits.tolist()
    alone = read(Address(written(tmp_path / "u.csv", "image,text\n" + "".join(f"{name},a\n" for name in names))))
    assert alone.image_splits.tolist() == [hashed_split(name) for name in names]
    assert len(set(alone.image_splits)) > 1


WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=20)
ROWS = st.lists(
    st.tuples(st.integers(0, 5), WORDS.filter(str.strip), st.sampled_from(["train", "val", "test"])), max_size=20
)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@settings(deadline=None, max_examples=40)
@given(rows=ROWS, images_a_group=st.integers(1, 3), grouped=st.booleans())
def test_whatever_the_rows_the_relation_survives(
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    rows: list[tuple[int, str, str]],
    images_a_group: int,
    grouped: bool,
) -> None:
    folder = tmp_path_factory.mktemp("t")
    folder_with(folder, *(f"{image}.jpg" for image in range(6)))
    group_of = {image: image // images_a_group if grouped else image for image in range(6)}
    split_of = {group_of[image]: split for image, _, split in rows}
    table = [
        {"image": f"{image}.jpg", "text": text, "split": split_of[group_of[image]]}
        | ({"group": f"g{group_of[image]}"} if grouped else {})
        for image, text, _ in rows
    ]
    table.append({"image": "gone.jpg", "text": "left out", "split": "train"} | ({"group": "g0"} if grouped else {}))
    file = folder / f"t.{suffix}"
    if suffix == "csv":
        with file.open("w", encoding="utf-8", newline="") as opened:
            writer = csv.DictWriter(opened, table[0])
            writer.writeheader()
            writer.writerows(table)
    elif suffix == "jsonl":
        file.write_text("\n".join(json.dumps(row) for row in table), encoding="utf-8")
    else:
        parquet.write_table(pyarrow.Table.from_pylist(table), file)

    if not rows:
        with pytest.raises(DataError, match=r"gone\.jpg"):
            read(Address(file))
        return
    corpus = read(Address(file))
    expected: dict[str, set[str]] = {}
    for image, _, _ in rows:
        mine = {" ".join(t.split()) for other, t, _ in rows if group_of[other] == group_of[image]}
        expected[f"{image}.jpg"] = mine
    assert {name: set(texts) for name, texts in texts_of(corpus).items()} == expected
    assert all(len(texts) == len(set(texts)) for texts in texts_of(corpus).values())
    assert list(corpus.image_ids) == list(dict.fromkeys(f"{image}.jpg" for image, _, _ in rows))
    for name, split in zip(corpus.image_ids, corpus.image_splits, strict=True):
        assert split == split_of[group_of[int(name[0])]]
