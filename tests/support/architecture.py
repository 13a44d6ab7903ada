"""The list of all modules in ARCHITECTURE.md, made from the first lines of their docstrings.

Run this file to write the list again.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "diptych"
PAGE = ROOT / "ARCHITECTURE.md"
START, END = "<!-- tree -->\n", "<!-- end of tree -->"


def module_tree() -> str:
    """One line per module, grouped by folder."""
    lines, folder = [], None
    for path in sorted(SOURCE.rglob("*.py"), key=lambda path: (path.parent.relative_to(SOURCE).parts, path.name)):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if docstring is None:  # an empty __init__.py
            continue
        if path.parent != folder:
            folder = path.parent
            lines += ["", f"{'/'.join(('diptych', *folder.relative_to(SOURCE).parts))}/"]
        summary = " ".join(docstring.partition("\n\n")[0].split()).removesuffix(".")
        lines.append(f"    {path.name:<24} {summary}")
    return "\n".join(["```", *lines[1:], "```", ""])


def page_with_tree(page: str) -> str:
    """The page with a new list."""
    before, _, rest = page.partition(START)
    return before + START + module_tree() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page_with_tree(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
