"""How long the runs of a study take, by what finished ones took. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from pettingllms_envs.research.studies.results import Cell, CellResult


def cpu_seconds_of(cells: Sequence[Cell], finished: Sequence[CellResult]) -> float | None:
    """CPU seconds of the runs together; `None` while none is finished whose own time is known.

    A run is expected to take the mean of the finished ones of its method in its environment, or of those of its
    environment, or of all.
    """
    known = [result for result in finished if result.cpu_seconds]
    return sum(_expected(cell, known) for cell in cells) if known else None


def _expected(cell: Cell, known: Sequence[CellResult]) -> float:
    here = [result for result in known if result.cell.environment == cell.environment]
    own = [result for result in here if result.cell.method == cell.method]
    return fmean(result.cpu_seconds for result in own or here or known)


def sentence(cells: Sequence[Cell], finished: Sequence[CellResult]) -> str:
    """What is left of a study, in words."""
    seconds = cpu_seconds_of(cells, finished)
    those = "The run that is left takes" if len(cells) == 1 else f"The {len(cells)} runs that are left take"
    if seconds is None:
        return f"{those} a time that is not known yet, as none is finished whose CPU time was kept."
    return f"{those} about {seconds / 3600:.1f} CPU hours, by the times of those that are finished."
