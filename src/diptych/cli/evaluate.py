"""`diptych evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.console import print_note, stdout
from diptych.cli.measuring import (
    SHARE,
    Asked,
    EncodeOptions,
    Measured,
    Modality,
    PhraseSource,
    Shifts,
    Statistics,
    measure,
)
from diptych.cli.options import Device, Features, Split, Workers
from diptych.errors import ScoreError
from diptych.files import write_json

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus


def command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE... [DATA]",
            help="Runs, files of encodings (.safetensors) or a score matrix (.npy), then the corpus. "
            "Several are averaged. Files of encodings need no corpus.",
        ),
    ],
    split: Split = "test",
    folds: Annotated[int, typer.Option(min=1, help="Mean over this many consecutive galleries.")] = 1,
    gallery: Annotated[int | None, typer.Option(min=1, help="Only the first images, with their texts.")] = None,
    rerank: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Score only the first N answers that --with lists; 'all' adds all pairs."),
    ] = None,
    lister: Annotated[
        str | None, typer.Option("--with", metavar="RUN", help="The embedding run that lists for --rerank.")
    ] = None,
    cross: Annotated[bool, typer.Option("--cross", help="Also the cross-retrieval ranks of the pairs.")] = False,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Also how far the scores of right and wrong pairs lie apart.")
    ] = False,
    average_precision: Annotated[
        bool,
        typer.Option("--map", help="Also mAP; without it only where a text has several right images."),
    ] = False,
    within: Annotated[
        Modality | None, typer.Option(help="Only among themselves: other texts, or images, of the group.")
    ] = None,
    phrases: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Join the scores of a run trained on phrases, by the texts' phrases."),
    ] = None,
    share: Annotated[
        float | None, typer.Option(min=0, max=1, help="The share of --phrases in the score.", show_default=str(SHARE))
    ] = None,
    phrases_from: Annotated[
        PhraseSource | None,
        typer.Option(help="Who says what the phrases of a text are.", show_default="annotation"),
    ] = None,
    batch_statistics: Annotated[
        Statistics,
        typer.Option(help="Batch norm by training's running statistics, or (test) by those of the measured split."),
    ] = "running",
    shifts: Annotated[
        Shifts | None,
        typer.Option(help="Of a text CNN: each text at one place, or the mean over all.", show_default="as trained"),
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Also write RUN/report.html on this split.")] = False,
    into: Annotated[Path | None, typer.Option(help="Also write the result as JSON to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    features: Features = Path("features"),
    device: Device = "auto",
    workers: Workers = None,
) -> None:
    """Measure recall in both directions, with 95% intervals.

    Examples:

        diptych evaluate runs/first scenes

        diptych evaluate runs/a runs/b data/coco --folds 5

        diptych evaluate test.safetensors --json

        diptych evaluate scores.npy scenes

        diptych evaluate runs/scan data/flickr8k --rerank 10,20,50,100 --with runs/vsepp

        diptych evaluate runs/two-branch data/flickr30k --within texts

        diptych evaluate runs/two-branch data/entities --phrases runs/phrases --share 0.2
    """
    from diptych.machine import available_cores, keep_freed_memory

    keep_freed_memory()
    if into is not None and into.is_dir():
        raise ScoreError(f"{into}: is a folder; name a file to write")
    lengths = _lengths(rerank)
    if (rerank is None) != (lister is None):
        raise ScoreError("--rerank N needs the run that lists, --with RUN, and the other way round; name both")
    if phrases is None and (share is not None or phrases_from is not None):
        raise ScoreError("--share and --phrases-from need the run that scores phrases; name it with --phrases RUN")
    asked = Asked(
        data=sources[-1],
        split=split,
        folds=folds,
        gallery=gallery,
        lengths=lengths,
        lister=lister,
        cross=cross,
        overlap=overlap,
        average_precision=average_precision,
        within=within,
        phrases=phrases,
        share=SHARE if share is None else share,
        phrases_from=phrases_from or "annotation",
        batch_statistics=batch_statistics,
        report=report,
    )
    sources, corpus = _sort(sources, split)
    if corpus is not None and all(source.endswith(".safetensors") for source in [*sources, lister or sources[0]]):
        raise ScoreError("files of encodings hold their groups already; leave the corpus out")
    means = EncodeOptions(corpus, device, available_cores() if workers is None else workers, features, shifts)
    _print(measure(sources, asked, means), as_json, into)


def _lengths(rerank: str | None) -> list[int | None]:
    """The lengths of the lists that --rerank names; none for `all`."""
    words = [] if rerank is None else [word.strip() for word in rerank.split(",")]
    for word in words:
        if word != "all" and not (word.isascii() and word.isdigit() and int(word) > 0):
            raise ScoreError(f"--rerank {rerank}: {word!r} is no length; take 1 or more, or all, such as 10,20,50,all")
    if words and set(words) == {"all"}:
        raise ScoreError("--rerank all: needs a length to compare all pairs with, such as 20,all")
    return [None if word == "all" else int(word) for word in words]


def _sort(sources: list[str], split: str) -> tuple[list[str], Corpus | None]:
    """What to measure, and the corpus, which is the last argument unless that is a file of encodings."""
    from diptych.data.open import open_corpus

    if sources[-1].endswith(".safetensors"):
        return sources, None
    if len(sources) == 1:
        raise ScoreError(
            f"{sources[0]}: name the corpus to measure it on, such as `diptych evaluate {sources[0]} scenes`"
        )
    return sources[:-1], open_corpus(sources[-1]).split(split)


def _print(measured: Measured, as_json: bool, into: Path | None) -> None:
    if as_json:
        stdout.print_json(json.dumps(measured.told))
    else:
        for table in measured.tables:
            stdout.print(table)
    if into is not None:
        write_json(into, measured.told)
        print_note(f"wrote {into}")
