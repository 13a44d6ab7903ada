"""What `diptych index` prints about a sync, and `diptych index status` about an index."""

from __future__ import annotations

from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from diptych.cli.console import counted, print_note, print_result

if TYPE_CHECKING:
    from diptych.index.sources.accounting import FileCounts
    from diptych.index.sync import SyncResult


def print_summary(result: SyncResult, file: str, again: str) -> None:
    """Print what was done, and what to do next; `again` is the command that continues."""
    name = quote(file)
    done = f"encoded {result.encoded:,}, kept {result.kept:,}, renamed {result.renamed:,}, removed {result.removed:,}"
    copies = f", {counted(result.copies, 'copy', 'copies')}" if result.copies else ""
    words = f", words read in {counted(result.words_read, 'picture')}" if result.words_read else ""
    texts = f", {counted(result.texts_encoded, 'new text')}" if result.texts_encoded else ""
    print_result(f"{file}: {done}{copies}{texts}{words}")
    see = f"`diptych index status {name}` lists them"
    others = result.problems - result.files.skipped
    print_result(describe_files(result.files, see) + (f"; other problems: {others:,} ({see})" if others > 0 else ""))
    print_needed_packages(result)
    if result.interrupted:
        print_note(f"interrupted; finished work is kept, and this continues: {again}")
        raise typer.Exit(130)
    print_note(f'next: diptych search {name} "a dog on the beach", or diptych serve {name}')


def print_needed_packages(result: SyncResult) -> None:
    """Print what to install for the files that optional packages read."""
    for ending, how in result.needs_packages.items():
        print_note(f"{ending}: {how}")


def describe_files(files: FileCounts, see: str) -> str:
    """One line that accounts for every file; `see` says where the skipped ones are listed."""
    parts = [f"indexed {files.indexed:,} of {files.found:,} files"]
    if files.captions:
        parts.append(f"{files.captions:,} with captions")
    if files.skipped:
        parts.append(f"skipped {files.skipped:,} ({see})")
    if files.waiting:
        parts.append(f"{files.waiting:,} still to do")
    if files.ignored:
        parts.append(f"ignored {files.ignored_text()}")
    if files.folders:
        parts.append(f"ignored folders: {', '.join(f'{count:,} {name}' for name, count in files.folders.items())}")
    return "; ".join(parts)


def print_status(found: dict[str, Any]) -> None:
    """Print the state of an index, as `index.status.status` describes it."""
    from diptych.index.sources.accounting import FileCounts

    rescored = ", re-ranked by the model's score" if found["rescores"] else ""
    when = "never" if found["synced"] is None else _local_time(found["synced"])
    lines = [
        ("file", f"{found['file']}, {found['bytes'] / 2**20:,.1f} MB"),
        ("model", f"{found['model']} ({found['identity'][:8]}), vectors of {found['size']:,}{rescored}"),
        ("quality", found["quality"]),
        *_source_lines(found),
        ("holds", f"{counted(found['images'], 'image')}, {counted(found['texts'], 'text')}"),
        ("last sync", when if found["complete"] else f"{when}, unfinished: run the same command again"),
        ("storage", found["storage"]),
    ]
    for storage, cost in found["storage_cost"].items():
        current = ", this index" if storage == found["storage"] else ""
        lines.append(("", f"{storage}: recall@10 {cost['recall@10']:.4f} against float32{current}"))
    if found["storage_cost"]:
        lines.append(("", f"measured with {counted(found['measured_with'], 'image')}"))
    lines += [("cache", line) for line in found["caches"]]
    if found["files"] is not None:
        lines.append(("files", describe_files(FileCounts.from_json(found["files"]), "see below")))
    if found["problems"]:
        lines.append(("problems", f"{len(found['problems']):,}:"))
    for name, value in lines:
        print_result(f"{name:<10} {value}")
    for problem in found["problems"]:
        print_result(f"  {problem['key']}: {problem['reason']}")


def _source_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("folder", f"{folder['name']}: {folder['path']}") for folder in found["folders"]]
    lines = lines or [("source", found["source"])]
    if found["ignored_patterns"]:
        lines.append(("ignores", ", ".join(found["ignored_patterns"])))
    if found["follows_links"]:
        lines.append(("links", "are followed out of the folder"))
    if found["reads_words"]:
        lines.append(("words", "are read in pictures"))
    return lines


def _local_time(moment: str) -> str:
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M}"
