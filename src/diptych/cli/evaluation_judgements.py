"""The protocols of `diptych evaluate` by what people judged: `--eccv` and `--grades`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from diptych.cli.console import print_note
from diptych.cli.evaluation_options import EvaluationOptions
from diptych.cli.evaluation_protocols import Measurement
from diptych.cli.evaluation_sources import SourceEncoder, is_encodings, is_matrix
from diptych.errors import ScoreError

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus, Problem
    from diptych.evaluation.metrics.scores import Score
    from diptych.evaluation.protocols.eccv import EccvResult
    from diptych.evaluation.protocols.grades import GradesResult

_SHOWN = 5  # problems


def measure_judgements(sources: list[str], options: EvaluationOptions, encoder: SourceEncoder) -> Measurement:
    """Measure the sources, runs or one score matrix, with the protocol that the options select."""
    from diptych.report.tables.evaluation import result_table

    if encoder.corpus is None or any(map(is_encodings, sources)):
        option = "--eccv" if options.eccv else "--grades"
        raise ScoreError(f"{option} needs runs, or a score matrix, and the corpus: files of encodings have no ids")
    if options.grades is None:
        result: EccvResult | GradesResult = _eccv(sources, encoder.corpus, options, encoder)
    else:
        result = _grades(sources, options.grades, encoder.corpus, options, encoder)
    return Measurement.of(result_table(result), result)


def _eccv(sources: list[str], corpus: Corpus, options: EvaluationOptions, encoder: SourceEncoder) -> EccvResult:
    """COCO's test split with the positives of ECCV Caption and CxC."""
    from diptych.evaluation.coco_positives import coco_rows, read_positives
    from diptych.evaluation.protocols.eccv import evaluate_encoded_eccv, measure_eccv, selected_score

    positives = read_positives()
    if is_matrix(sources[0]):
        corpus = corpus.matched()
        rows = coco_rows(corpus, positives)
        return measure_eccv(selected_score(_read_matrix(sources[0], corpus), *rows), positives)
    encoder = replace(encoder, corpus=corpus.take(*coco_rows(corpus, positives)))
    return evaluate_encoded_eccv([encoder.encode(source, options.batch_statistics) for source in sources], positives)


def _grades(
    sources: list[str], file: Path, corpus: Corpus, options: EvaluationOptions, encoder: SourceEncoder
) -> GradesResult:
    """The agreement of scores with people's grades."""
    from diptych.data.grades import read_grades
    from diptych.evaluation.protocols.grades import (
        evaluate_encoded_grades,
        graded_part,
        measure_grades,
        score_of_pairs,
    )

    if is_matrix(sources[0]):
        corpus = corpus.matched()
        grades = read_grades(file, corpus)
        result = measure_grades(score_of_pairs(_read_matrix(sources[0], corpus)), corpus, grades)
    else:
        grades = read_grades(file, corpus)
        encoder = replace(encoder, corpus=graded_part(corpus, grades))
        encoded = [encoder.encode(source, options.batch_statistics) for source in sources]
        result = evaluate_encoded_grades(encoded, corpus, grades)
    _print_problems(result.problems)
    return result


def _read_matrix(source: str, corpus: Corpus) -> Score:
    """The scores in a file; raises ScoreError unless they are those of the images and texts of a corpus."""
    from diptych.evaluation.runs import read_matrix

    score = read_matrix(Path(source))
    images, texts = len(corpus.image_ids), len(corpus.texts)
    if (score.images, score.texts) != (images, texts):
        raise ScoreError(
            f"{source}: scores of {score.images} images and {score.texts} texts, but the split has {images} and "
            f"{texts}; make both from the same corpus and split"
        )
    return score


def _print_problems(problems: Sequence[Problem]) -> None:
    for problem in problems[:_SHOWN]:
        print_note(f"left out: {problem}")
    if len(problems) > _SHOWN:
        print_note(f"left out {len(problems) - _SHOWN:,} more rows")
