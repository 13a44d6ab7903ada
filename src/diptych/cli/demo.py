"""`diptych demo`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.console import bar, err, note, out

# Whole descriptions, as the captions are, of scenes that the test split holds among siblings.
QUESTIONS = (
    "three red stars in the middle",
    "two green circles in the top right corner",
    "two red circles on the right and a small blue triangle in the top right corner",
)
TRAIN_SCENES, VAL_SCENES, TEST_SCENES = 3000, 200, 500


def command(
    into: Annotated[Path, typer.Option(help="The run's folder; a demo that was stopped goes on there.")] = Path(
        "runs/demo"
    ),
) -> None:
    """Train on drawn scenes, measure on 500 unseen ones, ask three questions and write a report."""
    from diptych.data.scenes import make_scenes
    from diptych.evaluation.runs import evaluate_encoded
    from diptych.index.search import Gallery
    from diptych.machine import keep_freed_memory
    from diptych.models.trained import Trained
    from diptych.report.negatives import hard_negatives
    from diptych.report.pictures import contact_sheet
    from diptych.report.run import write_report
    from diptych.training.progress import Bar
    from diptych.training.recipe import load_recipe
    from diptych.training.train import train

    started = time.monotonic()
    keep_freed_memory()
    recipe = load_recipe("scenes")
    corpus = make_scenes(train=TRAIN_SCENES, val=VAL_SCENES, test=TEST_SCENES)
    note(f"training {recipe.title!r} on {TRAIN_SCENES:,} scenes into {into}; Ctrl-C stops, the same command goes on")
    with Bar(err) as watcher:
        train(recipe, corpus, into, resume=(into / "recipe.toml").exists(), watcher=watcher)

    trained = Trained.open(into)
    test = corpus.split("test")
    with bar("encoding test") as watch:
        encoded = trained.encode(test, watch=watch)
    result = evaluate_encoded([encoded])
    out.print(result.render())
    out.print(f"chance is {100 / TEST_SCENES:.1f}% at R@1", highlight=False, style="dim")

    gallery = Gallery(trained, test)
    answered = [(question, gallery.find_images(question, 5)) for question in QUESTIONS]
    for number, (question, hits) in enumerate(answered, 1):
        sheet = into / f"question-{number}.png"
        pictures = [gallery.corpus.pictures[hit.row] for hit in hits] if gallery.corpus.pictures else []
        contact_sheet(sheet, pictures, [f"{hit.score:.3f}" for hit in hits], title=question)
        first = test.texts[int((test.text_groups == test.image_groups[hits[0].row]).argmax())]
        out.print(f"[bold]{question}[/]\n  best hit {hits[0].name} ({hits[0].score:.3f}): {first}", highlight=False)
        out.print(f"  pictures: {sheet}", highlight=False, soft_wrap=True)
    report = write_report(into, encoded, result, "test", answered, hard_negatives(into, trained, corpus))
    minutes = (time.monotonic() - started) / 60
    out.print(
        f"[bold green]done[/] in {minutes:.1f} min; open the report: {report.resolve()}",
        highlight=False,
        soft_wrap=True,
    )
