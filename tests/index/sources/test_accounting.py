from collections import Counter

from diptych.index.sources.accounting import FileCounts
from diptych.index.sources.listing import Listing


def listing(images=3, **more):
    return Listing(files={f"{number}.jpg": (1, 1, None) for number in range(images)}, **more)


def test_every_file_is_counted_once():
    found = listing(4, text_files={"0.txt"}, skipped=2, ignored=Counter({".pdf": 5, ".mov": 7}))
    counts = FileCounts.count(found, {"0.jpg", "1.jpg", "gone.jpg"}, ["3.jpg"])
    assert (counts.indexed, counts.captions, counts.skipped, counts.waiting) == (2, 1, 3, 1)
    assert counts.found == 4 + 1 + 2 + 12
    assert counts.ignored_text() == "12: 7 .mov, 5 .pdf"
    assert FileCounts.from_json(counts.to_json()) == counts


def test_rare_kinds_are_joined():
    found = listing(0, ignored=Counter({f".{number:03}": 1 for number in range(30)}) + Counter({".pdf": 2}))
    ignored = FileCounts.count(found, ()).ignored
    assert (next(iter(ignored)), ignored["with other endings"], sum(ignored.values())) == (".pdf", 11, 32)
    assert FileCounts().ignored_text() == "0"
