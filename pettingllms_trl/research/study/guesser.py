"""The run of a guesser: the best of the task's policies that do not read, on the evaluation's instances. No model.

Every policy and every reply that the task names is played, and the most successful one is the result; as it is chosen
by the instances on which it is reported, its rate is rather too high than too low. A policy's own choices are drawn
from the run's seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pettingllms_envs.episodes.episode import Instance
from pettingllms_envs.evaluation.guessers import best_guesser, guessers_of
from pettingllms_envs.research.studies.results import CellResult
from pettingllms_trl.cli import arguments
from pettingllms_trl.cli.datasets import seeds_and_levels
from pettingllms_trl.research.study.cells import as_recorded
from pettingllms_trl.research.study.machine import cpu_time, machine_facts
from pettingllms_trl.research.study.plans.plan import PlannedRun, filled
from pettingllms_trl.rollout.env_checks import env_maker


def check(run: PlannedRun) -> None:
    """Raise where the environment cannot be made, or its task names nothing to play."""
    _, make_env = _environment(run)
    env = make_env()
    if not guessers_of(env):
        raise ValueError(
            f"the task of {env.metadata.get('name')} has neither blind_policies nor blind_replies; expected some for "
            f"a guesser to play. Add them to the task, or limit {run.cell.method} to other environments by `only`."
        )


def run_guesser(run: PlannedRun, folder: Path, prepared: Path | None) -> CellResult:
    """Play them all. Folders are not used: nothing is loaded or saved."""
    began = cpu_time()
    train, make_env = _environment(run)
    rows = seeds_and_levels("eval_seeds", train["eval_seeds"], train.get("eval_levels"), train["eval_split"])
    assert rows is not None
    instances = [
        Instance(index=i, seed=row["seed"], options={name: row[name] for name in row if name != "seed"})
        for i, row in enumerate(rows)
    ]
    best = best_guesser(make_env, instances, run.cell.seed)
    return CellResult(
        cell=run.cell,
        config=run.config,
        digest=run.digest,
        success="".join("1" if success else "0" for success in best.successes),
        tokens=0,
        steps=0,
        seconds=0.0,
        cpu_seconds=round(cpu_time() - began, 1),
        guesser=best.name,
        **machine_facts(),
    )


def _environment(run: PlannedRun) -> tuple[Mapping[str, Any], Callable[[], Any]]:
    """The run's fields, and a function that makes its environment."""
    cell = run.cell
    train = filled(run.config["train"], seed=cell.seed, environment=cell.environment, folder="")
    if "env_id" not in train:
        raise ValueError(f"{cell.environment} has no env_id; expected one environment for a guesser. Add env_id.")
    arguments.import_packages(train.get("imports", []))
    train = as_recorded(train)
    return train, env_maker(train["env_id"], train["env_kwargs"])
