"""Tables of saved figures in pages, each with what the newest saved file has.

    python benchmarks/quotes.py          # writes them anew

A line `<!-- saved: MACHINE SUITE -->` stands before each, such as `<!-- saved: intel-xeon-processor-2-cores step -->`.
Figures without a peer are left out where they miss no goal. `<!-- study: STUDY ENVIRONMENT -->` stands before the
methods of a study, the most successful one first, and with `compared` behind the environment before the comparisons
that were fixed beforehand. `tests/test_saved_figures.py` holds pages to files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from figures import from_record
from machine import saved_on

from pettingllms_envs.research.studies.analysis import named_differences, read_results


HERE = Path(__file__).parent
ROOT = HERE.parent
MARKED = re.compile(r"^<!-- saved: (\S+) (\S+) -->\n(?:\|.*\n)*", re.MULTILINE)
STUDIED = re.compile(r"^<!-- study: (\S+) (\S+)( compared)? -->\n(?:\|.*\n)*", re.MULTILINE)


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


def methods(study: str, environment: str, results: Path = HERE / "results") -> str:
    """The methods of a study in an environment as Markdown, the most successful one first."""
    rows = []
    for (where, name), runs in read_results(results / "study" / study).evaluation.items():
        if where == environment:
            rates = [100 * run.rate for run in runs]
            cells = [f"`{name}`", f"{fmean(rates):.1f}%", f"{min(rates):.1f}, {max(rates):.1f}"]
            costs = (fmean(run.steps for run in runs), fmean(run.cpu_seconds for run in runs))
            rows.append((fmean(rates), [*cells, *(f"{cost:,.0f}" if costs[0] else "" for cost in costs)]))
    rows.sort(key=lambda row: row[0], reverse=True)
    head = "| | success | least, most | optimizer steps | CPU s |\n|---|---|---|---|---|\n"
    return head + "".join(f"| {' | '.join(cells)} |\n" for _, cells in rows)


def comparisons(study: str, environment: str, results: Path = HERE / "results") -> str:
    """The comparisons in an environment that a study fixed beforehand, as Markdown."""
    found = read_results(results / "study" / study)
    rows = ["| | difference | over seeds | over seeds and instances | p | verdict |", "|---|---|---|---|---|---|"]
    named = (named_differences(found, kind) for kind in (found.outline.primary, found.outline.secondary))
    for each in filter(lambda each: each.environment == environment, chain(*named)):
        got = each.comparison
        both = (f"[{100 * low:+.1f}, {100 * high:+.1f}]" for low, high in (got.student, got.bootstrap))
        cells = (f"`{each.first}` - `{each.method}`", f"{100 * got.mean:+.1f}", *both, f"{got.p:.4f}", got.verdict)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def quoted(text: str, folder: Path) -> str:
    """The text of a page in a folder, with its tables as the files have them."""

    def studied(found: re.Match[str]) -> str:
        return found[0].splitlines()[0] + "\n" + (comparisons if found[3] else methods)(found[1], found[2])

    saved = MARKED.sub(lambda found: found[0].splitlines()[0] + "\n" + table(found[1], found[2], folder), text)
    return STUDIED.sub(studied, saved)


if __name__ == "__main__":
    for page in pages():
        page.write_text(quoted(page.read_text("utf-8"), page.parent), "utf-8")
