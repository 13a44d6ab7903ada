"""Measure what is suggested for mistyped queries, for correct ones, and for words of other languages.

    python benchmarks/probes/spelling.py FLICKR8K [--split test] [--other val] [--languages de fr es it nl pl pt tr]

A typo is one edit at a random place of a random kind: two letters swapped, one missing, one too many, one wrong; those
that make another word of the list are left out. Words are the 800 most frequent ones of at least four letters in the
captions; sentences are captions, one of whose words is mistyped. "with captions" means that the index has the captions
of another split. The words of other languages are the most frequent 20,000 of `pip install wordfreq` (every fifth, with
at least three letters); those in the word list are counted as well.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module

from diptych.data.open import open_corpus
from diptych.text.spelling.correction import Corrector, OwnWords
from diptych.text.spelling.word_list import LETTERS, word_list

COMMON = 800  # words
TYPOS = 3  # per word
SENTENCES = 1000
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def mistype(word: str, draw: random.Random) -> str:
    """A word with one edit at a random place."""
    at, letter = draw.randrange(len(word)), draw.choice(LETTERS)
    swap = min(at, len(word) - 2)
    edits = (
        word[:swap] + word[swap + 1] + word[swap] + word[swap + 2 :],
        word[:at] + word[at + 1 :],
        word[:at] + letter + word[at:],
        word[:at] + letter + word[at + 1 :],
    )
    return draw.choice(edits)


def typos(words: Iterable[str], draw: random.Random) -> list[tuple[str, str]]:
    """Typos that are no words, each with the word that was meant."""
    drawn = [(mistype(word, draw), word) for word in words for _ in range(TYPOS)]
    return [(typo, word) for typo, word in drawn if typo not in word_list()]


def mistyped_sentences(captions: list[str], draw: random.Random) -> list[tuple[str, str]]:
    """Captions in lower case with one mistyped word of at least four letters, each with the caption."""
    pairs = []
    for caption in draw.sample(captions, min(SENTENCES, len(captions))):
        text = caption.lower()
        places = [match for match in re.finditer(r"\b[a-z]{4,}\b", text) if match[0] in word_list()]
        if not places:
            continue
        match = draw.choice(places)
        typo = mistype(match[0], draw)
        if typo not in word_list():
            pairs.append((text[: match.start()] + typo + text[match.end() :], text))
    return pairs


def mashed_keys(draw: random.Random, count: int = 500) -> list[str]:
    """Runs along the rows of a keyboard, and random letters."""
    rows = [draw.choice(ROWS) for _ in range(count)]
    runs = [(row * 2)[at : at + draw.randint(5, 8)] for row in rows for at in [draw.randrange(len(row))]]
    return runs + ["".join(draw.choices(LETTERS, k=draw.randint(5, 9))) for _ in range(count)]


def share(items: Iterable[bool]) -> str:
    """The share of those that hold."""
    flags = list(items)
    return f"{sum(flags) / len(flags):6.1%} of {len(flags):,}"


def report(name: str, corrector: Corrector, words: list[str], captions: list[str]) -> None:
    """Print the figures of one corrector."""
    draw = random.Random(1)
    singles, sentences = typos(words, draw), mistyped_sentences(captions, draw)
    read: Callable[[str], str | None] = lambda text: corrector.read(text).suggestion  # noqa: E731
    print(f"{name}: suggested for a mistyped word is the right one  {share(read(a) == b for a, b in singles)}")
    print(f"{name}: ... any word                                    {share(read(a) is not None for a, _ in singles)}")
    print(f"{name}: ... and nothing is searched for                 ", end="")
    print(share(not corrector.read(a).is_searchable for a, _ in singles))
    print(f"{name}: a mistyped sentence is restored                 {share(read(a) == b for a, b in sentences)}")
    print(f"{name}: a suggestion for a correct word                 {share(read(word) is not None for word in words)}")
    correct = [caption.lower() for caption in captions]
    print(f"{name}: a suggestion for a caption                      {share(read(a) is not None for a in correct)}")
    print(f"{name}: nothing is searched for, of captions            ", end="")
    print(share(not corrector.read(text).is_searchable for text in correct))


def report_languages(corrector: Corrector, languages: list[str]) -> None:
    """Print how often a word of another language gets a suggestion, or is not searched for."""
    wordfreq = import_module("wordfreq")

    for language in languages:
        words = [word for word in wordfreq.top_n_list(language, 20_000) if re.fullmatch(r"[^\W\d_]{3,}", word)][::5]
        readings = [corrector.read(word) for word in words]
        suggested = share(reading.suggestion is not None for reading in readings)
        print(f"{language}: suggested {suggested}, not searched {share(not one.is_searchable for one in readings)}")


def main() -> None:
    """Print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--split", default="test")
    parser.add_argument("--other", default="val", help="the split whose captions an index has")
    parser.add_argument("--languages", nargs="*", default=[])
    options = parser.parse_args()
    corpus = open_corpus(options.data)
    captions = list(corpus.split(options.split).texts)
    counts = count(captions)
    words = [word for word, _ in counts.most_common() if len(word) > 3 and word in word_list()][:COMMON]
    alone = Corrector(word_list(), own_words({}))
    report("list alone", alone, words, captions)
    report(
        "with captions", Corrector(word_list(), own_words(count(corpus.split(options.other).texts))), words, captions
    )
    mashed = [keys for keys in mashed_keys(random.Random(2)) if keys not in word_list()]
    print(f"keys at random: nothing is searched for {share(not alone.read(text).is_searchable for text in mashed)}")
    report_languages(alone, options.languages)


def count(captions: Iterable[str]) -> Counter[str]:
    """How often each word occurs."""
    return Counter(word for text in captions for word in re.findall("[a-z]+", text.lower()))


def own_words(counts: Mapping[str, int]) -> OwnWords:
    """The words of an index with these counts."""
    return OwnWords(lambda word: word in counts, lambda: counts)


if __name__ == "__main__":
    main()
