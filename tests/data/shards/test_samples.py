import json
import tarfile
import tracemalloc

import pytest

from diptych.data.parsing import hashed_split
from diptych.data.shards import samples
from diptych.data.shards.samples import RefusedError, read_samples
from diptych.data.shards.tar import DamagedShardError
from support.shards import png, sample, write_tar


def read(file, **options):
    problems = []
    with file.open("rb") as opened:
        found = list(read_samples(opened, "x.tar", file.stat().st_size, report=problems.append, **options))
    return found, [str(problem) for problem in problems]


def test_members_of_one_name_are_a_sample(tmp_path):
    about = json.dumps({"id": "dog.jpg", "group": 7, "caption": "ignored"}).encode()
    members = [
        ("README", b"nothing"),
        ("folder", (tarfile.DIRTYPE, "")),
        *sample("a/01", "a dog \n\n a  dog\nanother\n", 3, json=about, cls=b"1"),
        ("b.json", json.dumps({"captions": ["one", "two"], "split": "dev"}).encode()),
        ("b.PNG", png(4)),
        ("c.jpg", b"bytes"),
        ("c.json", b'{"text": "three"}'),
    ]
    file = write_tar(tmp_path / "x.tar", members)
    (first, second, third), problems = read(file)
    assert not problems
    assert (first.key, first.member, first.id, first.group) == ("a/01", "a/01.png", "dog.jpg", "7")
    assert (first.texts, first.image, first.split) == (("a dog", "another"), png(3), hashed_split("a/01"))
    assert (second.texts, second.split, second.id) == (("one", "two"), "val", "b")
    assert (third.texts, third.image) == (("three",), b"bytes")
    assert file.read_bytes()[third.offset :][: third.size] == b"bytes"
    assert [found.split for found in read(file, split="test")[0]] == ["test"] * 3
    assert [found.key for found in read(file, wanted=frozenset({"val"}))[0]] == ["b"]


def test_groups_are_numbers_that_only_members_of_a_group_share(tmp_path):
    members = [part for key, group in (("a", "x"), ("b", "x"), ("c", "y")) for part in grouped(key, group)]
    (a, b, c), _ = read(write_tar(tmp_path / "x.tar", [*members]))
    assert a.group_number(0) == b.group_number(1) != c.group_number(2)
    (alone, other), _ = read(write_tar(tmp_path / "y.tar", [*sample("a", "t"), *sample("b", "t")]))
    assert len({alone.group_number(0), other.group_number(1), a.group_number(0)}) == 3


def grouped(key, group):
    return sample(key, "text", json=json.dumps({"group": group}).encode())


def test_samples_that_cannot_be_used_are_named_and_the_others_keep_their_texts(tmp_path):
    members = [
        *sample("01", "first", 1),
        ("no_text.png", png()),
        ("no_image.txt", b"text"),
        ("two.png", png()),
        ("two.jpg", png()),
        ("two.txt", b"text"),
        ("empty.png", b""),
        ("empty.txt", b"text"),
        ("blank.png", png()),
        ("blank.txt", b" \n"),
        ("broken.png", png()),
        ("broken.json", b"{"),
        ("latin.png", png()),
        ("latin.txt", b"caf\xe9"),
        ("split.png", png()),
        ("split.json", b'{"text": "t", "split": "trian"}'),
        *sample("../../etc/evil", "text"),
        *sample("/etc/evil", "text"),
        *sample("new\nline", "text"),
        ("link.png", (tarfile.SYMTYPE, "/etc/passwd")),
        ("link.txt", b"text"),
        *sample("99", "last", 9),
    ]
    found, problems = read(write_tar(tmp_path / "x.tar", members))
    assert [(one.key, one.texts, one.image) for one in found] == [("01", ("first",), png(1)), ("99", ("last",), png(9))]
    expected = {
        "no_text": "no text",
        "no_image": "no image",
        "two": "several images",
        "empty": "0 bytes",
        "blank": "no text",
        "broken": "JSON cannot be read",
        "latin": "not valid UTF-8",
        "split": "unknown split 'trian'; did you mean",
        "../../etc/evil": "leads out of the shard",
        "/etc/evil": "leads out of the shard",
        "new\\nline": "control characters",
        "link": "no image",
    }
    assert len(problems) == len(expected)
    for problem, (key, reason) in zip(problems, expected.items(), strict=True):
        assert problem.startswith(f"x.tar:{key}: ")
        assert reason in problem
        assert "\n" not in problem


@pytest.mark.parametrize("ending", ["pyd", "pickle", "pth", "image.pkl"])
def test_pickles_are_refused(tmp_path, ending):
    file = write_tar(tmp_path / "x.tar", [*sample("1", "text"), (f"2.{ending}", b"cos\nsystem\n")])
    with pytest.raises(RefusedError, match=rf"x.tar: '2.{ending}' is a pickle"):
        read(file)


def test_members_beyond_the_limit_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "MAX_IMAGE", 10**6)
    monkeypatch.setattr(samples, "MAX_TEXT", 1000)
    large = [("a.png", bytes(3 * 10**7)), ("a.txt", b"t"), ("b.png", png()), ("b.txt", b"x" * 1001), *sample("c", "t")]
    file = write_tar(tmp_path / "x.tar", large)
    tracemalloc.start()
    found, problems = read(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [one.key for one in found] == ["c"]
    assert "30,000,000 bytes, and 1,000,000 are the limit" in problems[0]
    assert "1,001 bytes, and 1,000 are the limit" in problems[1]
    assert peak < 10**6


def test_images_are_read_if_they_are_asked_for(tmp_path):
    file = write_tar(tmp_path / "x.tar", [part for n in range(4) for part in sample(str(n), "t", n)])
    found, _ = read(file, load_image=lambda number: number % 2 == 1)
    assert [one.image for one in found] == [None, png(1), None, png(3)]
    assert {one.size for one in found} == {len(png())}


def test_a_shard_that_is_cut_short_gives_the_samples_before(tmp_path):
    file = write_tar(tmp_path / "x.tar", [part for n in range(4) for part in sample(str(n), "t", n)])
    content = file.read_bytes()
    with (tmp_path / "cut.tar").open("w+b") as cut:
        cut.write(content[: 4 * 1024 + 700])
        cut.seek(0)
        reading = read_samples(cut, "cut.tar", 4 * 1024 + 700)
        assert next(reading).key == "0"
        with pytest.raises(DamagedShardError, match=r"cut.tar: cut short"):
            list(reading)
