import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from diptych.index import duplicates
from diptych.index.duplicates import BITS, COLOURS, COSINE, SCENE_COSINE, first_same_image, plain_words
from diptych.index.thumbnails import colour_grid, thumbnail


def plain(place):
    return np.zeros((8, 8, 3), np.float32)


def at(cosine):
    """Two vectors of any length with this cosine."""
    return np.array([[2, 0], [3 * cosine, 3 * np.sqrt(1 - cosine**2)]], np.float32)


@pytest.mark.parametrize(
    ("bits", "cosine", "same"),
    [
        (BITS, COSINE + 0.01, True),
        (BITS + 1, 1.0, False),
        (BITS, COSINE - 0.01, False),
        (0, -1.0, False),
    ],
    ids=["both agree", "hashes differ", "vectors differ", "opposite vectors"],
)
def test_hash_and_vectors_must_agree(bits, cosine, same):
    looks = np.array([2**63 + 5, (2**63 + 5) ^ ((1 << bits) - 1)], np.uint64)
    assert first_same_image(np.array([1, 2]), looks, at(cosine), plain).tolist() == ([0, 0] if same else [0, 1])
    assert first_same_image(np.array([7, 7]), looks, at(cosine), plain).tolist() == [0, 0]


def test_drawings_that_differ_only_in_a_colour_are_distinct():
    def star(colour, size=60):
        picture = Image.new("RGB", (64, 64), "#eeeef4")
        picture.paste(colour, (40, 8, 52, 20))
        return colour_grid(thumbnail(picture.resize((size, size))))

    looks = np.zeros(2, np.uint64)
    for other, same in ((star("#803020"), False), (star("#2040a0", 48), True)):
        shown = [star("#2040a0"), other]
        found = first_same_image(np.arange(2), looks, np.ones((2, 3), np.float32), shown.__getitem__)
        assert found.tolist() == ([0, 0] if same else [0, 1])
    damaged = [star("#2040a0"), colour_grid(thumbnail(Image.new("RGB", (9, 9)))[:90])]
    assert first_same_image(np.arange(2), looks, np.ones((2, 3), np.float32), damaged.__getitem__).tolist() == [0, 1]


@given(contents=st.lists(st.integers(0, 5), max_size=30))
@settings(max_examples=25, deadline=None)
def test_equal_contents_point_to_the_first_of_them(contents):
    looks = np.array([content * 0x0F0F0F0F0F0F0F0F % 2**64 for content in contents], np.uint64)
    vectors = np.zeros((len(contents), 2), np.float32)
    assert first_same_image(np.array(contents, np.int64), looks, vectors, plain).tolist() == [
        contents.index(c) for c in contents
    ]


def one_by_one(contents, looks, vectors, shown):
    """Each image with the best one before it that shows the same, pair by pair."""
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    first, leaders = [], []
    for row, (content, own) in enumerate(zip(contents, looks.tolist(), strict=True)):
        for other in leaders:
            alike = (own ^ int(looks[other])).bit_count() <= BITS and directions[other] @ directions[row] >= COSINE
            alike = alike and np.abs(shown[other] - shown[row]).max() <= COLOURS
            if content == contents[other] or alike:
                first.append(other)
                break
        else:
            first.append(row)
            leaders.append(row)
    return first


@pytest.mark.parametrize("seed", range(8))
def test_blocks_equal_a_comparison_pair_by_pair(seed, monkeypatch):
    monkeypatch.setattr(duplicates, "_ROWS", 7)
    random = np.random.default_rng(seed)
    count = 20 + 5 * seed
    contents = random.integers(0, count, count)
    kinds = random.integers(0, 3, count)
    flipped = [sum(1 << int(bit) for bit in random.choice(64, 6, replace=False)) for _ in range(count)]
    looks = np.array(
        [int(kind) * 0x0F0F0F0F0F0F0F0F ^ bits for kind, bits in zip(kinds, flipped, strict=True)], np.uint64
    )
    vectors = np.eye(3, dtype=np.float32)[kinds] + random.normal(0, 0.17, (count, 3)).astype(np.float32)
    shown = random.choice([0.0, COLOURS, COLOURS + 1], (count, 8, 8, 3), p=[0.998, 0.001, 0.001])
    found = first_same_image(contents, looks, vectors, shown.__getitem__).tolist()
    assert found == one_by_one(contents, looks, vectors, shown)
    assert len(set(found)) not in (1, count)  # else the test would be vacuous
    # The leaders of a part are all that is needed of it.
    part = count // 2
    leaders = [row for row in range(part) if found[row] == row]
    rows = np.array([*leaders, *range(part, count)])
    continued = first_same_image(
        contents[rows], looks[rows], vectors[rows], lambda position: shown[rows[position]], len(leaders)
    )
    assert rows[continued].tolist() == [found[row] for row in rows]


def test_groups_do_not_grow_along_chains():
    """An image that resembles a near-duplicate, but not the best hit, is a hit by itself."""
    looks = np.array([0, (1 << BITS) - 1, (1 << 2 * BITS) - 1], np.uint64)
    assert first_same_image(np.arange(3), looks, np.ones((3, 2), np.float32), plain).tolist() == [0, 0, 2]


def test_texts_are_the_same_whatever_their_case_and_punctuation():
    texts = [
        "Two dogs, running.",
        "two  dogs running",
        "TWO DOGS — running!",
        "two dog running",
        "?",
        "!",
        "straße",
        "STRASSE",
    ]
    words = [plain_words(text) for text in texts]
    assert [words.index(word) for word in words] == [0, 0, 0, 3, 4, 5, 6, 6]
    assert plain_words("कि") != plain_words("का")  # vowel signs are not punctuation


def test_frames_of_one_scene_of_a_video_are_the_same_whatever_their_hashes():
    close = SCENE_COSINE + 0.01
    vectors = np.array([[1, 0], [close, (1 - close**2) ** 0.5], [0, 1], [1, 0.01]], np.float32)
    looks = np.array([0, 2**40 - 1, 2**50, 2**33 - 7], np.uint64)
    shown = [np.full((8, 8, 3), 99.0 * number, np.float32) for number in range(4)]

    def first(videos):
        found = first_same_image(np.arange(4), looks, vectors, shown.__getitem__, videos=np.array(videos))
        return found.tolist()

    assert first([1, 1, 1, 1]) == [0, 0, 2, 0]
    assert first([1, 2, 1, 2]) == [0, 1, 2, 1]
    assert first([0, 0, 0, 0]) == [0, 1, 2, 3]
    assert first([1, 1, 1, 0]) == [0, 0, 2, 3]
