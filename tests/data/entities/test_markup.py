from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Box, Phrase
from diptych.data.entities.markup import read_boxes, read_sentence
from diptych.errors import DataError

SIZE = "<size><width>100</width><height>50</height><depth>3</depth></size>"


def thing(*chains: object, box: tuple[object, ...] | None = None, **flags: int) -> str:
    names = "".join(f"<name>{chain}</name>" for chain in chains)
    sides = ("xmin", "ymin", "xmax", "ymax")
    inside = "".join(f"<{side}>{at}</{side}>" for side, at in zip(sides, box or (), strict=False))
    inside = f"<bndbox>{inside}</bndbox>" if box else ""
    return f"<object>{names}{inside}{''.join(f'<{flag}>{on}</{flag}>' for flag, on in flags.items())}</object>"


def xml(*things: str, size: str = SIZE) -> str:
    return "\n".join(["<annotation>", f"<filename>1.jpg</filename>{size}", *things, "</annotation>"])


words = st.lists(st.text(st.characters(exclude_characters="[]", exclude_categories=["C", "Z"]), min_size=1), min_size=1)
kinds = st.lists(st.sampled_from(["people", "other", "scene"]), min_size=1, max_size=3)


@given(st.lists(st.tuples(words, st.none() | st.tuples(st.integers(0, 5), kinds))))
def test_a_marked_sentence_has_the_words_of_the_plain_one(parts) -> None:
    plain = " ".join(" ".join(words) for words, _ in parts)
    marked = " ".join(
        " ".join(words) if mark is None else f"[/EN#{mark[0]}/{'/'.join(mark[1])} {' '.join(words)}]"
        for words, mark in parts
    )
    wanted = [Phrase(" ".join(words), str(mark[0]), tuple(mark[1])) for words, mark in parts if mark and mark[0]]
    assert read_sentence(marked) == (plain, wanted)


@given(st.lists(st.tuples(*(st.integers(-20, 130) for _ in range(4)), st.integers(1, 3)), max_size=6))
def test_a_box_is_around_the_pixels_of_its_chain(boxes: list[tuple[int, ...]]) -> None:
    content = xml(*(thing(chain, box=sides) for *sides, chain in boxes))
    found = read_boxes(content.encode())
    pixels: dict[str, tuple[set[int], set[int]]] = {}
    for left, top, right, bottom, chain in boxes:
        columns = {x for x in range(left, right + 1) if 1 <= x <= 100}
        rows = {y for y in range(top, bottom + 1) if 1 <= y <= 50}
        if columns and rows:
            across, down = pixels.setdefault(str(chain), (set(), set()))
            across |= columns
            down |= rows
    assert found.boxes == [
        Box(chain, (min(across) - 1) / 100, (min(down) - 1) / 50, max(across) / 100, max(down) / 50)
        for chain, (across, down) in pixels.items()
    ]
    assert found.chains == {str(chain) for *_, chain in boxes}


def test_nesting_without_end_is_only_slow_to_write() -> None:
    with pytest.raises(DataError, match="no size of the photo"):
        read_boxes(b"<a>" * 100_000 + b"</a>" * 100_000)
