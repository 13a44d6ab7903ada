"""The two notations of Flickr30K Entities: sentences whose phrases are marked, and boxes in XML.

A marked phrase is `[/EN#283585/people A group of people]`: the chain of the entity, one or more kinds, the phrase.
Chain 0 is for what cannot be seen. In the XML, boxes are in whole pixels counted from 1, both ends included.
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
_WITH_LINE = ("object", "bndbox")  # elements whose line number is kept for problems
_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass
class Annotation:
    """The content of an XML file: one box per chain, all chains in the file, and problems with their lines."""

    boxes: list[Box] = field(default_factory=list)
    chains: set[str] = field(default_factory=set)
    problems: list[tuple[int, str]] = field(default_factory=list)


def read_sentence(line: str) -> tuple[str, list[Phrase]]:
    """A sentence without its markup, and its phrases that name something visible."""
    # Splitting gives the text before the first phrase, then chain, kinds, phrase and the text behind it, in turn.
    between, *marked = _PHRASE.split(" ".join(line.split()))
    parts, phrases = [between], []
    for chain, kinds, phrase, between in zip(*(marked[i::4] for i in range(4)), strict=True):
        parts += (phrase, between)
        if chain != _NOT_VISUAL:
            phrases.append(Phrase(phrase.strip(), chain, tuple(kinds[1:].split("/"))))
    text = "".join(parts)
    if "[" in text or "]" in text:
        raise DataError("broken markup; a phrase looks like [/EN#12/people A man], and none lies inside another")
    return " ".join(text.split()), phrases


def read_boxes(content: bytes) -> Annotation:
    """The boxes in an XML file, relative to the photo; several boxes of one chain become the one around them.

    Boxes are clipped to the photo. A file that cannot be read at all raises a DataError.
    """
    root = _parse(content)
    width, height = (_number(root, f"size/{side}") for side in ("width", "height"))
    if not (width > 0 and height > 0):  # nor if one is not a number
        raise DataError("no size of the photo, or not above zero; its boxes are unknown")
    annotation, around = Annotation(), dict[str, tuple[float, ...]]()
    for item in root.findall("object"):
        chains = [name.text.strip() for name in item.findall("name") if name.text]
        annotation.chains.update(chains)
        boxes = item.findall("bndbox")
        if not boxes and not any(item.findtext(flag, "").strip() == "1" for flag in ("nobndbox", "scene")):
            annotation.problems.append((_line(item), f"chain {', '.join(chains)} has no box, and no flag says so"))
        for box in boxes:
            if (sides := _relative_box(box, width, height, annotation)) is None:
                continue
            for chain in chains:
                known = around.get(chain, sides)
                around[chain] = (*map(min, known[:2], sides[:2]), *map(max, known[2:], sides[2:]))
    annotation.boxes = [Box(chain, *sides) for chain, sides in around.items()]
    return annotation


def _relative_box(box: Element, width: float, height: float, annotation: Annotation) -> tuple[float, ...] | None:
    """The sides of a box, relative to the photo; None if it has no area. Adds problems to the annotation."""
    left, top, right, bottom = sides = [_number(box, side) for side in _SIDES]
    if any(map(math.isnan, sides)):
        annotation.problems.append((_line(box), "a box without four numbers; it is left out"))
        return None
    shown = "box " + " ".join(f"{side:g}" for side in sides)
    beyond = left < 1 or top < 1 or right > width or bottom > height
    left, top, right, bottom = max(left, 1), max(top, 1), min(right, width), min(bottom, height)
    photo = f"the photo of {width:g} x {height:g}"
    if right < left or bottom < top:  # both ends are included: from 5 to 5 is one pixel
        where = f"no area in {photo}" if beyond else "no area"
        annotation.problems.append((_line(box), f"{shown} has {where}; it is left out"))
        return None
    if beyond:
        annotation.problems.append((_line(box), f"{shown} goes beyond {photo}; it is clipped"))
    return (left - 1) / width, (top - 1) / height, right / width, bottom / height


def _parse(content: bytes) -> Element:
    """The tree of an XML file; objects and boxes have their line. A document type, and so XML entities, are refused."""
    builder, parser = TreeBuilder(), expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise DataError("a document type declaration in the XML; annotations have none; remove it")

    def start(tag: str, _: object) -> None:
        builder.start(tag, {"line": str(parser.CurrentLineNumber)} if tag in _WITH_LINE else {})

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
    """The finite number in an element below this one; NaN if there is none."""
    try:
        number = float(element.findtext(path, ""))
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _line(element: Element) -> int:
    return int(element.attrib["line"])
