"""`diptych evaluate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.console import bar, note, out, say_skipped
from diptych.cli.options import Device, Features, Split, Workers
from diptych.errors import ScoreError
from diptych.files import write_json

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.evaluation.cross_retrieval import CrossRetrieval
    from diptych.evaluation.protocols import Result
    from diptych.evaluation.rerank import Reranking
    from diptych.models.encoded import Encoded

_CROSS_NEEDS = "--cross measures one gallery; leave --folds and --gallery out"
_REPORT_NEEDS = "--report needs one run and a corpus, without --folds and --gallery"


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
    """
    from diptych.machine import cores, keep_freed_memory

    keep_freed_memory()
    if into is not None and into.is_dir():
        raise ScoreError(f"{into}: is a folder; name a file to write")
    lengths = _lengths(rerank)
    if (rerank is None) != (lister is None):
        raise ScoreError("--rerank N needs the run that lists, --with RUN, and the other way round; name both")
    data = sources[-1]
    sources, corpus = _sort(sources, split)
    if corpus is not None and all(source.endswith(".safetensors") for source in [*sources, lister or sources[0]]):
        raise ScoreError("files of encodings hold their groups already; leave the corpus out")
    threads = cores() if workers is None else workers

    def encode(source: str) -> Encoded:
        return _encode(source, corpus, device, threads, features)

    if any(source.endswith(".npy") for source in sources):
        if len(sources) > 1 or corpus is None or report or cross or rerank:
            raise ScoreError("a score matrix is measured alone, with the corpus it was made from: SCORES.npy DATA")
        _print(_evaluate_matrix(sources[0], corpus, folds, gallery), as_json, into)
    elif lister is not None:
        if folds > 1 or gallery is not None or report or cross:
            raise ScoreError("--rerank measures one gallery; leave --folds, --gallery, --report and --cross out")
        _print(_rerank(sources, lister, lengths, encode), as_json, into)
    else:
        if report and (len(sources) > 1 or corpus is None):
            raise ScoreError(_REPORT_NEEDS)
        if (report or cross) and (folds > 1 or gallery is not None):
            raise ScoreError(_REPORT_NEEDS if report else _CROSS_NEEDS)
        measured = _Measured([encode(source) for source in sources], folds, gallery, keep=report or cross)
        if report:
            note(f"wrote {measured.report(Path(sources[0]), data, split, device, features)}")
        _print(measured.result, as_json, into, measured.cross() if cross else None)


class _Measured:
    """Encodings with their result, and their score for what goes over it again."""

    def __init__(self, encoded: list[Encoded], folds: int, gallery: int | None, keep: bool) -> None:
        from diptych.evaluation.runs import evaluate_encoded, kept_score

        self.encoded = encoded
        self.score = kept_score(encoded) if keep else None
        self.result = evaluate_encoded(encoded, folds=folds, gallery=gallery, score=self.score)

    def report(self, run: Path, data: str, split: str, device: str, features: Path) -> Path:
        from diptych.data.open import open_corpus
        from diptych.models.trained import Trained
        from diptych.report.negatives import hard_negatives
        from diptych.report.run import write_report

        negatives = hard_negatives(run, Trained.open(run, device, stores=features), open_corpus(data))
        return write_report(run, self.encoded[0], self.result, split, negatives=negatives, score=self.score)

    def cross(self) -> CrossRetrieval:
        from diptych.evaluation.cross_retrieval import cross_retrieval

        assert self.score is not None
        return cross_retrieval(self.score, self.encoded[0].image_groups, self.encoded[0].text_groups)


def _evaluate_matrix(source: str, corpus: Corpus, folds: int, gallery: int | None) -> Result:
    from diptych.evaluation.runs import evaluate_matrix

    matched = corpus.matched()
    return evaluate_matrix(Path(source), matched.image_groups, matched.text_groups, folds=folds, gallery=gallery)


def _lengths(rerank: str | None) -> list[int | None]:
    """The lengths of the lists that --rerank names; none for `all`."""
    words = [] if rerank is None else [word.strip() for word in rerank.split(",")]
    for word in words:
        if word != "all" and not (word.isascii() and word.isdigit() and int(word) > 0):
            raise ScoreError(f"--rerank {rerank}: {word!r} is no length; take 1 or more, or all, such as 10,20,50,all")
    if words and set(words) == {"all"}:
        raise ScoreError("--rerank all: needs a length to compare all pairs with, such as 20,all")
    return [None if word == "all" else int(word) for word in words]


def _rerank(sources: list[str], lister: str, lengths: list[int | None], encode: Callable[[str], Encoded]) -> Reranking:
    from diptych.evaluation.rerank import check_lists, rerank

    cheap = encode(lister)
    try:
        check_lists(cheap)
    except ScoreError as reason:
        raise ScoreError(f"{lister}: {reason}") from None
    encoded = [encode(source) for source in sources]
    tops = [length for length in lengths if length is not None]
    with bar("reranking") as watch:
        return rerank(encoded, cheap, tops, every=None in lengths, watch=watch)


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


def _print(result: Result | Reranking, as_json: bool, into: Path | None, cross: CrossRetrieval | None = None) -> None:
    told = result.to_json() | ({"cross_retrieval": cross.to_json()} if cross else {})
    if as_json:
        out.print_json(json.dumps(told))
    else:
        out.print(result.render())
        if cross:
            out.print(cross.render())
    if into is not None:
        write_json(into, told)
        note(f"wrote {into}")
