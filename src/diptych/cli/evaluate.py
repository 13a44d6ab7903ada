"""`diptych evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.console import print_note, stdout
from diptych.cli.evaluation_options import (
    DEFAULT_SHARE,
    BatchStatistics,
    EvaluationOptions,
    Modality,
    PhraseSource,
    TextShifts,
    parse_rerank_depths,
)
from diptych.cli.open_data import split_rule
from diptych.cli.options import (
    AllowCode,
    Device,
    Devices,
    Download,
    Features,
    NoStarter,
    Split,
    TestShare,
    ValShare,
    Workers,
    thread_count,
)
from diptych.errors import ScoreError
from diptych.files import write_json

WITHOUT_INTO = "with --into FILE, the same command continues with the scores that were compared"


def command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE... [DATA]",
            help="Runs or pretrained pairs, files of encodings (.safetensors) or one score matrix (.npy), followed by "
            "the corpus. "
            "The scores of several sources are averaged. Files of encodings need no corpus.",
        ),
    ],
    split: Split = "test",
    val: ValShare = None,
    test: TestShare = None,
    folds: Annotated[int, typer.Option(min=1, help="Average over this many consecutive galleries.")] = 1,
    gallery: Annotated[int | None, typer.Option(min=1, help="Only the first N images, with their texts.")] = None,
    rerank: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Re-rank the first N answers of --with; 'all' adds a row for all pairs."),
    ] = None,
    retriever: Annotated[
        str | None,
        typer.Option("--with", metavar="RUN", help="The embedding run that retrieves the answers for --rerank."),
    ] = None,
    cross: Annotated[
        bool, typer.Option("--cross", help="Also measure the cross-retrieval ranks of the pairs.")
    ] = False,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Also measure how far the scores of positive and negative pairs overlap.")
    ] = False,
    average_precision: Annotated[
        bool,
        typer.Option("--map", help="Measure mAP even if every text has only one correct image."),
    ] = False,
    within: Annotated[
        Modality | None, typer.Option(help="Retrieve texts by texts, or images by images, of the same group.")
    ] = None,
    phrases: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Add the scores of a run trained on phrases, for the phrases of each text."),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="The weight of --phrases in the score.", show_default=str(DEFAULT_SHARE)),
    ] = None,
    phrases_from: Annotated[
        PhraseSource | None,
        typer.Option(
            help="Take the phrases from the annotation, or find them with a chunker.", show_default="annotation"
        ),
    ] = None,
    batch_statistics: Annotated[
        BatchStatistics,
        typer.Option(help="Batch normalisation with the statistics of the training, or of the evaluated split (test)."),
    ] = "running",
    shifts: Annotated[
        TextShifts | None,
        typer.Option(help="Text CNNs: see a text at one position, or average over all.", show_default="as trained"),
    ] = None,
    eccv: Annotated[
        bool,
        typer.Option("--eccv", help="COCO's test split: also count the positives that ECCV Caption and CxC list."),
    ] = False,
    grades: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare the scores with people's grades: a table of text, image, grade."),
    ] = None,
    no_starter: NoStarter = False,
    report: Annotated[bool, typer.Option("--report", help="Also write RUN/report.html for this split.")] = False,
    into: Annotated[
        Path | None,
        typer.Option(
            help="Also write the result as JSON to this file. An interrupted evaluation continues if it has a FILE.",
            metavar="FILE",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    features: Features = Path("features"),
    device: Device = "auto",
    devices: Devices = None,
    workers: Workers = None,
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Measure recall in both directions, with 95% intervals.

    A run is also compared with what it started from (zero-shot, if that is a pretrained model), with the starter, the
    model that comes with Diptych, and with the figures that were published for its recipe. A run that was trained on
    phrases is evaluated by phrase localisation. Data without splits is split as it was when the run was trained (--val
    and --test of `diptych train`).

    Examples:

        diptych evaluate runs/first scenes

        diptych evaluate runs/a runs/b data/coco --folds 5

        diptych evaluate open_clip:ViT-B-32/laion2b_s34b_b79k data/coco --download

        diptych evaluate test.safetensors --json

        diptych evaluate scores.npy scenes

        diptych evaluate runs/scan data/flickr8k --rerank 10,20,50,100 --with runs/vsepp

        diptych evaluate runs/two-branch data/flickr30k --within texts

        diptych evaluate runs/two-branch data/entities --phrases runs/phrases --share 0.2

        diptych evaluate runs/coco data/coco --folds 5 --devices 4

        diptych evaluate runs/coco data/coco --eccv

        diptych evaluate runs/coco data/coco --grades sits_test.csv
    """
    from diptych.cli.evaluation_protocols import measure
    from diptych.cli.evaluation_sources import SourceEncoder, open_sources
    from diptych.cli.ranks import job
    from diptych.machine import keep_freed_memory

    keep_freed_memory()
    if into is not None and into.is_dir():
        raise ScoreError(f"{into}: is a folder; name a file to write")
    depths = parse_rerank_depths(rerank)
    if (rerank is None) != (retriever is None):
        raise ScoreError("--rerank N and --with RUN need each other: RUN retrieves the answers that are re-ranked")
    if phrases is None and (share is not None or phrases_from is not None):
        raise ScoreError("--share and --phrases-from need a run trained on phrases; name it with --phrases RUN")
    options = EvaluationOptions(
        split=split,
        folds=folds,
        gallery=gallery,
        rerank_depths=depths,
        retriever=retriever,
        cross_retrieval=cross,
        score_overlap=overlap,
        average_precision=average_precision,
        within=within,
        phrase_run=phrases,
        phrase_share=DEFAULT_SHARE if share is None else share,
        phrase_source=phrases_from or "annotation",
        batch_statistics=batch_statistics,
        report=report,
        baselines=not no_starter,
        resume=into,
        eccv=eccv,
        grades=grades,
    )
    with job(device, devices) as ranks:
        ranks.must_agree({"the sources": sources, "the options": repr(options)})
        to_measure, whole = open_sources(sources, retriever, phrases, split_rule(val, test))
        corpus = None if whole is None else whole.split(split)
        encoder = SourceEncoder(corpus, device, thread_count(workers), features, shifts, whole, ranks)
        try:
            measurement = measure(to_measure, options, encoder)
        except KeyboardInterrupt:
            print_note("stopped; " + ("run the same command again to continue" if into else WITHOUT_INTO))
            raise
        if not ranks.is_first:
            return
        if as_json:
            stdout.print_json(json.dumps(measurement.json))
        else:
            for table in measurement.tables:
                stdout.print(table)
        if into is not None:
            write_json(into, measurement.json)
            print_note(f"wrote {into}")
