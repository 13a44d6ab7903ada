"""Write the report of a run, `report.html`, from its journal and an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from diptych import __version__
from diptych.data.corpus import Corpus
from diptych.errors import ScoreError
from diptych.evaluation.localisation.phrase_metrics import GroundingResult
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.protocols.retrieval import RetrievalResult
from diptych.evaluation.runs import cached_score
from diptych.index.entries import Hit
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.report.elements import Fact
from diptych.report.run_page import RunPage, write_run_page
from diptych.report.sections.attention import attention_section
from diptych.report.sections.batch_negatives import batch_negatives_rows
from diptych.report.sections.correlations import correlation_section
from diptych.report.sections.cross_retrieval import cross_retrieval_chart, cross_retrieval_ranks
from diptych.report.sections.examples import ExampleQueries, answered_question
from diptych.report.sections.hard_negatives import HardNegativesSection
from diptych.report.sections.phrases import phrase_section
from diptych.report.sections.recall import metric, recall_rows
from diptych.report.sections.score_distributions import score_distributions_section
from diptych.report.sections.word_importance import word_importance_section
from diptych.report.training_curves import read_epochs, trained_epochs, training_charts
from diptych.text.tokenisers.stored import load_tokeniser
from diptych.training.engine.journal import Journal
from diptych.training.recipe import Batches
from diptych.training.recipe_loader import load_recipe

REPORT = "report.html"


@torch.no_grad()
def write_report(
    run: Path,
    encoded: EncodedCorpus,
    result: RetrievalResult,
    split: str,
    *,
    questions: Sequence[tuple[str, Sequence[Hit]]] = (),
    hard_negatives: HardNegativesSection | None = None,
    score: Score | None = None,
    stores: Path | None = None,
) -> Path:
    """Write a run's report.html from its journal and a result on one gallery; returns its path.

    `questions` are text queries with their search hits. `hard_negatives` comes from `hard_negatives_section`. `score`
    is the `cached_score` of the encodings, if already computed. `stores` is the folder with stored features, if any.
    """
    corpus = encoded.corpus
    if corpus is None:
        raise ScoreError("a report needs the corpus; encodings that were loaded from a file do not contain it")
    score = cached_score([encoded]) if score is None else score
    tokeniser = load_tokeniser(run)
    model = Model.from_matcher(encoded.matcher(), tokeniser, encoded.images.device, stores=stores)
    examples = ExampleQueries(encoded, corpus, result)
    image_rows = examples.image_rows(best=True)
    cross = cross_retrieval_ranks(score, encoded)
    stages = load_recipe(str(run / "recipe.toml")).stage
    batch_size = (stages[-1].batches if stages else Batches()).size
    page = replace(
        _training_page(run, corpus, split, {"texts": len(corpus.texts)}, encoded.skipped),
        recall=recall_rows(result),
        rsum=metric(result, "rsum"),
        questions=[answered_question(corpus, text, hits) for text, hits in questions],
        best_queries=examples.select(best=True),
        worst_queries=examples.select(best=False),
        attention=attention_section(encoded, image_rows, tokeniser),
        word_importance=word_importance_section(model, encoded, image_rows),
        hard_negatives=hard_negatives,
        score_distributions=score_distributions_section(score, encoded),
        cross_retrieval=cross_retrieval_chart({run.name: cross}) if cross else None,
        correlations=correlation_section(model, encoded),
        batch_negatives=batch_negatives_rows(score, corpus, batch_size),
    )
    return _write(run, page)


def write_phrase_report(run: Path, found: GroundingResult, corpus: Corpus, split: str) -> Path:
    """Write the report.html of a run that was trained on phrases; `corpus` is the split that was evaluated."""
    page = replace(
        _training_page(run, corpus, split, {"phrases": len(found)}, found.skipped),
        phrases=phrase_section(found, corpus),
    )
    return _write(run, page)


def _training_page(
    run: Path, corpus: Corpus, split: str, sizes: Mapping[str, int], skipped: Mapping[str, str]
) -> RunPage:
    """The sections that every report has: facts, notices, training curves and the recipe."""
    recipe, epochs = load_recipe(str(run / "recipe.toml")), read_epochs(run)
    messages = [line["message"] for line in Journal(run).lines() if "message" in line]
    seconds = sum(epoch["seconds"] for epoch in epochs)
    precisions = list(dict.fromkeys(stage.precision for stage in recipe.stage))
    facts = {
        "data": f"{corpus.name}, split {split}",
        **{name: f"{size:,}" for name, size in ({"images": len(corpus.image_ids)} | dict(sizes)).items()},
        "epochs": str(trained_epochs(epochs)),
        "training time": f"{seconds / 60:.1f} min",
        **({"precision": ", ".join(precisions)} if set(precisions) - {"float32"} else {}),
        "diptych": __version__,
    }
    return RunPage(
        title=run.name,
        subtitle=recipe.title,
        facts=[Fact(name, value) for name, value in facts.items()],
        notices=[*messages, *(f"skipped {reason}" for reason in skipped.values())],
        training_charts=training_charts(epochs) if recipe.stage else [],
        recipe=recipe.to_toml(),
    )


def _write(run: Path, page: RunPage) -> Path:
    path = run / REPORT
    write_run_page(path, page)
    return path
