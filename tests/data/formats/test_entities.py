from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from diptych.data.address import Address
from diptych.data.corpus import Box, Corpus, Phrase
from diptych.data.formats.entities import read
from diptych.data.images import PictureFile
from diptych.data.phrases import find_mentions
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


DOG = (xml(thing(7, box=(11, 6, 50, 30))), "[/EN#7/animals A dog] runs .\n")


def data(
    folder: Path,
    photos: dict[str, tuple[str | bytes | None, str | bytes | None]],
    packed: bool = True,
    images: str = "images",
    **splits: str,
) -> Path:
    """A folder of annotations: the XML and the sentences of each id, and a photo of it."""
    (folder / images).mkdir(parents=True, exist_ok=True)
    files = {}
    for identity, (boxes, sentences) in photos.items():
        files |= {f"Annotations/{identity}.xml": boxes, f"Sentences/{identity}.txt": sentences}
        (folder / images / f"{identity}.jpg").touch()
    contents = {name: text if isinstance(text, bytes) else text.encode() for name, text in files.items() if text}
    for split, ids in (splits or {"train": "\n".join(photos)}).items():
        (folder / f"{split}.txt").write_text(ids, encoding="utf-8")
    if packed:
        with zipfile.ZipFile(folder / "annotations.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in contents.items():
                archive.writestr(name, content)
    else:
        for name, content in contents.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


def problems_of(corpus: Corpus, folder: Path) -> list[str]:
    return [str(problem).removeprefix(f"{folder}/") for problem in corpus.problems]


@pytest.mark.parametrize("packed", [True, False])
def test_photos_sentences_phrases_and_boxes(tmp_path: Path, packed: bool) -> None:
    boxes = xml(
        thing(7, 8, box=(1, 1, 10, 10)),
        thing(7, box=(91, 41, 100, 50)),
        thing(9, nobndbox=1, scene=0),
        thing(10, nobndbox=0, scene=1),
    )
    sentences = (
        "[/EN#7/people Two men] and [/EN#8/people/other one  of them] , in [/EN#9/scene a park] .\n"
        "[/EN#0/notvisual It] is [/EN#10/scene a day] , [/EN#7/people They] wave.\n\n"
    )
    folder = data(tmp_path, {"1": (boxes, sentences), "2": DOG, "3": DOG}, packed, train="2\n", val="\n1\r\n")
    corpus = read(Address(folder))
    assert corpus.problems == ()
    assert list(corpus.image_ids) == ["2.jpg", "1.jpg"]  # nobody lists 3
    assert corpus.pictures == (PictureFile(folder / "images/2.jpg"), PictureFile(folder / "images/1.jpg"))
    assert corpus.image_splits.tolist() == ["train", "val"]
    assert corpus.text_splits.tolist() == ["train", "val", "val"]
    assert corpus.text_groups.tolist() == [0, 1, 1]
    assert corpus.image_groups.tolist() == [0, 1]
    assert list(corpus.texts) == ["A dog runs .", "Two men and one of them , in a park .", "It is a day , They wave."]
    assert corpus.phrases == [
        [Phrase("A dog", "7", ("animals",))],
        [
            Phrase("Two men", "7", ("people",)),
            Phrase("one of them", "8", ("people", "other")),
            Phrase("a park", "9", ("scene",)),
        ],
        [Phrase("a day", "10", ("scene",)), Phrase("They", "7", ("people",))],
    ]
    assert corpus.boxes == [
        [Box("7", 0.1, 0.1, 0.5, 0.6)],
        [Box("7", 0.0, 0.0, 1.0, 1.0), Box("8", 0.0, 0.0, 0.1, 0.2)],
    ]
    assert list(find_mentions(corpus).phrases) == ["A dog", "Two men", "one of them", "They"]


def test_photos_are_found_by_their_id_in_the_usual_folders_or_in_a_named_one(tmp_path: Path) -> None:
    for place in ("images", "flickr30k-images", "."):
        folder = data(tmp_path / place.strip("."), {"12": DOG}, images=place)
        assert read(Address(folder)).pictures == (PictureFile(folder / place / "12.jpg"),)
    elsewhere = tmp_path / "photos"
    elsewhere.mkdir()
    for name in ("12_ab.jpg", "12_ab.txt", "12345_ab.jpg", "122.jpg"):
        (elsewhere / name).touch()
    folder = data(tmp_path / "more", {"12": DOG})
    corpus = read(Address(folder, str(elsewhere)))
    assert (list(corpus.image_ids), corpus.pictures) == (["12_ab.jpg"], (PictureFile(elsewhere / "12_ab.jpg"),))
    (elsewhere / "12_cd.png").touch()
    with pytest.raises(DataError, match=r"train\.txt:1: the photo of id '12' could be any of 12_ab\.jpg, 12_cd\.png"):
        read(Address(folder, str(elsewhere)))
    (elsewhere / "12.png").touch()
    assert list(read(Address(folder, str(elsewhere))).image_ids) == ["12.png"]  # the whole name comes first
    with pytest.raises(DataError, match="no such folder of images"):
        read(Address(folder, str(tmp_path / "gone")))


def test_ids_without_photo_or_annotation_are_named_and_left_out(tmp_path: Path) -> None:
    photos: dict[str, tuple[str | None, str | None]] = {
        "1": DOG,
        "2": (DOG[0], None),
        "3": (None, DOG[1]),
        "4": DOG,
        "5": DOG,
    }
    folder = data(tmp_path, photos, train="1\n2\n3\n4\n../1\n1\n", test="1\n\n5\n")
    (folder / "images/4.jpg").unlink()
    corpus = read(Address(folder))
    assert list(corpus.image_ids) == ["1.jpg", "3.jpg", "5.jpg"]
    assert corpus.boxes is not None
    assert [len(boxes) for boxes in corpus.boxes] == [1, 0, 1]
    zipped, looked = folder / "annotations.zip", f"{folder / 'images'} or {folder}"
    assert problems_of(corpus, folder) == [
        f"train.txt:2: no Sentences/2.txt in {zipped}",
        f"train.txt:3: no Annotations/3.xml in {zipped}; the photo has no boxes",
        f"train.txt:4: no photo of id '4' in {looked}; name their folder after a #: data#photos",
        f"train.txt:5: no photo of id '../1' in {looked}; name their folder after a #: data#photos",
        f"train.txt:6: id '1' is already at {folder / 'train.txt'}:1",
        f"test.txt:1: id '1' is already at {folder / 'train.txt'}:1",
    ]


BILLION = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;">]><annotation>&y;</annotation>'


@pytest.mark.parametrize(
    ("boxes", "kept", "messages"),
    [
        ("<annotation>\n<object>", [], [": broken XML (no element found in line 2); the photo has no boxes"]),
        ("boxes", [], [": broken XML (syntax error in line 1); the photo has no boxes"]),
        (b'<?xml version="1.0" encoding="none"?><a/>', [], [": XML in an unknown encoding; save it as UTF-8; the"]),
        (BILLION, [], [": a document type declaration in the XML; annotations have none; remove it; the"]),
        (xml(thing(7, box=(1, 1, 2, 2)), size=""), [], [": no size of the photo, or not above zero; its boxes"]),
        (xml(size=SIZE.replace("50", "0")), [], [": no size of the photo, or not above zero; its boxes"]),
        (xml(size=SIZE.replace("50", "1e999")), [], [": no size of the photo, or not above zero; its boxes"]),
        (
            xml(thing(7, box=(0, 1, 120, 50))),
            [Box("7", 0.0, 0.0, 1.0, 1.0)],
            [":3: box 0 1 120 50 goes beyond the photo of 100 x 50; it is clipped"],
        ),
        (
            xml(thing(7, box=(101, 1, 120, 50))),
            [],
            [":3: box 101 1 120 50 has no area in the photo of 100 x 50; it is left out"],
        ),
        (
            xml(thing(7, box=(9, 9, 8, 20)), thing(7, box=(9, 5, 9, 5))),
            [Box("7", 0.08, 0.08, 0.09, 0.1)],
            [":3: box 9 9 8 20 has no area; it is left out"],
        ),
        (xml(thing(7, box=(1, 2, 3))), [], [":3: a box without four numbers; it is left out"]),
        (xml(thing(7, box=(1, 2, 3, "many"))), [], [":3: a box without four numbers; it is left out"]),
        (xml(thing(7)), [], [":3: chain 7 has no box, and no flag says so"]),
        (xml(thing(7, nobndbox=0, scene=0)), [], [":3: chain 7 has no box, and no flag says so"]),
        (xml(), [], ["TEXT:1: chain 7 is not in the XML"]),
        (b"<annotation>" + b" " * 2**20 + b"</annotation>", [], [": more than 1,048,576 bytes; no annotation is that"]),
    ],
    ids=lambda value: None,
)
def test_boxes_that_cannot_be_used_are_named_and_cost_no_sentence(
    tmp_path: Path, boxes: str | bytes, kept: list[Box], messages: list[str]
) -> None:
    sentences = "[/EN#7/animals A dog] runs .\n[/EN#7/animals It] barks .\n"
    folder = data(tmp_path, {"1": (boxes, sentences), "2": DOG})
    corpus = read(Address(folder))
    assert corpus.boxes is not None
    assert list(corpus.boxes[0]) == kept
    assert list(corpus.texts) == ["A dog runs .", "It barks .", "A dog runs ."]
    assert corpus.phrases is not None
    assert [phrase.text for phrase in corpus.phrases[0]] == ["A dog"]
    found = problems_of(corpus, folder)
    assert len(found) == len(messages)
    for problem, message in zip(found, messages, strict=True):
        file = "Sentences/1.txt" if message.startswith("TEXT") else "Annotations/1.xml"
        assert problem.startswith(f"annotations.zip/{file}{message.removeprefix('TEXT')}")


@pytest.mark.parametrize(
    "broken",
    [
        "[/EN#7/animals A dog runs .",
        "/EN#7/animals A dog] runs .",
        "[/EN#7 A dog] runs .",
        "[/EN#x/animals A dog] runs .",
        "[/EN#7/animals] runs .",
        "[/EN#7/animals  ] runs .",
        "[/EN#7/animals A [/EN#8/people man] 's dog] runs .",
        "[A dog] runs .",
        "[" * 10_000,
    ],
    ids=range(9),
)
def test_a_sentence_with_broken_markup_is_left_out_alone(tmp_path: Path, broken: str) -> None:
    folder = data(tmp_path, {"1": (DOG[0], f"{DOG[1]}{broken}\n[/EN#7/animals It] barks .")})
    corpus = read(Address(folder))
    assert list(corpus.texts) == ["A dog runs .", "It barks ."]
    assert corpus.phrases is not None
    assert [phrase.text for (phrase,) in corpus.phrases] == ["A dog", "It"]
    (problem,) = problems_of(corpus, folder)
    assert problem.startswith("annotations.zip/Sentences/1.txt:2: broken markup; a phrase looks like")


def test_a_sentence_that_is_not_utf_8_is_left_out_alone(tmp_path: Path) -> None:
    folder = data(tmp_path, {"1": (DOG[0], "\ufeffA café .\n".encode() + "A café .\n".encode("latin-1") + b"A bar .")})
    corpus = read(Address(folder))
    assert list(corpus.texts) == ["A café .", "A bar ."]
    assert problems_of(corpus, folder) == [
        "annotations.zip/Sentences/1.txt:2: the sentence is not valid UTF-8; write it in UTF-8"
    ]


def refused(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        read(Address(folder))
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(folder))


def test_folders_that_cannot_be_read_as_a_whole(tmp_path: Path) -> None:
    assert refused(tmp_path) == ": no annotations; put annotations.zip in it, or unpack it there"
    zipped = tmp_path / "annotations.zip"
    zipped.write_bytes(b"not a zip")
    assert refused(tmp_path) == "/annotations.zip: not a zip file, or cut short; download it again"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("Sentences/1.txt", "x")
    assert refused(tmp_path) == "/annotations.zip: no Annotations in it; Flickr30K Entities has both"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("entities/Annotations/1.xml", DOG[0])
        archive.writestr("entities/Sentences/1.txt", DOG[1])
    assert refused(tmp_path).startswith(": none of train.txt, val.txt and test.txt; list the ids")
    (tmp_path / "val.txt").write_text("1", encoding="utf-8")
    assert refused(tmp_path).startswith(": no usable image in it; first problem: ")
    (tmp_path / "1.jpg").touch()
    assert read(Address(tmp_path)).problems == ()
    content = bytearray(zipped.read_bytes())
    content[content.index(b"<annotation>") + 3] ^= 1  # stored as it is, so only the checksum can tell
    zipped.write_bytes(content)
    assert problems_of(read(Address(tmp_path)), tmp_path) == [
        "annotations.zip/Annotations/1.xml: damaged inside the zip; download it again; the photo has no boxes"
    ]
