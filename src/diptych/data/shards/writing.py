"""Writes a corpus as shards, with an index.json of their counts and hashes.

Shards are written one after another to temporary names and renamed, and a list of the finished ones is kept beside
them, so that a killed process loses at most one shard of work. The same corpus gives the same bytes.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import SPLITS, Corpus, Integers, Picture
from diptych.data.images import picture_path
from diptych.data.parsing import clean_text
from diptych.data.read_ahead import read_ahead
from diptych.data.shards.corpus import StreamCorpus
from diptych.data.shards.index import INDEX, ShardInfo, read_index, read_source, write_index
from diptych.data.shards.names import shard_size
from diptych.data.shards.samples import IMAGE_EXTENSIONS, MAX_IMAGE
from diptych.errors import DataError, ImageError
from diptych.files import atomic_write, file_hash, locked_folder, remove_leftovers, write_text
from diptych.progress import ProgressCallback

SAMPLES = 1000  # per shard, by default
_FINISHED = ".finished.jsonl"  # the source, and the shards that are complete, until the index is written


@dataclass(frozen=True)
class WrittenShards:
    """The shards, the images that were left out with the reasons, and the number of shards that were there before."""

    shards: tuple[ShardInfo, ...]
    skipped: tuple[str, ...]
    reused: int


def write_shards(
    corpus: Corpus,
    into: Path,
    samples: int = SAMPLES,
    *,
    workers: int = 2,
    progress: ProgressCallback | None = None,
) -> WrittenShards:
    """Write all splits of a corpus into a folder, `samples` images per shard, in a random order.

    Each image has its texts with it; images and texts whose group lacks the other side are left out. If several images
    share a group, its texts are dealt out among them, so that no text is lost and no image is without one. The bytes of
    image files are copied as they are. The same call again goes on where the first one ended, and writes shards again
    that have been lost or cut short.
    """
    if isinstance(corpus, StreamCorpus):
        raise DataError(f"{corpus.name}: consists of shards already")
    if corpus.pictures is None:
        raise DataError(f"{corpus.name}: has stored features but no pictures, and shards hold pictures")
    if into.exists() and not into.is_dir():
        raise DataError(f"{into}: is a file; name a folder")
    digest = corpus.digest()
    source = {"name": corpus.name, "digest": digest, "samples_per_shard": samples}
    with locked_folder(into, DataError):
        remove_leftovers(into)
        finished = _finished(into, source)
        shards: list[ShardInfo] = []
        skipped: list[str] = []
        reused = done = 0
        parts = [_Part.of(corpus, split, digest) for split in SPLITS if split in corpus.split_sizes()]
        total = sum(len(part.corpus.image_ids) for part in parts)
        for part in parts:
            for name, images in part.shards(samples):
                if name in finished and shard_size(str(into / name)) == finished[name][0].size:
                    shard, left_out = finished[name]
                    reused += 1
                else:
                    shard, left_out = part.write(into / name, images, workers)
                    _append(into / _FINISHED, {**shard.to_json(), "skipped": left_out})
                done += len(images)
                shards += [shard] if shard.texts else []
                skipped += left_out
                if progress is not None:
                    progress(done, total)
        skipped = list(dict.fromkeys(skipped))
        if not shards:
            raise DataError(f"{corpus.name}: no image of it has a text and can be read, so there is nothing to write")
        write_index(into, shards, {**source, "skipped": skipped})
        (into / _FINISHED).unlink(missing_ok=True)
    return WrittenShards(tuple(shards), tuple(skipped), reused)


def _finished(into: Path, source: dict[str, Any]) -> dict[str, tuple[ShardInfo, list[str]]]:
    """The shards that an earlier call has completed, with the images that they lack; DataError if of other data."""
    other = DataError(f"{into}: holds shards of other data, or of another size; write --into another folder")
    written, file = read_source(into), into / _FINISHED
    if written is not None:
        if {key: written.get(key) for key in source} != source:
            raise other
        skipped = written.get("skipped", [])  # of all shards: the index does not say of which
        return {shard.file: (shard, skipped) for shard in (read_index(f"{into}/") or {}).values()}
    if (into / INDEX).exists():
        raise DataError(f"{into / INDEX}: is not the index of shards; write --into another folder")
    if not file.exists():
        if any(into.glob("*.tar")):
            raise other
        write_text(file, json.dumps(source) + "\n")
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    if json.loads(lines[0]) != source:
        raise other
    complete = [json.loads(line) for line in lines[1:] if line.endswith("\n")]
    write_text(file, "".join(line for line in lines if line.endswith("\n")))
    return {record["name"]: (ShardInfo.from_json(record, f"{into}/"), record["skipped"]) for record in complete}


def _append(file: Path, record: dict[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(record) + "\n")


@dataclass(frozen=True)
class _Part:
    """A split of a corpus, with the texts that each image takes along."""

    split: str
    corpus: Corpus
    texts_of: list[Integers]  # by image
    shared: NDArray[np.bool_]  # whether an image shares its group with others
    source: str  # a digest of the whole corpus: shards of several may be read together, and groups have numbers

    @classmethod
    def of(cls, corpus: Corpus, split: str, source: str) -> _Part:
        try:
            part = corpus.split(split).matched()
        except DataError:  # images without any text
            part = corpus.take(np.arange(0), np.arange(0))
        groups, group_of, sizes = np.unique(part.image_groups, return_inverse=True, return_counts=True)
        texts = np.argsort(part.text_groups, kind="stable")
        first = np.searchsorted(part.text_groups[texts], groups, side="left")
        last = np.searchsorted(part.text_groups[texts], groups, side="right")
        order = np.argsort(group_of, kind="stable")
        place = np.empty(len(order), np.int64)  # of an image in its group
        place[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        dealt = []
        for group, k in zip(group_of.tolist(), place.tolist(), strict=True):
            of_group = texts[first[group] : last[group]]
            dealt.append(of_group[k :: sizes[group]] if k < len(of_group) else of_group[[k % len(of_group)]])
        return cls(split, part, dealt, sizes[group_of] > 1, source)

    def shards(self, samples: int) -> Iterator[tuple[str, Integers]]:
        """The name of each shard, and its images: neighbours in the data are in different shards."""
        order = np.random.Generator(np.random.PCG64(0)).permutation(len(self.corpus.image_ids))
        for number, start in enumerate(range(0, len(order), samples)):
            yield f"{self.split}-{number:06d}.tar", order[start : start + samples]

    def write(self, file: Path, images: Integers, workers: int) -> tuple[ShardInfo, list[str]]:
        """Write a shard; returns also the images that could not be read."""
        skipped: list[str] = []
        samples = texts = 0
        with atomic_write(file) as temporary, tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as tar:
            for key, (image, read) in enumerate(
                zip(images.tolist(), read_ahead(self._read, images.tolist(), workers), strict=True)
            ):
                if isinstance(read, str):
                    skipped.append(read)
                    continue
                content, extension = read
                own_texts = [clean_text(self.corpus.texts[text]) for text in self.texts_of[image]]
                about = {"id": _utf8(self.corpus.image_ids[image])}
                if self.shared[image]:
                    about["group"] = f"{self.source[:16]}:{self.corpus.image_groups[image]}"
                _add(tar, f"{key:06d}.{extension}", content)
                _add(tar, f"{key:06d}.txt", "\n".join(own_texts).encode())
                _add(tar, f"{key:06d}.json", json.dumps(about).encode())
                samples, texts = samples + 1, texts + len(own_texts)
        size = file.stat().st_size
        return ShardInfo(str(file), {self.split: samples}, texts, size, file_hash(file), self.split), skipped

    def _read(self, image: int) -> tuple[bytes, str] | str:
        """The content of an image's file and its ending, or the reason why it cannot be read."""
        assert self.corpus.pictures is not None, "checked by write_shards"
        try:
            content, extension = _content(self.corpus.pictures[image])
        except ImageError as reason:
            return str(reason)
        name = self.corpus.image_ids[image]
        if not content:
            return f"{name}: an empty file (0 bytes); copy it again"
        if len(content) > MAX_IMAGE:
            return f"{name}: has {len(content):,} bytes, and {MAX_IMAGE:,} are the limit of shards"
        return content, extension


def _content(picture: Picture) -> tuple[bytes, str]:
    """The bytes of an image file as they are; any other picture as PNG, which loses nothing."""
    path = picture_path(picture)
    extension = "" if path is None else path.suffix[1:].lower()
    if path is not None and extension in IMAGE_EXTENSIONS:
        try:
            return path.read_bytes(), extension
        except OSError as reason:
            raise ImageError(f"{path}: cannot be read ({reason.strerror})") from None
    png = io.BytesIO()
    picture.load().save(png, "PNG")
    return png.getvalue(), "png"


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def _utf8(name: str) -> str:
    """A name as UTF-8 can hold it: file names may be any bytes."""
    return name.encode(errors="backslashreplace").decode()
