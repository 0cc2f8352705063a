"""Chooses the settings of a method from the results of its tuning. Pure but for reading the results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pettingllms_envs.research.studies.analysis import best_setting
from pettingllms_envs.research.studies.results import Cell, CellResult, read
from pettingllms_trl.research.study.plans.plan import Study


def tuning_of(study: Study, environment: str, method: str) -> list[Cell]:
    """The tuning runs that a method's setting in an environment is chosen from."""
    return [cell for cell in study.tuning_cells() if (cell.environment, cell.method) == (environment, method)]


def chosen(study: Study, environment: str, method: str, results: Path) -> Mapping[str, Any]:
    """The setting with the highest mean success over the tuning seeds; of equal ones, the first in the file.

    All of the method's tuning runs are finished.
    """
    if not study.is_tuned(method):
        return {}
    assert study.tuning is not None
    finished = [(cell, read(cell.path(results), CellResult)) for cell in tuning_of(study, environment, method)]
    settings = study.tuning.settings_of(method)
    rates = [[result.rate for cell, result in finished if cell.setting == setting] for setting in settings]
    return settings[best_setting(rates)]
