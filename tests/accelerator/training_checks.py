"""Runs trainings of the matrix in a child process, and what tests say of their reports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from on_device import launched
from trainings import SHORT, Case


STEPS = SHORT["max_steps"]


def reports_of(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    launched("trainings", str(folder), *names)
    found = map(json.loads, (folder / "reports.jsonl").read_text().splitlines())
    return {report["case"]: report for report in found}


def check(case: Case, report: dict[str, Any]) -> None:
    assert report["error"] is None, report["error"]
    assert report["is_finite"]
    assert report["moved"] > 1e-4
    assert case.most is None or report["difference"] <= case.most


def of_files(report: dict[str, Any]) -> dict[str, int]:
    """How often the host has waited in each of our files."""
    found: Counter[str] = Counter()
    for _, place, number in report["waits"]:
        if "pettingllms_trl/" in place:
            found[place.rpartition("pettingllms_trl/")[2].partition(":")[0]] += number
    return dict(found)


def check_waits(report: dict[str, Any], *, num_passes: int) -> None:
    """The host waits in none of our files in a pass, nor between two of them, and once to log an optimizer step; where
    TRL samples, less often than TRL's."""
    phases = report["phases"]
    for phase in ("pass to score", "score to scored", "scored to forward", "forward to backward", "backward to pass"):
        assert all(ours == 0 for ours, _ in phases.get(phase, ())), phase
    assert len(phases["forward to backward"]) == num_passes
    assert [ours for ours, _ in phases["backward to step"]] == [1] * STEPS
    assert all(ours <= of_trl for ours, of_trl in phases["sample to sampled"])
