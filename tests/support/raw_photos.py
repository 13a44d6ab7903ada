"""RAW photos made of nothing but their structure: directories, an embedded JPEG, and noise as the sensor's data."""

import io
import struct

import numpy as np
from PIL import Image

CANON_TAGS = bytes.fromhex("85c0b687820f11e08111f4ce462b6a48")
CANON_PREVIEW = bytes.fromhex("eaf42b5e1c984b88b9fbb7dc406e4d16")
SENSOR = np.random.default_rng(0).integers(0, 254, 5000, np.uint8).tobytes()  # never 0xff, with which a JPEG begins


def jpeg(width=800, height=600, colour="red", **options):
    """A JPEG whose left half has a colour and whose right half is white."""
    image = Image.new("RGB", (width, height), "white")
    image.paste(colour, (0, 0, width // 2, height))
    content = io.BytesIO()
    image.save(content, "JPEG", quality=95, **options)
    return content.getvalue()


class Tiff:
    """Writes a TIFF structure; `add` returns the place of some bytes, and `directory` that of a directory."""

    def __init__(self, magic=b"II*\0", header=8):
        self.order = ">" if magic[:2] == b"MM" else "<"
        self.content = bytearray(magic.ljust(header, b"\0"))

    def add(self, content):
        place = len(self.content)
        self.content += content + b"\0" * (len(content) % 2)
        return place

    def directory(self, tags, following=0):
        """A directory of texts, numbers, lists of numbers, and lists of pairs, which are fractions."""
        fields = []
        for tag, value in sorted(tags.items()):
            kind, count, content = self.encoded(value)
            if len(content) > 4:
                content = struct.pack(self.order + "I", self.add(content))
            fields.append(struct.pack(self.order + "HHI", tag, kind, count) + content.ljust(4, b"\0"))
        body = struct.pack(self.order + "H", len(fields)) + b"".join(fields) + struct.pack(self.order + "I", following)
        return self.add(body)

    def encoded(self, value):
        if isinstance(value, bytes):
            return 7, len(value), value
        if isinstance(value, str):
            return 2, len(value) + 1, value.encode() + b"\0"
        values = value if isinstance(value, list) else [value]
        if isinstance(values[0], tuple):
            return 5, len(values), b"".join(struct.pack(self.order + "II", *pair) for pair in values)
        return 4, len(values), struct.pack(f"{self.order}{len(values)}I", *values)

    def finish(self, first):
        self.content[4:8] = struct.pack(self.order + "I", first)
        return bytes(self.content)


def camera_tags(tiff, make="NIKON CORPORATION", model="NIKON D750", orientation=1, taken="2026:11:16 10:20:30"):
    """The tags of a main directory that name camera, orientation, day and place."""
    gps = tiff.directory({1: "N", 2: [(48, 1), (8, 1), (15, 1)], 3: "E", 4: [(11, 1), (34, 1), (30, 1)]})
    exif = tiff.directory({0x9003: taken})
    return {0x010F: make, 0x0110: model, 0x0112: orientation, 0x8769: exif, 0x8825: gps}


def nef(preview, orientation=1, magic=b"II*\0", **camera):
    """As Nikon, Sony, Samsung and others: previews and the sensor's data in directories below the first."""
    tiff = Tiff(magic)
    at, sensor = tiff.add(preview), tiff.add(SENSOR)
    small = tiff.add(jpeg(160, 120, "black"))
    below = [
        tiff.directory({0x0103: 6, 0x0201: at, 0x0202: len(preview)}),
        tiff.directory({0x0103: 34713, 0x0106: 32803, 0x0111: sensor, 0x0117: len(SENSOR)}),
    ]
    thumbnail = tiff.directory({0x0103: 6, 0x0201: small, 0x0202: 100})
    main = camera_tags(tiff, orientation=orientation, **camera) | {0x0106: 2, 0x0103: 1, 0x014A: below}
    return tiff.finish(tiff.directory(main, following=thumbnail))


def cr2(preview, orientation=1):
    """As Canon: the preview is the only strip of the first directory, the sensor's data a lossless JPEG."""
    tiff = Tiff(b"II*\0", header=16)
    tiff.content[8:12] = b"CR\2\0"
    at = tiff.add(preview)
    lossless = b"\xff\xd8\xff\xc3\0\x0b\x0e\x20\0\x20\0\1\1\x11\0" + SENSOR
    sensor = tiff.add(lossless)
    raw = tiff.directory({0x0103: 6, 0x0111: sensor, 0x0117: len(lossless)})
    main = camera_tags(tiff, "Canon", "Canon EOS R", orientation)
    return tiff.finish(tiff.directory(main | {0x0103: 6, 0x0111: at, 0x0117: len(preview)}, following=raw))


def dng(preview, orientation=1):
    """As Adobe and phones: a JPEG strip in a directory below, and a version."""
    tiff = Tiff(b"MM\0*")
    at = tiff.add(preview)
    below = tiff.directory({0x0103: 7, 0x0106: 6, 0x0111: at, 0x0117: len(preview)})
    main = camera_tags(tiff, "Apple", "iPhone 15 Pro", orientation)
    return tiff.finish(tiff.directory(main | {0xC612: b"\1\4\0\0", 0x0106: 34892, 0x014A: below}))


def rw2(preview, orientation=1):
    """As Panasonic: the preview is the value of a tag."""
    tiff = Tiff(b"IIU\0")
    return tiff.finish(tiff.directory(camera_tags(tiff, "Panasonic", "DC-G9", orientation) | {0x002E: preview}))


def orf(preview, orientation=1):
    """As Olympus: only the maker's note, which is not read, says where the preview is."""
    tiff = Tiff(b"IIRO")
    tiff.add(SENSOR)
    tiff.add(preview)
    return tiff.finish(tiff.directory(camera_tags(tiff, "OLYMPUS CORPORATION", "E-M1MarkIII", orientation)))


def raf(preview, orientation=1):
    """As Fujifilm: the header names the place of a JPEG with EXIF."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010F], exif[0x0110] = orientation, "FUJIFILM", "X-T3"
    exif.get_ifd(0x8769)[0x9003] = "2026:11:16 10:20:30"
    exif.get_ifd(0x8825).update({1: "N", 2: (48.0, 8.0, 15.0), 3: "E", 4: (11.0, 34.0, 30.0)})
    block = b"Exif\0\0" + exif.tobytes().removeprefix(b"Exif\0\0")
    preview = preview[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + preview[2:]
    header = b"FUJIFILMCCD-RAW 0201FF389501".ljust(84, b"\0") + struct.pack(">II", 160, len(preview))
    return header.ljust(160, b"\0") + preview + SENSOR


def box(kind, content):
    return struct.pack(">I", 8 + len(content)) + kind + content


def cr3(preview, orientation=1, full=None):
    """As newer Canons: an ISO media file with a preview in a box of its own, and perhaps the full JPEG as a track."""
    tags = []
    for number in (1, 2, 4):
        tiff = Tiff()
        main = camera_tags(tiff, "Canon", "Canon EOS R6", orientation)
        place = {1: None, 2: main[0x8769], 4: main[0x8825]}[number]
        if place is None:
            place = tiff.directory({tag: main[tag] for tag in (0x010F, 0x0110, 0x0112)})
        tags.append(box(b"CMT%d" % number, tiff.finish(place)))
    small = jpeg(160, 120, "black")
    tags.append(box(b"THMB", struct.pack(">IHHIHH", 0, 160, 120, len(small), 1, 0) + small))
    uuid = box(b"uuid", CANON_TAGS + box(b"CNCV", b"CanonCR3_001") + b"".join(tags))
    shown = box(b"PRVW", struct.pack(">IHHHHI", 0, 1, 1620, 1080, 1, len(preview)) + preview)
    shown = box(b"uuid", CANON_PREVIEW + struct.pack(">II", 0, 1) + shown)
    ftyp = box(b"ftyp", b"crx \0\0\0\1crx isom")

    def moov(at):
        sizes = box(b"stsz", struct.pack(">III", 0, len(full or b""), 1))
        table = box(b"stbl", sizes + box(b"co64", struct.pack(">IIQ", 0, 1, at)))
        return box(b"moov", uuid + box(b"trak", box(b"mdia", box(b"minf", table))))

    before = ftyp + moov(0) + shown
    return ftyp + moov(len(before) + 8) + shown + box(b"mdat", (full or b"") + SENSOR)


MAKERS = {"nef": nef, "cr2": cr2, "dng": dng, "rw2": rw2, "orf": orf, "raf": raf, "cr3": cr3}
