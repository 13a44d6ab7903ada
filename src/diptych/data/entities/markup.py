"""The two notations of Flickr30K Entities: sentences whose phrases are marked, and boxes in XML.

A marked phrase is `[/EN#283585/people A group of people]`: the chain of what it names, one or more kinds, the words.
Chain 0 is nothing that could be seen. In the XML, boxes are whole pixels from 1, both ends included.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from diptych.data.corpus import Box, Phrase
from diptych.errors import DataError

_PHRASE = re.compile(r"\[/EN#([0-9]+)((?:/[^\s/\[\]]+)+) ([^\[\]]*[^\[\] ][^\[\]]*)\]")
_NOT_VISUAL = "0"
_PLACED = ("object", "bndbox")  # what a problem may lie in, so that its line is kept
_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass
class Boxes:
    """What an XML file says: a box a chain, all chains that it knows, and what is wrong, with its line."""

    boxes: list[Box] = field(default_factory=list)
    chains: set[str] = field(default_factory=set)
    problems: list[tuple[int, str]] = field(default_factory=list)


def read_sentence(line: str) -> tuple[str, list[Phrase]]:
    """A sentence without its marks, and the phrases in it that can be seen."""
    between, *marked = _PHRASE.split(" ".join(line.split()))  # then chain, kinds, words and what is between, in turn
    parts, phrases = [between], []
    for chain, kinds, words, between in zip(*(marked[i::4] for i in range(4)), strict=True):
        parts += (words, between)
        if chain != _NOT_VISUAL:
            phrases.append(Phrase(words.strip(), chain, tuple(kinds[1:].split("/"))))
    text = "".join(parts)
    if "[" in text or "]" in text:
        raise DataError("broken markup; a phrase looks like [/EN#12/people A man], and none lies inside another")
    return " ".join(text.split()), phrases


def read_boxes(content: bytes) -> Boxes:
    """The boxes in an XML file, relative to the photo; several of one chain become the one around them.

    What goes beyond the photo is cut off. A file that is broken as a whole is a DataError.
    """
    root = _parsed(content)
    width, height = (_number(root, f"size/{side}") for side in ("width", "height"))
    if not (width > 0 and height > 0):  # nor if one is not a number
        raise DataError("no size of the photo, or none above zero; its boxes cannot be placed")
    found, around = Boxes(), dict[str, tuple[float, ...]]()
    for thing in root.findall("object"):
        chains = [name.text.strip() for name in thing.findall("name") if name.text]
        found.chains.update(chains)
        boxes = thing.findall("bndbox")
        if not boxes and not any(thing.findtext(flag, "").strip() == "1" for flag in ("nobndbox", "scene")):
            found.problems.append((_line(thing), f"chain {', '.join(chains)} has no box, and no flag says so"))
        for box in boxes:
            if (sides := _placed(box, width, height, found)) is None:
                continue
            for chain in chains:
                known = around.get(chain, sides)
                around[chain] = (*map(min, known[:2], sides[:2]), *map(max, known[2:], sides[2:]))
    found.boxes = [Box(chain, *sides) for chain, sides in around.items()]
    return found


def _placed(box: Element, width: float, height: float, found: Boxes) -> tuple[float, ...] | None:
    """The sides of a box, relative to the photo, or nothing without an area; what is wrong is noted."""
    left, top, right, bottom = sides = [_number(box, side) for side in _SIDES]
    if any(map(math.isnan, sides)):
        found.problems.append((_line(box), "a box without four numbers is left out"))
        return None
    shown = "box " + " ".join(f"{side:g}" for side in sides)
    beyond = left < 1 or top < 1 or right > width or bottom > height
    left, top, right, bottom = max(left, 1), max(top, 1), min(right, width), min(bottom, height)
    photo = f"the photo of {width:g} x {height:g}"
    if right < left or bottom < top:  # both ends are included: from 5 to 5 is one pixel
        where = f"no area in {photo}" if beyond else "no area"
        found.problems.append((_line(box), f"{shown} has {where} and is left out"))
        return None
    if beyond:
        found.problems.append((_line(box), f"{shown} goes beyond {photo}; it is cut there"))
    return (left - 1) / width, (top - 1) / height, right / width, bottom / height


def _parsed(content: bytes) -> Element:
    """The tree of an XML file; things and boxes know their line. Document types, and so entities, are refused."""
    builder, parser = TreeBuilder(), expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise DataError("a document type declaration in the XML; annotations have none, and it is not followed")

    def start(tag: str, _: object) -> None:
        builder.start(tag, {"line": str(parser.CurrentLineNumber)} if tag in _PLACED else {})

    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(content, True)
    except expat.ExpatError as reason:
        raise DataError(f"broken XML ({expat.ErrorString(reason.code)} in line {reason.lineno})") from None
    except (LookupError, ValueError):
        raise DataError("XML in an unknown encoding; save it as UTF-8") from None
    return builder.close()


def _number(element: Element, path: str) -> float:
    """A finite number in an element below this one, or nan."""
    try:
        number = float(element.findtext(path, ""))
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _line(element: Element) -> int:
    return int(element.attrib["line"])
