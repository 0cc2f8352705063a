"""Reruns one finished run of a study, and says what agrees with its result, which is left as it is."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from pettingllms_envs.research.studies.agreement import agreement
from pettingllms_envs.research.studies.results import CellResult, digest_of, read
from pettingllms_trl.research.study import schedule
from pettingllms_trl.research.study.jobs import preparation_of, request_of
from pettingllms_trl.research.study.plans.plan import PlannedRun


def finished_run(name: str, results: Path) -> CellResult:
    """The result of a run; `ValueError` if there is none, or its digest is not that of its configuration."""
    path = results / f"{name}.json"
    if name.partition("/")[0] not in ("tuning", "evaluation") or not path.is_file():
        raise ValueError(
            f"--verify is {name}, and {path} is no result of a training; expected the name of a finished run, such as "
            "evaluation/archives/at_grpo/1. --dry-run lists them; name their folder by --results."
        )
    found = read(path, CellResult)
    if digest_of(found.config) != found.digest:
        raise ValueError(
            f"{path} has a configuration with the digest {digest_of(found.config)}, but names {found.digest}; "
            "expected a file as it was written. Restore it, or remove it to run it again."
        )
    return found


def verify(name: str, results: Path, work: Path) -> int:
    """Rerun it with its file's configuration, under `work/verify`; the exit status. Fails as `finished_run` does."""
    there = finished_run(name, results)
    run, own = PlannedRun(cell=there.cell, config=there.config), work / "verify"
    folder = own.joinpath("runs", *run.cell.parts)
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier rerun
    prepared, before = preparation_of(run.config["prepare"], run.cell, work, own / "logs")
    log = own / "logs" / f"{name}.txt"
    request = request_of(run, folder=folder, prepared=prepared, results=own / "results", log=log)
    first = [] if before is None else [before]
    own_job = schedule.Job(name=name, needs=tuple(job.name for job in first), request=partial(dict, request))
    failed: list[str] = []

    def report(job: schedule.Job, answer: schedule.Answer, seconds: float) -> None:
        print(f"{job.name}: {answer['status']} ({seconds:.0f} s)", flush=True)
        if answer["status"] != "done":
            failed.append(f"{answer.get('error', answer['status'])}; see {own / 'logs' / job.name}.txt")

    stopped = schedule.run(schedule.Schedule([*first, own_job], ()), num_workers=1, report=report)
    if stopped or failed:
        print("; ".join(failed) or "stopped")
        return 130 if stopped else 1
    found = agreement(there, read(run.cell.path(own / "results"), CellResult))
    for line in found.lines:
        print(line)
    return found.status
