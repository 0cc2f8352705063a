"""When the trainer advises to play the rows of several optimizer steps together."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.trainer import rollout_times
from pettingllms_trl.trainer.rollout_times import RolloutTimes
from short_runs import settings
from third_party import Relay


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def said(steps: list[tuple[float, float]], **options: Any) -> list[str]:
    """What is warned of in steps of so many seconds of rollouts and of the rest."""
    given: dict[str, Any] = {"gradient_accumulation_steps": 8, "steps_per_generation": 8, "max_envs": None, **options}
    warnings: list[str] = []
    clock = Clock()
    times = RolloutTimes(SimpleNamespace(imitate=None, **given), warnings.append, now=clock)
    for number, (rollout, update) in enumerate(steps):
        state: Any = SimpleNamespace(global_step=number)
        clock.time += 100  # evaluation, a checkpoint
        times.on_step_begin(None, state, None)
        with times.rollout():
            clock.time += rollout
        clock.time += update
        times.on_optimizer_step(None, state, None)
    return warnings


def test_rollouts_of_more_than_three_times_the_update_are_warned_of_once() -> None:
    # The first step is left out; the four after it take 31 s to 10 s on average.
    (warning,) = said([(31.0, 10.0)] * 20)
    assert warning.startswith("step 4: over the last 4 optimizer steps rollouts took 3 times as long as updates (31 s")
    assert "set steps_per_generation=16 (twice gradient_accumulation_steps" in warning
    assert "max_envs" not in warning


def test_a_limit_on_environments_is_named() -> None:
    (warning,) = said([(60.0, 10.0)] * 5, max_envs=16)
    assert warning.endswith("max_envs=16 limits what is in play at once: raise it, too.")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(30.0, 10.0)] * 20, id="three times"),
        pytest.param([(31.0, 10.0)] * 4, id="too few steps"),
        pytest.param([(500.0, 10.0)] + [(20.0, 10.0)] * 20, id="the first is slow"),
        pytest.param([(4.0, 0.5)] * 20, id="all is quick"),
    ],
)
def test_otherwise_nothing_is_said(steps: list[tuple[float, float]]) -> None:
    assert said(steps) == []


def test_what_became_slow_later_is_warned_of() -> None:
    # Of the four last steps two took 20 s and two 41 s: 122 s to 40 s, for the first time in the step with number 9.
    (warning,) = said([(20.0, 10.0)] * 8 + [(41.0, 10.0)] * 2)
    assert warning.startswith("step 9: ")


def test_several_updates_of_a_generation_are_what_is_advised() -> None:
    assert said([(60.0, 10.0)] * 20, steps_per_generation=16) == []


def test_the_trainer_measures_its_rollouts_and_warns(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_times, "MOST", 0.0)
    monkeypatch.setattr(rollout_times, "SHORT", 0.0)
    rows = Dataset.from_dict({"seed": range(16)})
    trainer = MultiAgentGRPOTrainer(model_path, Relay, settings(tmp_path, max_steps=6), rows)
    with pytest.warns(
        UserWarning, match="step 4: over the last 4 optimizer steps rollouts took .* steps_per_gen"
    ) as w:
        trainer.train()
    assert sum("over the last" in str(warning.message) for warning in w) == 1
