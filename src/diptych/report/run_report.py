"""The report of a run: gathers what the run left and what it answered, and writes `report.html`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from markupsafe import Markup
from torch import Tensor

from diptych import __version__
from diptych.data.corpus import Corpus, Integers
from diptych.errors import ScoreError
from diptych.evaluation.localisation.phrase_metrics import GroundingResult
from diptych.evaluation.metrics.ranks import Score
from diptych.evaluation.protocols.retrieval import RetrievalResult
from diptych.evaluation.runs import cached_score
from diptych.index.entries import Hit
from diptych.models.encodings import Encoded
from diptych.models.trained import Trained
from diptych.report.pictures import image_thumbnail
from diptych.report.run_page import Answer, CardSection, Contents, Example, Fact, Question, write_page
from diptych.report.sections.attention import attention_section
from diptych.report.sections.batch_negatives import sampling_rows
from diptych.report.sections.correlations import correlation_section
from diptych.report.sections.cross_retrieval import cross_chart, cross_of
from diptych.report.sections.examples import one_a_group
from diptych.report.sections.phrases import phrase_section
from diptych.report.sections.recall import directions, measured
from diptych.report.sections.score_distributions import separation_section
from diptych.report.sections.word_importance import words_section
from diptych.report.svg_charts import Point, line_chart
from diptych.report.training_curves import Epoch, class_error_lines, read_epochs, stage_marks
from diptych.text.vocabulary import Vocabulary
from diptych.training.engine.journal import Journal
from diptych.training.recipe_loader import load_recipe

EXAMPLES = 4
ANSWERS = 5

_RECALLS = {"image to text R@1": "i2t_r1", "text to image R@1": "t2i_r1", "phrases R@1": "phrase_r1"}

Show = Callable[[int], tuple[str, str | None]]


@torch.no_grad()
def write_report(
    run: Path,
    encoded: Encoded,
    result: RetrievalResult,
    split: str,
    questions: Sequence[tuple[str, Sequence[Hit]]] = (),
    negatives: CardSection | None = None,
    score: Score | None = None,
    stores: Path | None = None,
) -> Path:
    """Write a run's report.html from its journal and a result on one gallery.

    It also shows, where they are given, answered questions and the `hard_negatives` of a training batch. Who has the
    `cached_score` of the encodings already passes it as `score`. `stores` is the folder that may hold features of
    the run's backbone.
    """
    corpus = encoded.corpus
    if corpus is None:
        raise ScoreError("a report needs the corpus, not encodings read from a file")
    score = cached_score([encoded]) if score is None else score
    left = _Left(run)
    vocabulary = Vocabulary.load(run / "vocabulary.json")
    trained = Trained(encoded.matcher(), vocabulary, encoded.images.device, stores)
    examples = Examples(encoded, corpus, result)
    contents = replace(
        left.contents(corpus, split, {"texts": len(corpus.texts)}, encoded.skipped),
        directions=directions(result),
        rsum=measured(result, "rsum"),
        questions=[_question(corpus, text, hits) for text, hits in questions],
        best=examples.chosen(best=True),
        worst=examples.chosen(best=False),
        attention=attention_section(encoded, examples.image_rows(best=True)),
        words=words_section(trained, encoded, examples.image_rows(best=True)),
        negatives=negatives,
        separation=separation_section(score, encoded),
        cross=cross_chart({run.name: cross}) if (cross := cross_of(score, encoded)) else None,
        correlation=correlation_section(trained, encoded),
        sampling=sampling_rows(score, corpus, left.recipe.stage[-1].batches.size),
    )
    return _write(run, contents)


def write_phrase_report(run: Path, found: GroundingResult, corpus: Corpus, split: str) -> Path:
    """Write the report.html of a run that was trained on phrases, from its journal and what it found of a corpus.

    The corpus is the split that was measured. How whole texts and images find each other is no matter of such a run.
    """
    contents = replace(
        _Left(run).contents(corpus, split, {"phrases": len(found)}, found.skipped),
        phrases=phrase_section(found, corpus),
    )
    return _write(run, contents)


class _Left:
    """What a run has left in its folder, as every report begins with it."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.recipe = load_recipe(str(run / "recipe.toml"))
        self.epochs = read_epochs(run)

    def contents(self, corpus: Corpus, split: str, sizes: Mapping[str, int], skipped: Mapping[str, str]) -> Contents:
        """A report without a result: what was measured on, what happened in training, and how."""
        events = [line["message"] for line in Journal(self.run).lines() if "message" in line]
        seconds = sum(line["seconds"] for line in self.epochs)
        facts = {
            "data": f"{corpus.name}, split {split}",
            **{name: f"{size:,}" for name, size in ({"images": len(corpus.image_ids)} | dict(sizes)).items()},
            "epochs": str(len(self.epochs)),
            "training time": f"{seconds / 60:.1f} min",
            "diptych": __version__,
        }
        return Contents(
            title=self.run.name,
            subtitle=self.recipe.title,
            facts=[Fact(name, value) for name, value in facts.items()],
            events=[*events, *(f"skipped {reason}" for reason in skipped.values())],
            curves=_curves(self.epochs),
            recipe=self.recipe.to_toml(),
        )


