"""Shards for tests: tar files with whatever members a test needs."""

import io
import tarfile

from PIL import Image

from diptych.data.shards.corpus import HeldSamples
from diptych.data.shards.index import ShardInfo
from diptych.data.shards.samples import Sample


def png(shade=0, side=8):
    """The bytes of a picture in one shade."""
    content = io.BytesIO()
    Image.new("RGB", (side, side), (shade % 256, 90, 160)).save(content, "PNG")
    return content.getvalue()


def write_tar(file, members, tar_format=tarfile.USTAR_FORMAT):
    """A tar file of (name, content) pairs; a content that is a TarInfo's type makes a member without content."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w", format=tar_format) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            else:
                member.type, member.linkname = content
                tar.addfile(member)
    return file


def sample(key, text, shade=0, **more):
    """The members of one sample: an image and its text, and others by their ending."""
    members = [(f"{key}.png", png(shade)), (f"{key}.txt", text.encode())]
    return members + [(f"{key}.{ending}", content) for ending, content in more.items()]


def write_shard(file, samples, first=0):
    """A shard of as many samples, numbered from `first`; sample 12 has the text `photo 12` and the shade 12."""
    numbers = range(first, first + samples)
    return write_tar(file, [part for n in numbers for part in sample(f"{n:06d}", f"photo {n}", n)])


def stream_corpus(train=6, val=2):
    """A corpus of shards without any file: train has as many samples, and val those that are in memory."""
    held = HeldSamples("photos")
    for number in range(val):
        held.add("val-0.tar", Sample(f"{number}", f"{number}.png", b"", 0, 0, (f"photo {number}",), "val", f"{number}"))
    return held.corpus([ShardInfo("train-0.tar", {"train": train}, train, split="train")], [], "shards")
