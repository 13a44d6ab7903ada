"""Write the table that the starter model is trained on: photos, clip art, emoji and textbook figures with their texts.

    python build_table.py --flickr8k FLICKR8K --clipart OPENCLIPART --font NotoColorEmoji.ttf --emoji FLUENT \
        --cldr CLDR --into DATA

FLICKR8K has `images/` and `dataset_flickr8k.json`. OPENCLIPART has `png/` and `svg/` of the Open Clip Art Library, as
in Debian's packages openclipart-png and openclipart-svg. The font is that of Debian's fonts-noto-color-emoji, FLUENT
the folder `assets` of the npm package @lobehub/fluent-emoji-3d, CLDR the folder `common` of Debian's unicode-cldr-core.
`--textbook FOLDER` adds figures of textbooks, a table `captions.csv` with splits. DATA then has `captions.csv`, the
drawn emoji, and links to the other images.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import html
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from PIL import Image, ImageDraw, ImageFont

LANGUAGES = ("en", "de", "fr", "es")  # of the names of emoji

# Kinds of clip art that show no thing: icons of programs, geometric shapes, playing cards, hundreds of flags.
_SKIPPED_FOLDERS = frozenset(
    (
        "aiga-symbols",
        "buttons",
        "cards",
        "computer",
        "decorations",
        "flags",
        "led",
        "logos",
        "shapes",
        "smilies",
        "special",
    )
)
_NO_TITLE = re.compile(
    r"clipart by|various clip|aiga|svg road|icons?$|^image$|untitled|advertising|http|@|inkscape|^clip", re.I
)
_NO_KEYWORD = re.compile(
    r"architetto|rollandin|hash|unsorted|signs_and_symbols|mapsym|skewl|recreation|externalsource|clip_?art|^\d+$|png|svg",
    re.I,
)


class Row(NamedTuple):
    """One text of one image; images and texts of a group belong together."""

    image: str
    text: str
    group: str
    split: str


def _row(image: str, text: str, split: str = "train") -> Row:
    """The row of an image that is a group of its own."""
    return Row(image, text, image, split)


def flickr8k_rows(folder: Path) -> Iterator[Row]:
    """The photos of Flickr8k; restval is used for training."""
    for image in json.loads((folder / "dataset_flickr8k.json").read_text("utf-8"))["images"]:
        split = "train" if image["split"] == "restval" else image["split"]
        for sentence in image["sentences"]:
            yield _row(f"flickr8k/{image['filename']}", sentence["raw"], split)


def textbook_rows(folder: Path) -> Iterator[Row]:
    """The figures of textbooks that are for training."""
    with (folder / "captions.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["split"] == "train":
                yield _row(f"textbook/{row['image']}", row["text"])


def clipart_rows(folder: Path) -> Iterator[Row]:
    """Drawings, with what the metadata of their SVG files say: title, description and keywords."""
    pictures = [
        picture
        for picture in sorted((folder / "png").rglob("*.png"))
        if _SKIPPED_FOLDERS.isdisjoint(picture.relative_to(folder / "png").parts)
    ]
    metadata = {picture: _svg(folder, picture) for picture in pictures}
    titles = Counter(_field(svg, "title").lower() for svg in metadata.values())
    for picture, svg in metadata.items():
        for text in _clipart_texts(picture, svg, titles):
            yield _row(f"clipart/{picture.relative_to(folder / 'png')}", text)


def _clipart_texts(picture: Path, svg: str, titles: Counter[str]) -> list[str]:
    """At most three texts; a title that many drawings share is the name of a collection."""
    title, description = _field(svg, "title"), _field(svg, "description")
    keywords = [word for word in dict.fromkeys(_keywords(svg)) if not _NO_KEYWORD.search(word) and len(word) < 25]
    texts = []
    if title and not _NO_TITLE.search(title) and titles[title.lower()] <= 4:
        texts.append(title.replace("_", " ").strip())
    if 8 < len(description) < 120 and not _NO_TITLE.search(description) and description.lower() != title.lower():
        texts.append(description)
    if len(keywords) >= 2:
        texts.append(", ".join(keywords[:8]))
    elif keywords and texts:
        texts.append(f"{keywords[0]}, {picture.parent.name.replace('_', ' ')}")
    return texts


def _svg(folder: Path, picture: Path) -> str:
    file = (folder / "svg" / picture.relative_to(folder / "png")).with_suffix(".svg")
    packed = file.with_suffix(".svg.gz")
    content = gzip.decompress(packed.read_bytes()) if packed.exists() else file.read_bytes() if file.exists() else b""
    return content.decode("utf-8", "replace")


def _field(svg: str, name: str) -> str:
    found = re.search(rf"<dc:{name}>([^<]+)</dc:{name}>", svg)
    return html.unescape(found[1]).strip() if found else ""


def _keywords(svg: str) -> Iterator[str]:
    return (html.unescape(word).strip() for word in re.findall("<rdf:li>([^<]+)</rdf:li>", svg))


def emoji_rows(font: Path, others: Path, cldr: Path, into: Path) -> Iterator[Row]:
    """Emoji in two styles, a colour font and a folder of pictures, with names in several languages and keywords."""
    into.mkdir(exist_ok=True)
    names = {language: _annotations(cldr, language, "tts") for language in LANGUAGES}
    keywords = _annotations(cldr, "en", None)
    drawn = ImageFont.truetype(str(font), 109)  # the only size that the font has
    for emoji in names["en"]:
        if len(emoji.replace("\ufe0f", "")) > 2 or "\u200d" in emoji or re.search("[\U0001f3fb-\U0001f3ff]", emoji):
            continue  # variants of others: sequences and tones of skin
        picture = _draw(emoji, drawn)
        if picture is None:
            continue
        code = "-".join(f"{ord(letter):x}" for letter in emoji)
        picture.save(into / f"{code}.png")
        other = next((name for name in (f"{code}.webp", f"{code}-fe0f.webp") if (others / name).exists()), None)
        texts = [names[language].get(emoji, "") for language in LANGUAGES]
        for text in filter(None, dict.fromkeys([*texts, keywords.get(emoji, "").replace(" | ", ", ")])):
            yield Row(f"{into.name}/{code}.png", text, f"emoji {code}", "train")
            if other is not None:
                yield Row(f"fluent/{other}", text, f"emoji {code}", "train")


def _annotations(cldr: Path, language: str, kind: str | None) -> dict[str, str]:
    files = [cldr / folder / f"{language}.xml" for folder in ("annotationsDerived", "annotations")]
    entries = (entry for file in files for entry in ElementTree.parse(file).iter("annotation"))
    return {str(entry.get("cp")): str(entry.text) for entry in entries if entry.get("type") == kind}


def _draw(emoji: str, font: ImageFont.FreeTypeFont) -> Image.Image | None:
    """The emoji on a white square; None if the font has no coloured picture of it."""
    picture = Image.new("RGB", (160, 160), "white")
    shown = emoji if ord(emoji[0]) > 0x2FFF else f"{emoji}\ufe0f"
    ImageDraw.Draw(picture).text((80, 80), shown, font=font, embedded_color=True, anchor="mm")
    saturation = picture.convert("HSV").getchannel("S").histogram()
    return picture if sum(saturation[30:]) > 200 else None


def main() -> None:
    """Write the table and the links to the images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("flickr8k", "clipart", "font", "emoji", "cldr", "into"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--textbook", type=Path)
    options = parser.parse_args()
    into: Path = options.into
    into.mkdir(parents=True, exist_ok=True)
    links = {"flickr8k": options.flickr8k / "images", "clipart": options.clipart / "png", "fluent": options.emoji}
    rows = [*flickr8k_rows(options.flickr8k), *clipart_rows(options.clipart)]
    rows += emoji_rows(options.font, options.emoji, options.cldr, into / "emoji")
    if options.textbook is not None:
        links["textbook"] = options.textbook
        rows += textbook_rows(options.textbook)
    for name, folder in links.items():
        if not (into / name).exists():
            (into / name).symlink_to(folder.resolve(), target_is_directory=True)
    with (into / "captions.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        writer.writerows(rows)
    for name, count in Counter(row.image.partition("/")[0] for row in rows).items():
        images = len({row.image for row in rows if row.image.startswith(f"{name}/")})
        print(f"{name}: {images:,} images, {count:,} rows")  # noqa: T201


if __name__ == "__main__":
    main()
