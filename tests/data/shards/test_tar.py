import io
import tarfile

import pytest

from diptych.data.shards.tar import DamagedShardError, TarReader
from support.shards import write_tar


class Unseekable(io.BytesIO):
    def seekable(self):
        return False

    def seek(self, *_):
        raise AssertionError("a stream cannot be sought")


class Trickling(Unseekable):
    def read(self, count=-1):
        return super().read(min(count, 100))


def members(content, kind=io.BytesIO, size=None):
    reader = TarReader(kind(content), "x.tar", size)
    return [(member.name, reader.read()) for member in reader if member.is_file]


LONG = "folder/" * 40 + "é.png"
MEMBERS = [("a.txt", b"one"), (LONG, bytes(range(256)) * 5), ("empty.txt", b""), ("exact.txt", b"x" * 512)]


@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("kind", [io.BytesIO, Unseekable, Trickling])
def test_reads_what_tarfile_has_written(tmp_path, tar_format, kind):
    links = [("link", (tarfile.SYMTYPE, "/etc/passwd")), ("folder", (tarfile.DIRTYPE, ""))]
    content = write_tar(tmp_path / "x.tar", [*MEMBERS, *links], tar_format).read_bytes()
    assert members(content, kind) == MEMBERS
    reader = TarReader(kind(content), "x.tar")
    assert [member.name for member in reader] == [name for name, _ in MEMBERS + links]  # skipping all content
    assert [member.is_file for member in TarReader(kind(content), "x.tar")] == [True] * 4 + [False] * 2


def test_the_offset_is_that_of_the_content(tmp_path):
    content = write_tar(tmp_path / "x.tar", MEMBERS, tarfile.PAX_FORMAT).read_bytes()
    found = [content[m.offset : m.offset + m.size] for m in TarReader(io.BytesIO(content), "x.tar")]
    assert found == [content for _, content in MEMBERS]


@pytest.mark.parametrize("kind", [io.BytesIO, Unseekable])
def test_wherever_it_is_cut_the_members_before_are_read_and_the_rest_is_an_error(tmp_path, kind):
    content = write_tar(tmp_path / "x.tar", MEMBERS[:1] * 3).read_bytes()
    for length in range(0, 3 * 1024 + 1, 256):
        reader = TarReader(kind(content[:length]), "x.tar")
        found = []
        with pytest.raises(DamagedShardError, match="cut short"):
            for member in reader:
                found.append((member.name, reader.read()))
        assert len(found) == (length + 1024 - 512 - 3) // 1024, length


def test_damage_in_the_middle_is_not_the_end():
    content = bytearray(tar_of(2))
    content[1024 + 148 : 1024 + 156] = b"garbage!"
    with pytest.raises(DamagedShardError, match=r"x.tar: damaged in the middle"):
        members(bytes(content))
    with pytest.raises(DamagedShardError, match=r"not a tar file .*gunzip"):
        members(b"\x1f\x8b" + b"\1" * 1022)


def test_a_huge_declared_member_is_damage_before_anything_is_allocated():
    header = tarfile.TarInfo("a.png")
    header.size = 2**50
    content = header.tobuf(tarfile.GNU_FORMAT) + bytes(2048)
    with pytest.raises(DamagedShardError, match="goes beyond its end"):
        members(content, size=len(content))
    for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE):
        header.type, header.size = kind, 2**30
        with pytest.raises(DamagedShardError, match=r"a name of 1,073,741,824 bytes"):
            members(header.tobuf(tarfile.GNU_FORMAT) + bytes(2048))


@pytest.mark.parametrize("record", [b"99 size=7777777777\n", b"x size=1\n", b"20 size=-5\n", b"0 size=1\n"])
def test_pax_records_that_lie(record):
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, len(record)
    content = header.tobuf(tarfile.USTAR_FORMAT) + record.ljust(512, b"\0") + tar_of(1)
    try:
        assert members(content, size=len(content)) == [("0.txt", b"one")]
    except DamagedShardError as reason:
        assert "x.tar" in str(reason)  # noqa: PT017 (either is right: what matters is that nothing else happens)


def test_sparse_members_are_refused():
    header = tarfile.TarInfo("sparse")
    header.type = tarfile.GNUTYPE_SPARSE
    with pytest.raises(DamagedShardError, match="sparse"):
        members(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


def tar_of(count):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(count):
            member = tarfile.TarInfo(f"{number}.txt")
            member.size = 3
            tar.addfile(member, io.BytesIO(b"one"))
    return content.getvalue()
