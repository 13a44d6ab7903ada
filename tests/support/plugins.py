"""Modules of a user that tests write, and entry points that tests pretend to be installed."""

import importlib
import sys
from importlib.metadata import EntryPoint

from diptych import plugins

LOSS = '''
from typing import Annotated

from pydantic import Field

from diptych.objectives.ranking import Ranking
from diptych.settings import Number


class Exponential(Ranking):
    """The sum of exp(scale x (negative - positive)) over the negatives."""

    scale: Annotated[Number, Field(gt=0)] = 5.0

    def per_query_loss(self, queries):
        above = queries.scores - queries.positive_scores
        return (self.scale * above).exp().masked_fill(queries.positives, 0).sum(1)

    def has_collapsed(self, batch, total):
        return False
'''

TOWER = '''
from diptych.models.towers.text.words import WordsSettings


class Words(WordsSettings):
    """The built-in tower under another name; it inherits the Literal of the built-in one."""
'''


class OwnModules:
    """Writes modules that can be imported during a test; none of them is allowed yet."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.points, self.names = folder, [], []
        folder.mkdir()
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setattr(plugins, "_allowed", set())
        monkeypatch.setattr(plugins, "_entry_points", lambda: tuple(self.points))

    def write(self, name, code):
        """Write a module, forgetting what was imported under its name."""
        file = self.folder / f"{name.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code, encoding="utf-8")
        self.names.append(name)
        self.forget()
        return file

    def register(self, group, name, value):
        """Pretend that an installed package has this entry point."""
        self.points.append(EntryPoint(name, value, f"diptych.{group}"))

    def forget(self):
        """Forget what was imported, as a new process would."""
        roots = {name.partition(".")[0] for name in self.names}
        for name in [name for name in sys.modules if name.partition(".")[0] in roots]:
            del sys.modules[name]
        importlib.invalidate_caches()
