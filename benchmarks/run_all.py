"""Run every benchmark in a process of its own and print a table; exit with 1 if any misses its target."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"harness", "plain", "run_all"}


def run(path: Path, quick: bool) -> dict[str, Any]:
    """The result that a benchmark prints as its last line; one that fails has missed its target."""
    command = [sys.executable, str(path), *(["--quick"] if quick else [])]
    started = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    result: dict[str, Any] = {"name": path.stem, "ratio": None, "target": None, "ok": False}
    lines = done.stdout.splitlines()
    if lines and lines[-1].startswith("{"):
        print(lines[-1], flush=True)
        result |= json.loads(lines[-1])
    return result | {"took": time.perf_counter() - started}


def table(results: list[dict[str, Any]]) -> Table:
    """One row per benchmark."""
    shown = Table("benchmark")
    for name in ("ratio", "target", "seconds"):
        shown.add_column(name, justify="right")
    shown.add_column("ok")
    for result in results:
        figures = ["failed" if result["ratio"] is None else f"{result['ratio']:.2f}", str(result["target"] or "")]
        shown.add_row(result["name"], *figures, f"{result['took']:.0f}", "yes" if result["ok"] else "[red]no[/]")
    return shown


def main() -> None:
    """Run all benchmarks, one at a time so that each has all cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less work for each")
    quick = parser.parse_args().quick
    paths = [path for path in sorted(HERE.glob("*.py")) if path.stem not in NOT_BENCHMARKS]
    results = []
    for path in paths:
        print(f"{path.stem} ...", file=sys.stderr, flush=True)
        results.append(run(path, quick))
    Console().print(table(results))
    sys.exit(not all(result["ok"] for result in results))


if __name__ == "__main__":
    main()
