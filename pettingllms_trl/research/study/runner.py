"""A study with its folders: which runs are finished, and the jobs for those that are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pettingllms_envs.research.studies import power
from pettingllms_envs.research.studies.analysis import best_setting
from pettingllms_envs.research.studies.results import Cell, CellResult, Fidelity, changed, label, read, read_all
from pettingllms_trl.research.study import cost, schedule
from pettingllms_trl.research.study.jobs import preparation_of, request_of
from pettingllms_trl.research.study.plans.plan import PlannedRun, Study


class Runner:
    """A study with its folders.

    Args:
        work: Folder of models, checkpoints and logs.
    """

    def __init__(self, plan: Study, work: Path, results: Path) -> None:
        self._plan, self._work, self._results = plan, work, results

    def finished(self, cells: Sequence[Cell]) -> set[str]:
        """Names of the runs with a result.

        Raises:
            ValueError: A result was made with another configuration than the study has now.
        """
        done = [cell for cell in cells if cell.path(self._results).is_file()]
        names = {cell.name for cell in done}
        for cell in done:
            if self._is_settled(cell, names):
                self._check_same(self._run(cell))
            else:  # whatever tuning will choose, the rest must be as it is now
                setting = read(cell.path(self._results), CellResult).cell.setting
                assert self._plan.tuning is not None, "or it would be settled"
                if setting not in self._plan.tuning.settings_of(cell.method):
                    raise ValueError(
                        f"{cell.path(self._results)} has the setting {label(setting)}; expected one of those that "
                        "tuning tries. Name another folder (--results), or remove the file to run it again."
                    )
                self._check_same(self._plan.run(replace(cell, setting=setting)))
        return names

    def _is_settled(self, cell: Cell, finished: set[str]) -> bool:
        """Whether the setting of an evaluation is known: its tuning is finished."""
        if cell.phase != "evaluation" or not self._plan.is_tuned(cell.method):
            return True
        return {each.name for each in tuning_of(self._plan, cell.environment, cell.method)} <= finished

    def _run(self, cell: Cell) -> PlannedRun:
        """The run of a cell, with the setting that tuning chose."""
        setting = cell.setting
        if cell.phase == "evaluation":
            setting = chosen(self._plan, cell.environment, cell.method, self._results)
        return self._plan.run(replace(cell, setting=setting))

    def _check_same(self, run: PlannedRun) -> None:
        path = run.cell.path(self._results)
        found = read(path, Fidelity) if run.cell.phase == "fidelity" else read(path, CellResult)
        if found.digest != run.digest:
            raise ValueError(
                f"{path} was made with another configuration ({'; '.join(changed(found.config, run.config))}); "
                "expected results of the study as it is now. Name another folder (--results), restore the study, or "
                "remove the file to run it again."
            )

    def check(self, cells: Sequence[Cell]) -> None:
        """Raise where a configuration has a mistake, before the first run; one seed stands for all."""
        from pettingllms_trl.research.study import cells as trainings  # loads torch
        from pettingllms_trl.research.study import guesser, supervision

        kinds = {(c.phase, c.environment, c.method, label(c.setting)): c for c in cells}
        for cell in kinds.values():
            run = self._plan.run(cell)
            try:
                if run.config.get("guesser"):
                    guesser.check(run)
                else:
                    trainings.check(run, self._work / "check")
                if run.config.get("supervised"):
                    supervision.check(run, self._work / "check")
            except (ValueError, TypeError) as error:
                raise ValueError(f"{cell.method} in {cell.environment}: {error}") from error

    def say(self, cells: Sequence[Cell], finished: set[str]) -> None:
        """Print how many runs there are, how long they take, and what the study can show."""
        plan, num_done = self._plan, sum(cell.name in finished for cell in cells)
        print(f"{plan.name}: {len(cells)} runs, of which {num_done} are finished; results in {self._results}.")
        left = [cell for cell in cells if cell.name not in finished and cell.phase != "fidelity"]
        if left:
            known = [
                found for phase in ("tuning", "evaluation") for found in read_all(self._results, phase, CellResult)
            ]
            print(cost.sentence(left, known))
        for sentence in power.sentences_of(plan.outline()):
            print(sentence)

    def run(self, cells: Sequence[Cell], finished: set[str], *, jobs: int, minutes: float | None) -> int:
        """Run what has no result yet; the exit status."""
        planned = self._jobs([cell for cell in cells if cell.name not in finished])
        counts = {"done": 0, "failed": 0, "busy": 0, "stopped": 0}
        own = schedule.Schedule(planned, finished, seconds=None if minutes is None else 60 * minutes)

        def report(job: schedule.Job, answer: schedule.Answer, seconds: float) -> None:
            counts[answer["status"]] += 1
            print(f"{self._outcome(job, answer)} ({seconds:.0f} s)", flush=True)

        stopped = schedule.run(own, num_workers=jobs, report=report)
        waiting = [job for job in own.waiting if not job.name.startswith("prepare/")]
        print(f"{counts['done']} done, {counts['failed']} failed, {len(waiting)} left.")
        if waiting and not stopped and minutes is None:
            print(
                "What is left needs runs that failed, run elsewhere, or are left out by --only; an evaluation needs "
                "all tuning runs of its method in its environment."
            )
        return 130 if stopped else 1 if counts["failed"] else 0

    def _outcome(self, job: schedule.Job, answer: schedule.Answer) -> str:
        status = answer["status"]
        if status == "done" and not job.name.startswith("prepare/"):
            path = next(iter(self._results.glob(f"{job.name}.json")))
            if job.name.startswith("fidelity/"):
                fidelity = read(path, Fidelity)
                return f"{job.name}: rank correlation {fidelity.correlation}, ceiling {fidelity.ceiling}"
            result = read(path, CellResult)
            return f"{job.name}: {result.rate:.1%}, {result.tokens:,} tokens, {result.steps} steps"
        words = {
            "done": "done",
            "busy": "left out, as another process works on it",
            "stopped": "stopped; the same command goes on",
            "failed": f"failed: {answer.get('error', '')}; see {self._log(job.name)}",
        }
        return f"{job.name}: {words[status]}"

    def _log(self, name: str) -> Path:
        return self._work / "logs" / f"{name}.txt"

    def _jobs(self, cells: Sequence[Cell]) -> list[schedule.Job]:
        """A job for each run, and one before it for each folder that is to be prepared."""
        jobs: list[schedule.Job] = []
        preparing: dict[str, None] = {}
        for cell in cells:
            needs = []
            _, before = self._preparation(cell)
            if before is not None:
                needs.append(before.name)
                if before.name not in preparing:
                    preparing[before.name] = None
                    jobs.append(before)
            if cell.phase == "evaluation" and self._plan.is_tuned(cell.method):
                needs += [each.name for each in tuning_of(self._plan, cell.environment, cell.method)]
            jobs.append(schedule.Job(name=cell.name, needs=tuple(needs), request=partial(self._request, cell)))
        return jobs

    def _preparation(self, cell: Cell) -> tuple[Path | None, schedule.Job | None]:
        prepare = None if self._plan.methods[cell.method].guesser else self._plan.prepare
        return preparation_of(prepare, cell, self._work, self._work / "logs")

    def _request(self, cell: Cell) -> Mapping[str, object]:
        return request_of(
            self._run(cell),
            folder=self._work.joinpath("runs", *cell.parts),
            prepared=self._preparation(cell)[0],
            results=self._results,
            log=self._log(cell.name),
        )


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
