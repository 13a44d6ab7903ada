"""The Python programs of README and docs run as they are printed."""

import re
from pathlib import Path

import pytest

from support.pages import PAGES, ROOT, make_files, python_blocks, run_program

# The pages on extending put files into the package; these tests write and use them.
TESTS_OF_EXTENDING = {
    "docs/extend/backbone.md": "tests/models/test_extending.py",
    "docs/extend/format.md": "tests/data/formats/test_formats.py",
    "docs/extend/model.md": "tests/models/test_extending.py",
    "docs/extend/objective.md": "tests/objectives/test_extending.py",
    "docs/extend/plugin.md": "tests/test_plugin_docs.py",
    "docs/extend/tokeniser.md": "tests/text/tokenisers/test_extending.py",
    "docs/extend/tower.md": "tests/models/test_extending.py",
}
WITH_PYTHON = [name for name, page in PAGES.items() if any(python_blocks(page.read_text(encoding="utf-8")))]
PROGRAMS = [name for name in WITH_PYTHON if name not in TESTS_OF_EXTENDING]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of(name, tmp_path, monkeypatch):
    make_files(PAGES[name], tmp_path)
    monkeypatch.chdir(tmp_path)
    run_program(PAGES[name])


def test_the_pages_on_extending_have_tests_of_their_own():
    assert {name for name in WITH_PYTHON if name.startswith("docs/extend/")} == TESTS_OF_EXTENDING.keys()
    for name, test in TESTS_OF_EXTENDING.items():
        assert Path(name).name in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_import_public_names_only(name):
    programs = "\n".join(code for _, code in python_blocks(PAGES[name].read_text(encoding="utf-8")))
    imported = set(re.findall(r"^ *(?:from|import) (diptych[\w.]*)", programs, re.MULTILINE))
    assert imported <= {"diptych", "diptych.objectives"}


def test_programs_are_found():
    assert len(PROGRAMS) > 10
    assert "README.md" in PROGRAMS


PAGE = """Text

```python
first = 1
```

- indented:

  ```python
  # helper.py
  second = 2
  ```

```sh
python nothing
```

```python
import helper

third = first + helper.second
1 / (third - 3)
```
"""


def test_the_blocks_of_a_page_are_one_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert [line for line, _ in python_blocks(PAGE)] == [4, 10, 19]
    with pytest.raises(ZeroDivisionError) as error:
        run_program(page)
    assert error.traceback[-1].lineno + 1 == 22
    assert (tmp_path / "helper.py").read_text() == "# helper.py\nsecond = 2\n"
