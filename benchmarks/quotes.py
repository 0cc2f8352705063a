"""Tables of saved figures in pages, each with what the newest saved file has.

    python benchmarks/quotes.py          # writes them anew

A line `<!-- saved: MACHINE SUITE -->` stands before each, such as `<!-- saved: intel-xeon-processor-2-cores step -->`.
Figures without a peer are left out where they miss no goal. `tests/test_saved_figures.py` holds pages to files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import from_record
from machine import saved_on


HERE = Path(__file__).parent
ROOT = HERE.parent
MARKED = re.compile(r"^<!-- saved: (\S+) (\S+) -->\n(?:\|.*\n)*", re.MULTILINE)


def pages() -> Iterator[Path]:
    """All that may have such tables."""
    yield from (ROOT / "README.md", HERE / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def newest(kind: str, suite: str, results: Path) -> tuple[Path, dict[str, Any], str]:
    """The file of a kind of machine with the newest figures of a suite, what it has of it, and the commit.

    Raises:
        ValueError: No file has any.
    """
    found = []
    for file in saved_on(kind, results):
        saved = json.loads(file.read_text("utf-8"))
        if suite in saved["suites"]:
            found.append((saved["suites"][suite]["date"], file, saved))
    if not found:
        raise ValueError(f"no file {results}/{kind}-*.json has {suite!r}; expected one. Run suite.py --only {suite}.")
    _, file, saved = max(found, key=lambda each: each[0])
    return file, saved["suites"][suite], saved["machine"]["commit"]


def table(kind: str, suite: str, folder: Path, results: Path = HERE / "results") -> str:
    """The newest figures of a suite as Markdown, for a page in a folder; where they are from stands in the head."""
    file, saved, commit = newest(kind, suite, results)
    head, _, changes = commit.partition("+")
    source = f"[{saved['date'][:10]}, {head[:8]}{changes and ' with changes'}]({os.path.relpath(file, folder)})"
    rows = [f"| {source}, load {saved['load']:.1f} | ours | beside | theirs | times as good (rounds) | goal |"]
    rows.append("|---|---|---|---|---|---|")
    shown = [each for each in map(from_record, saved["figures"]) if each.peer or each.met is False]
    return "\n".join([*rows, *(f"| {' | '.join(each.cells()[:6])} |" for each in shown)]) + "\n"


def quoted(text: str, folder: Path) -> str:
    """The text of a page in a folder, with its tables as the files have them."""
    return MARKED.sub(lambda found: found[0].splitlines()[0] + "\n" + table(found[1], found[2], folder), text)


if __name__ == "__main__":
    for page in pages():
        page.write_text(quoted(page.read_text("utf-8"), page.parent), "utf-8")
