"""What `diptych reproduce` shows of its tasks when it does not write to a terminal."""

from diptych.cli.task_display import TaskDisplay
from diptych.reproduction.tasks import MineTask


def test_a_file_gets_a_line_when_a_task_begins_and_when_it_ends(capsys):
    tasks = [MineTask(name, f"run \x1b[31m{name}", 3, 3, ("train",)) for name in ("a", "b")]
    with TaskDisplay(2) as display:
        for task, error in zip(tasks, (None, "no space [left]"), strict=True):
            display.begin(task)
            display.report(task, "half of it")
            display.end(task, error)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "lists of hard negatives by run \\x1b[31ma: begins",
        "1 of 2: lists of hard negatives by run \\x1b[31ma",
        "lists of hard negatives by run \\x1b[31mb: begins",
        "2 of 2: lists of hard negatives by run \\x1b[31mb: failed, no space [left]",
    ]
