"""One run of a study: trains until the tokens are spent, evaluates, and returns the result; resumes after a kill.

A run is a `pettingllms train` configuration. Its folder has `train.yaml`, the trainer's output, and once it is
finished the trained team in `team`, which `pettingllms bench --team` can load.
"""

from __future__ import annotations

import gc
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from transformers import TrainerCallback, set_seed
from trl.trainer.utils import get_config_model_id

from pettingllms_envs import recorded_settings
from pettingllms_envs.agents import file_digest
from pettingllms_envs.research.studies.results import CellResult
from pettingllms_trl.checkpoints import atomic
from pettingllms_trl.cli import arguments
from pettingllms_trl.cli.datasets import makers
from pettingllms_trl.cli.train import KINDS, make_trainer
from pettingllms_trl.records import Episode
from pettingllms_trl.research.study.machine import CpuSeconds, machine_facts
from pettingllms_trl.research.study.plans.plan import PlannedRun, filled
from pettingllms_trl.trainer.trainer import MultiAgentGRPOTrainer


HELD_OUT = "held_out"
LOGGED = ("outcome/success", "reward", "entropy", "frac_reward_zero_std")
NUM_PORTIONS = 25


class Stopped(Exception):
    """A signal ended the run; it goes on from its checkpoint when the study is started again."""


def check(run: PlannedRun, folder: Path) -> None:
    """Raise as `pettingllms train` does where a run's configuration has a mistake. No model is loaded."""
    given, _, _, config = _parsed(run, folder, None)
    arguments.check_model(config)
    makers(given)
    if given.credit is not None:
        arguments.choice("credit", given.credit)
    for one in [given.filters] if isinstance(given.filters, str | dict) else given.filters:
        arguments.choice("filters", one)


def run_cell(run: PlannedRun, folder: Path, prepared: Path | None) -> CellResult:
    """Train and evaluate. In the folder of the run, what an earlier start of it left there is used.

    Raises:
        Stopped: A signal ended it.
        RuntimeError: Training ended before its tokens were spent, or an instance of the evaluation was not played.
    """
    made, output = machine_facts(), folder / "output"
    _discard_other(run, folder)
    resumes = atomic.newest(output) is not None
    cpu_seconds = CpuSeconds(folder / "cpu_seconds", resumes=resumes)
    with open_trainer(run, folder, prepared) as trainer:
        model = Path(get_config_model_id(trainer.model.config))
        rows = list(trainer.eval_dataset)
        curve = HeldOutCurve(trainer, rows, tokens=run.config["tokens"], **run.config["curve"])
        if run.config["trained"]:
            trainer.add_callback(curve)
            trainer.add_callback(cpu_seconds)
            trainer.train(resume_from_checkpoint=resumes or None)
            if trainer.stopped_by is not None:
                raise Stopped(f"stopped by {trainer.stopped_by} at step {trainer.state.global_step}")
            check_spent(trainer.token_budget.num_generated, run.config["tokens"], trainer.state.global_step)
        set_seed(run.cell.seed)  # so that the same weights are evaluated alike, however they were trained
        success = played(trainer, rows, "evaluation")
        points = [*held_out(trainer.state.log_history), (trainer.token_budget.num_generated, success)]
        trainer.save_model(str(folder / "team"))
        used = sum(log.get("rollout/used_tokens", 0.0) for log in trainer.state.log_history)
        history = [log for log in trainer.state.log_history if "rollout/total_sampled_tokens" in log]
        result = CellResult(
            cell=run.cell,
            config=run.config,
            digest=run.digest,
            success=success,
            tokens=trainer.token_budget.num_generated,
            steps=trainer.state.global_step,
            seconds=round(sum(log.get("step_time", 0.0) for log in history), 3),
            curve=_curve(points, run.config["curve"]["instances"]) if run.config["curve"]["points"] else {},
            training=portions(history),
            cpu_seconds=round(cpu_seconds.total, 1),
            model=file_digest.of_model(model) if model.is_dir() else "",
            rows=_num_rows(trainer),
            uses=round(used / max(trainer.token_budget.num_generated, 1), 3),
            **made,
        )
    shutil.rmtree(output)
    return result


@contextmanager
def open_trainer(run: PlannedRun, folder: Path, prepared: Path | None, **more: Any) -> Iterator[MultiAgentGRPOTrainer]:
    """The trainer of a run, with further fields, whose memory is freed at the end."""
    trainer = make_trainer(*_parsed(run, folder, prepared, **more))
    try:
        yield trainer
    finally:
        trainer.accelerator.end_training()
        del trainer
        gc.collect()


def fields_of(run: PlannedRun, prepared: Path | None) -> dict[str, Any]:
    """The fields of a run's training, without what is the run's own."""
    cell = run.cell
    return as_recorded(
        filled(run.config["train"], seed=cell.seed, environment=cell.environment, folder=str(prepared or ""))
    )


