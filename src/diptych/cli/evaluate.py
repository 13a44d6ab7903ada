"""`diptych evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.console import bar, note, out, say_skipped
from diptych.cli.options import Device, Features, Split, Workers
from diptych.errors import ScoreError
from diptych.files import write_json

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.evaluation.protocols import Result
    from diptych.models.encoded import Encoded


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
    """
    from diptych.data.open import open_corpus
    from diptych.evaluation.runs import evaluate_encoded, evaluate_matrix
    from diptych.machine import cores, keep_freed_memory
    from diptych.models.trained import Trained
    from diptych.report.negatives import hard_negatives
    from diptych.report.run import write_report

    keep_freed_memory()
    if into is not None and into.is_dir():
        raise ScoreError(f"{into}: is a folder; name a file to write")
    data = sources[-1]
    sources, corpus = _sort(sources, split)
    if corpus is not None and all(source.endswith(".safetensors") for source in sources):
        raise ScoreError("files of encodings hold their groups already; leave the corpus out")
    threads = cores() if workers is None else workers
    if any(source.endswith(".npy") for source in sources):
        if len(sources) > 1 or corpus is None or report:
            raise ScoreError("a score matrix is measured alone, with the corpus it was made from: SCORES.npy DATA")
        matched = corpus.matched()
        result = evaluate_matrix(
            Path(sources[0]), matched.image_groups, matched.text_groups, folds=folds, gallery=gallery
        )
    else:
        encoded = [_encode(source, corpus, device, threads, features) for source in sources]
        result = evaluate_encoded(encoded, folds=folds, gallery=gallery)
        if report:
            if len(encoded) > 1 or encoded[0].corpus is None or folds > 1 or gallery is not None:
                raise ScoreError("--report needs one run and a corpus, without --folds and --gallery")
            run = Path(sources[0])
            negatives = hard_negatives(run, Trained.open(run, device, stores=features), open_corpus(data))
            note(f"wrote {write_report(run, encoded[0], result, split, negatives=negatives)}")
    _print(result, as_json, into)


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


def _encode(source: str, corpus: Corpus | None, device: str, workers: int, features: Path) -> Encoded:
    from diptych.models.encoded import Encoded
    from diptych.models.trained import Trained

    if source.endswith(".safetensors"):
        return Encoded.load(Path(source))
    if corpus is None:
        raise ScoreError(f"{source}: name the corpus to measure the run on as the last argument")
    trained = Trained.open(source, device, stores=features)
    with bar(f"encoding {Path(source).name}") as watch:
        encoded = trained.encode(corpus, workers, watch)
    say_skipped(encoded.skipped)
    return encoded


def _print(result: Result, as_json: bool, into: Path | None) -> None:
    if as_json:
        out.print_json(json.dumps(result.to_json()))
    else:
        out.print(result.render())
    if into is not None:
        write_json(into, result.to_json())
        note(f"wrote {into}")