def _write(run: Path, contents: Contents) -> Path:
    path = run / "report.html"
    write_page(path, contents)
    return path


class Examples:
    """The best and the worst queries of a result on one gallery, with what was found for them."""

    def __init__(self, encoded: Encoded, corpus: Corpus, result: RetrievalResult) -> None:
        if len(result.folds) != 1:
            raise ScoreError("a report shows one gallery; measure without folds")
        self.corpus, self.encoded, self.ranks = corpus, encoded, result.folds[0]
        self.score = encoded.matcher().score

    def chosen(self, best: bool) -> list[Example]:
        """Some queries of both directions, each of another group: the best ranked ones, or the worst."""
        texts = [self.of_text(row) for row in self._rows(self.ranks.texts, self.ranks.text_groups, best)]
        return [*texts, *(self.of_image(row) for row in self.image_rows(best))]

    def image_rows(self, best: bool) -> list[int]:
        """The images among the chosen queries, by their rows."""
        return self._rows(self.ranks.images, self.ranks.image_groups, best)

    def of_text(self, row: int) -> Example:
        """A text and the images found for it."""
        scores = self.score(self.encoded.images, self.encoded.texts[row : row + 1])[:, 0]
        right = torch.from_numpy(self.corpus.image_groups == self.corpus.text_groups[row])
        answers, truth = self._answers(scores, right, self._image)
        return Example("text to image", int(self.ranks.texts[row]), answers, self.corpus.texts[row], None, truth)

    def of_image(self, row: int) -> Example:
        """An image and the texts found for it."""
        scores = self.score(self.encoded.images[row : row + 1], self.encoded.texts)[0]
        right = torch.from_numpy(self.corpus.text_groups == self.corpus.image_groups[row])
        answers, truth = self._answers(scores, right, lambda text: (self.corpus.texts[text], None))
        name, picture = self._image(row)
        return Example("image to text", int(self.ranks.images[row]), answers, name, picture, truth)

    def _answers(self, scores: Tensor, right: Tensor, show: Show) -> tuple[list[Answer], Answer]:
        """The first answers, and the best right one."""
        scores = scores.cpu()

        def answer(row: int) -> Answer:
            caption, picture = show(row)
            return Answer(caption, float(scores[row]), bool(right[row]), picture)

        top = scores.topk(min(ANSWERS, len(scores))).indices.tolist()
        return [answer(row) for row in top], answer(int(scores.masked_fill(~right, -torch.inf).argmax()))

    def _image(self, row: int) -> tuple[str, str | None]:
        return self.corpus.image_ids[row], image_thumbnail(self.corpus, row)

    @staticmethod
    def _rows(ranks: Integers, groups: Integers, best: bool) -> list[int]:
        return one_a_group(np.argsort(ranks if best else -ranks, kind="stable"), groups, EXAMPLES)


def _curves(epochs: Sequence[Epoch]) -> list[Markup]:
    """Validation recall, loss, and class error where there is one, against the epoch, counted on through the stages."""
    on_val = {name for epoch in epochs for name in epoch["val"]}
    recalls = {title: _known(epochs, name) for title, name in _RECALLS.items() if name in on_val}
    marks = stage_marks(epochs)
    charts = [line_chart(recalls, title="Recall on val", x_label="epoch", y_label="R@1, percent", marks=marks)]
    for stage in sorted({line["stage"] for line in epochs}):  # losses of different objectives share no axis
        losses = [(n, e["loss"]) for n, e in enumerate(epochs, 1) if e["stage"] == stage]
        if len(losses) > 1:
            title = f"Training loss, stage {stage}"
            charts.append(line_chart({"loss": losses}, title=title, x_label="epoch", y_label="loss a pair"))
    if errors := class_error_lines(epochs):
        title, label = "Class error in training", "wrong, percent"
        charts.append(line_chart(errors, title=title, x_label="epoch", y_label=label, marks=marks))
    return charts


def _known(epochs: Sequence[Epoch], name: str) -> list[Point]:
    """A metric on val against the epoch; an epoch of a stage that measured something else has none."""
    return [(number, epoch["val"][name]) for number, epoch in enumerate(epochs, 1) if name in epoch["val"]]


def _question(corpus: Corpus, text: str, hits: Sequence[Hit]) -> Question:
    rows = {name: row for row, name in enumerate(corpus.image_ids)}
    pictures = [image_thumbnail(corpus, rows[hit.entry.key]) for hit in hits]
    return Question(
        text, [Answer(hit.entry.key, hit.score, None, shown) for hit, shown in zip(hits, pictures, strict=True)]
    )
