"""What workers are asked to do: a request for each run, and a job before it for a folder that is to be prepared."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

from pettingllms_envs.research.studies.results import Cell
from pettingllms_trl.research.study import preparation
from pettingllms_trl.research.study.plans.plan import PlannedRun
from pettingllms_trl.research.study.schedule import Job


def preparation_of(prepare: str | None, cell: Cell, work: Path, logs: Path) -> tuple[Path | None, Job | None]:
    """The folder that a run starts from, `None` without one, and the job that makes it, `None` if it is there."""
    folder = preparation.folder_of(prepare, environment=cell.environment, seed=cell.seed, work=work)
    if folder is None or prepare is None:
        return None, None
    command = preparation.command_of(prepare, environment=cell.environment, seed=cell.seed, folder=folder)
    if preparation.is_prepared(folder, command):
        return folder, None
    name = f"prepare/{folder.relative_to(work / 'prepared')}"
    request = {"kind": "prepare", "folder": str(folder), "command": command, "log": str(logs / f"{name}.txt")}
    return folder, Job(name=name, needs=(), request=partial(dict, request))


def request_of(run: PlannedRun, *, folder: Path, prepared: Path | None, results: Path, log: Path) -> dict[str, object]:
    """The request for a run, see `worker.py`."""
    return {
        "kind": "cell",
        "cell": asdict(run.cell),
        "config": run.config,
        "folder": str(folder),
        "prepared": None if prepared is None else str(prepared),
        "results": str(results),
        "log": str(log),
    }
