"""The Python programs of README and docs run as they are printed."""

import pytest

from support.pages import PAGES, make_files, python_blocks, run_program

# The pages on extending put files into the package; tests/objectives/test_extending.py and others write and use them.
PROGRAMS = [
    name
    for name, page in PAGES.items()
    if not name.startswith("docs/extend/") and any(python_blocks(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of(name, tmp_path, monkeypatch):
    make_files(PAGES[name], tmp_path)
    monkeypatch.chdir(tmp_path)
    run_program(PAGES[name])


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
