import fsspec
import pytest

from diptych.data.shards import names
from diptych.data.shards.names import expand_braces, open_shard, read_bytes, shard_names, shard_size
from diptych.errors import DataError, DiptychError


def test_braces_count_with_as_many_digits_and_list():
    assert expand_braces("a-{098..101}.tar") == ["a-098.tar", "a-099.tar", "a-100.tar", "a-101.tar"]
    assert expand_braces("{x,y}/{1..2}.tar") == ["x/1.tar", "x/2.tar", "y/1.tar", "y/2.tar"]
    assert expand_braces("plain.tar") == ["plain.tar"]


@pytest.mark.parametrize("pattern", ["{3..1}.tar", "{0..1000000}.tar", "{000..999}-{0000..9999}.tar"])
def test_braces_that_stand_for_nothing_or_for_too_much(pattern):
    with pytest.raises(DataError, match=r"counts down|limit"):
        expand_braces(pattern)


def test_braces_name_missing_shards_and_globs_do_not(tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.tar").write_bytes(b"12345")
    assert shard_names(f"{tmp_path}/{{a,z}}.tar") == [f"{tmp_path}/a.tar", f"{tmp_path}/z.tar"]
    assert shard_names(f"{tmp_path}/*.tar") == [f"{tmp_path}/{name}.tar" for name in "abc"]
    assert shard_names(f"{tmp_path}/{{b,[ab]}}.tar") == [f"{tmp_path}/b.tar", f"{tmp_path}/a.tar"]
    (tmp_path / "odd{1..2}[x].tar").touch()
    assert shard_names(f"{tmp_path}/odd{{1..2}}[x].tar") == [f"{tmp_path}/odd{{1..2}}[x].tar"]
    with pytest.raises(DataError, match="no such shards"):
        shard_names(f"{tmp_path}/z*.tar")
    assert shard_size(f"{tmp_path}/a.tar") == 5
    assert shard_size(f"{tmp_path}/z.tar") is None


def test_any_address_of_fsspec():
    for name in ("b", "a"):
        fsspec.filesystem("memory").pipe(f"/names/{name}.tar", name.encode() * 3)
    assert shard_names("memory://names/*.tar") == ["memory://names/a.tar", "memory://names/b.tar"]
    assert shard_size("memory://names/a.tar") == 3
    assert shard_size("memory://names/z.tar") is None
    assert read_bytes("memory://names/b.tar") == b"bbb"
    assert read_bytes("memory://names/z.tar") is None
    with pytest.raises(DataError, match=r"nothing://x.tar: fsspec cannot open it"):
        shard_size("nothing://x.tar")


def test_fsspec_is_only_needed_for_addresses(tmp_path, monkeypatch):
    def missing(module, command, instead):
        raise DiptychError(f"{module} is not installed; run: {command}")

    monkeypatch.setattr(names, "import_optional", missing)
    (tmp_path / "a.tar").touch()
    assert shard_size(str(tmp_path / "a.tar")) == 0
    with pytest.raises(DiptychError, match=r"pip install 'diptych\[streams\]'"):
        shard_size("s3://bucket/a.tar")


def test_a_folder_is_no_shard(tmp_path):
    with pytest.raises(DataError, match="not an ordinary file"), open_shard(str(tmp_path)):
        pass
