import json

import pytest

from diptych.data.shards.index import INDEX, ShardInfo, file_name, folder_of, read_index, read_source, write_index
from diptych.errors import DataError


def test_what_is_written_is_read(tmp_path):
    shards = [
        ShardInfo(f"{tmp_path}/train-0.tar", {"train": 3}, 15, 1024, "ab", "train"),
        ShardInfo(f"{tmp_path}/mixed.tar", {"train": 3, "val": 1}, 4, 2048, None, None),
    ]
    write_index(tmp_path, shards, {"name": "photos"})
    assert list((read_index(f"{tmp_path}/") or {}).values()) == shards
    assert read_source(tmp_path) == {"name": "photos"}
    assert shards[1].count(["val", "test"]) == 1
    assert shards[0].file == "train-0.tar"


def test_other_files_of_that_name_are_no_index(tmp_path):
    assert read_index(f"{tmp_path}/") is None
    for content in ("[]", "{", '{"format": "other"}', "\0"):
        (tmp_path / INDEX).write_text(content)
        assert read_index(f"{tmp_path}/") is None
        assert read_source(tmp_path) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("name", "../x.tar"), ("samples", {"trian": 1}), ("samples", {"train": -1}), ("split", "dev"), ("texts", None)],
)
def test_a_damaged_index_is_named(tmp_path, key, value):
    write_index(tmp_path, [ShardInfo("x.tar", {"train": 3}, 15, 1024, "ab", "train")], {})
    content = json.loads((tmp_path / INDEX).read_text())
    content["shards"][0][key] = value
    (tmp_path / INDEX).write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"index.json: damaged; remove it"):
        read_index(f"{tmp_path}/")
    (tmp_path / INDEX).write_text(json.dumps({**content, "version": 9}))
    with pytest.raises(DataError, match="version 9"):
        read_index(f"{tmp_path}/")


def test_folders_of_names():
    assert (folder_of("a/b/c.tar"), folder_of("c.tar"), folder_of("s3://b/c.tar")) == ("a/b/", "", "s3://b/")
    assert file_name("s3://b/c.tar") == "c.tar"
