"""`diptych demo`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli import serve
from diptych.cli.console import print_note, progress_bar, stderr, stdout

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.index.entries import Hit
    from diptych.model import Model

# Complete descriptions, like the captions, of scenes in the test split that have similar siblings.
QUESTIONS = (
    "three red stars in the middle",
    "two green circles in the top right corner",
    "two red circles on the right and a small blue triangle in the top right corner",
)
TRAIN_SCENES, VAL_SCENES, TEST_SCENES = 3000, 200, 500


def command(
    into: Annotated[Path, typer.Option(help="The run's folder; an interrupted demo continues there.")] = Path(
        "runs/demo"
    ),
) -> None:
    """Train on drawn scenes, evaluate on 500 unseen ones, index them, answer three questions and write a report.

    Example:

        diptych demo --into runs/demo
    """
    from diptych.cli.training_bar import TrainingBar
    from diptych.data.open import open_corpus
    from diptych.evaluation.runs import evaluate_encoded
    from diptych.machine import keep_freed_memory
    from diptych.model import Model
    from diptych.report.run_report import write_report
    from diptych.report.sections.hard_negatives import hard_negatives_section
    from diptych.report.tables.evaluation import retrieval_table
    from diptych.training.recipe_loader import load_recipe
    from diptych.training.train import train

    started = time.monotonic()
    keep_freed_memory()
    recipe = load_recipe("scenes")
    corpus = open_corpus(f"scenes:train={TRAIN_SCENES},val={VAL_SCENES},test={TEST_SCENES}")
    print_note(
        f"training {recipe.title!r} on {TRAIN_SCENES:,} scenes into {into}; "
        "after Ctrl-C, run the same command again to continue"
    )
    train(recipe, corpus, into, resume=(into / "recipe.toml").exists(), callbacks=[TrainingBar(stderr)])

    model = Model.load(into)
    test = corpus.split("test")
    with progress_bar("encoding test") as progress:
        encoded = model.encode_corpus(test, progress=progress)
    result = evaluate_encoded([encoded])
    stdout.print(retrieval_table(result))
    stdout.print(f"random guessing reaches {100 / TEST_SCENES:.1f}% R@1", highlight=False, style="dim")

    index = into / "scenes.diptych"
    questions = _answer_questions(index, model, corpus, into)
    report = write_report(
        into, encoded, result, "test", questions=questions, hard_negatives=hard_negatives_section(into, model, corpus)
    )
    minutes = (time.monotonic() - started) / 60
    stdout.print(
        f"[bold green]done[/] in {minutes:.1f} min; report: {report.resolve()}", highlight=False, soft_wrap=True
    )
    _offer_to_serve(index)


def _answer_questions(index: Path, model: Model, corpus: Corpus, into: Path) -> list[tuple[str, tuple[Hit, ...]]]:
    """Update the index and answer the questions from its test split, each with a contact sheet."""
    from diptych.index.entries import Filters, SearchRequest
    from diptych.index.search import Searcher
    from diptych.index.sqlite.store import Store
    from diptych.index.sync import sync
    from diptych.report.contact_sheet import contact_sheet

    with progress_bar("indexing") as progress:
        sync(model, str(corpus.address), index, progress=progress)
    searcher = Searcher(Store.open(index), model)
    answers = searcher.search_texts(QUESTIONS, SearchRequest(k=5, filters=Filters(split="test")))
    pictures = dict(zip(corpus.image_ids, corpus.pictures or (), strict=True))
    for number, (question, answer) in enumerate(zip(QUESTIONS, answers, strict=True), 1):
        best, sheet = answer.hits[0], into / f"question-{number}.png"
        shown = [pictures[hit.entry.key] for hit in answer.hits]
        contact_sheet(sheet, shown, [f"{hit.score:.3f}" for hit in answer.hits], title=question)
        caption = searcher.store.captions([best.entry.id])[best.entry.id][0]
        stdout.print(f"[bold]{question}[/]\n  best hit {best.entry.key} ({best.score:.3f}): {caption}", highlight=False)
        stdout.print(f"  pictures: {sheet}", highlight=False, soft_wrap=True)
    searcher.store.close()
    return [(question, answer.hits) for question, answer in zip(QUESTIONS, answers, strict=True)]


def _offer_to_serve(index: Path) -> None:
    """Print the command that serves the search page and, in an interactive terminal, offer to run it."""
    program = sys.argv[0] if Path(sys.argv[0]).name == "diptych" else "diptych"
    stdout.print(
        f"search the scenes in your browser: [bold]{program} serve {index}[/]", highlight=False, soft_wrap=True
    )
    if sys.stdin.isatty() and stdout.is_terminal and typer.confirm("start it now?", default=False):
        serve.command([str(index)])
