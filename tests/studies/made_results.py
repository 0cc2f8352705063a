"""Results of a study that was never run, for tests of the report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms_envs.research.studies.results import (
    Cell,
    CellResult,
    Fidelity,
    Outline,
    digest_of,
    save,
    save_outline,
)


def outline(**fields: Any) -> Outline:
    """Three methods in one environment, two seeds, four instances."""
    given: dict[str, Any] = {
        "name": "made",
        "methods": {"grid": ["ours", "theirs", "untrained"]},
        "reference": "ours",
        "compared": {"grid": ["theirs", "untrained"]},
        "seeds": [1, 2],
        "tokens": 1000,
        "split": "test",
        "num_instances": 4,
        "spread": 0.05,
        "notes": [],
        "primary": [],
        "primary_seeds": [],
        "secondary": [],
    }
    return Outline(**{**given, **fields})


def result(
    method: str,
    seed: int,
    success: str,
    *,
    phase: str = "evaluation",
    setting: Mapping[str, Any] | None = None,
    curve: Mapping[str, Sequence[float]] | None = None,
    steps: int = 10,
    config: Mapping[str, Any] | None = None,
) -> CellResult:
    """A finished run."""
    content = {"train": {"credit": method, "seed": seed, **(config or {})}}
    return CellResult(
        cell=Cell(phase=phase, environment="grid", method=method, seed=seed, setting=setting or {}),
        config=content,
        digest=digest_of(content),
        success=success,
        tokens=1000 if steps else 0,
        steps=steps,
        seconds=2.0 * steps,
        curve=curve or {},
    )


def fidelity(method: str, **fields: Any) -> Fidelity:
    """A finished measurement."""
    given: dict[str, Any] = {
        "correlation": 0.5,
        "interval": (0.25, 0.75),
        "ceiling": 0.875,
        "num_decisions": 50,
        "num_candidates": 400,
        "num_continuations": 32,
        "num_episodes": 12,
        "tokens": 9000,
        "seconds": 3.0,
    }
    cell = Cell(phase="fidelity", environment="grid", method=method, seed=1)
    return Fidelity(cell=cell, config={}, digest="", **{**given, **fields})


def write(folder: Path, *results: CellResult | Fidelity, plan: Outline | None = None) -> Path:
    """A folder with these results."""
    save_outline(plan or outline(), folder)
    for each in results:
        save(each, folder)
    return folder