def _parsed(run: PlannedRun, folder: Path, prepared: Path | None, **more: Any) -> tuple[Any, ...]:
    """The arguments of a run, by way of a file that `pettingllms train --config` would take."""
    fields = {
        **fields_of(run, prepared),
        "output_dir": str(folder / "output"),
        "eval_strategy": "no",
        **({"max_generated_tokens": run.config["tokens"]} if run.config.get("tokens") else {}),
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "train.yaml"
    file.write_text(yaml.safe_dump(fields, sort_keys=False), "utf-8")
    return arguments.parse(["--config", str(file)], KINDS, prog="pettingllms study")


def as_recorded(train: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a training; where they say nothing, replies are read strictly, eight rows evaluated at once."""
    train = {"per_device_eval_batch_size": 8, **train}
    if "env_id" not in train:
        return train
    return {**train, "env_kwargs": recorded_settings(train["env_id"], train.get("env_kwargs") or {}, trusted=True)}


def _discard_other(run: PlannedRun, folder: Path) -> None:
    """Remove what a run of another configuration has left, and a training without a checkpoint."""
    marker, output = folder / "digest", folder / "output"
    same = marker.is_file() and marker.read_text("utf-8") == run.digest
    if output.exists() and not (same and atomic.newest(output)):
        shutil.rmtree(output)
    folder.mkdir(parents=True, exist_ok=True)
    marker.write_text(run.digest, "utf-8")


def check_spent(spent: int, budget: int, steps: int) -> None:
    """Raise `RuntimeError` if a run generated fewer tokens than its budget, with which others are compared."""
    if spent < budget:
        raise RuntimeError(
            f"training ended after {steps} steps and {spent:,} generated tokens; expected {budget:,}, as the study's "
            "methods are compared at equal tokens. Give a greater max_steps, or leave it out."
        )


def played(trainer: MultiAgentGRPOTrainer, rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """Which of the rows succeed, as one character each."""
    return successes(trainer.play(rows, name=name), len(rows))


def successes(episodes: Sequence[Episode], number: int) -> str:
    """One character for each episode: `"1"` if it succeeded."""
    if len(episodes) < number:
        raise RuntimeError(
            f"{number - len(episodes)} of {number} instances could not be played, as their environment failed; "
            "a failure of the environment is no failure of the method. Fix the environment."
        )
    if any("success" not in episode.outcome for episode in episodes):
        raise RuntimeError(
            f"the outcome is {dict(episodes[0].outcome)}; expected a `success`. A study compares success; add it to "
            "the environment's outcome."
        )
    return "".join("1" if episode.outcome["success"] else "0" for episode in episodes)


class HeldOutCurve(TrainerCallback):
    """Evaluates on a part of the evaluation's instances before and during training, at even shares of the tokens.

    What it finds is kept in the trainer's log history, which checkpoints hold. Nothing is chosen by it.

    Args:
        points: How often, the start included and the end not, which the evaluation adds.
    """

    def __init__(
        self,
        trainer: MultiAgentGRPOTrainer,
        rows: Sequence[Mapping[str, Any]],
        *,
        tokens: int,
        points: int,
        instances: int,
    ) -> None:
        self._trainer, self._rows = trainer, rows[:instances]
        self._tokens, self._points = tokens, points

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate before the first step; see `TrainerCallback`."""
        self._evaluate_if_due(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate where the next share of the tokens is spent; see `TrainerCallback`."""
        self._evaluate_if_due(state)

    def _evaluate_if_due(self, state: Any) -> None:
        number, tokens = len(held_out(state.log_history)), self._trainer.token_budget.num_generated
        if number < self._points and number * self._tokens / self._points <= tokens < self._tokens:
            success = played(self._trainer, self._rows, f"{HELD_OUT}/{state.global_step}")
            state.log_history.append({"step": state.global_step, f"{HELD_OUT}/tokens": tokens, HELD_OUT: success})


def held_out(log_history: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """Tokens and successes of the evaluations during training."""
    return [(log[f"{HELD_OUT}/tokens"], log[HELD_OUT]) for log in log_history if HELD_OUT in log]


def _num_rows(trainer: MultiAgentGRPOTrainer) -> int:
    """Instances that were played in training."""
    micro_steps = trainer.state.global_step * trainer.args.gradient_accumulation_steps
    generations = math.ceil(micro_steps / trainer.plan.micro_steps)
    return trainer.collector.rows_played.number or generations * trainer.plan.rows


def _curve(points: Sequence[tuple[int, str]], instances: int) -> dict[str, list[float]]:
    """Success on the same instances at each point."""
    return {
        "tokens": [float(tokens) for tokens, _ in points],
        "success": [success[:instances].count("1") / instances for _, success in points],
    }


def portions(history: Sequence[Mapping[str, Any]], number: int = NUM_PORTIONS) -> dict[str, list[float | None]]:
    """Means of logged metrics over consecutive portions of the steps, and the tokens at the end of each."""
    size = max(1, -(-len(history) // number))
    parts = [history[i : i + size] for i in range(0, len(history), size)]
    found: dict[str, list[float | None]] = {"tokens": [part[-1]["rollout/total_sampled_tokens"] for part in parts]}
    for name in LOGGED:
        values = [[float(log[name]) for log in part if name in log] for part in parts]
        if any(values):
            found[name] = [round(sum(own) / len(own), 4) if own else None for own in values]
    return found if history else {}
