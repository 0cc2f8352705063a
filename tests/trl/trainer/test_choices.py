"""Choices of a run that reach the rollout: continuations for the credit, and a curriculum of levels."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from pettingllms_envs import plan_path_v0
from pettingllms_envs.aec import TextEnv
from pettingllms_trl import Curriculum, MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.rollout.curriculum import Progress
from pettingllms_trl.trainer.setup import Setup
from short_runs import settings
from third_party import OneShot, Relay


def trainer(model: str, path: Path, *, env: Any = Relay, **options: Any) -> MultiAgentGRPOTrainer:
    own = {name: options.pop(name) for name in ("credit", "curriculum", "policies") if name in options}
    args = settings(path, **{"max_completion_length": 4, "max_steps": 2, **options})
    return MultiAgentGRPOTrainer(model, env, args, Dataset.from_dict({"seed": range(64)}), **own)


def test_a_run_is_judged_by_continuations_of_each_candidate(model_path: str, tmp_path: Path) -> None:
    seen = []

    def spying(decisions: Any) -> list[list[float]]:
        seen.append([len(c.continuations) for d in decisions for c in d.candidates])
        return [[0.0] * len(d.candidates) for d in decisions]

    trainer(model_path, tmp_path, num_continuations=2, credit=spying).train()
    assert all(set(lengths) == {2} for lengths in seen[1:])  # the first call tries a made-up rollout
    assert len(seen) == 3
    trainer(model_path, tmp_path, num_continuations=2, credit="counterfactual").train()


def test_counterfactual_credit_without_continuations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"credit='counterfactual' with 0 continuations of each candidate, expected at"
    ):
        trainer(str(tmp_path / "no model"), tmp_path, credit="counterfactual")


def test_a_curriculum_writes_the_level_and_goes_on_where_a_checkpoint_was(model_path: str, tmp_path: Path) -> None:
    levels = []

    class Noted(TextEnv):
        def reset(self, seed: int | None = None, options: Any = None) -> None:
            levels.append((options or {}).get("level"))
            super().reset(seed, options)

    def make() -> Any:
        return Noted(plan_path_v0.raw_env(size=5, num_turns=1).workflow)

    curriculum = Curriculum(levels=(1, 2), window=2, advance_at=1.0)
    run = trainer(model_path, tmp_path, env=make, curriculum=curriculum, save_strategy="steps", save_steps=1)
    run.train()
    assert set(levels[1:]) == {1}  # the first reset is the look at the door
    assert run.state.log_history[0]["curriculum/level"] == 1.0
    again = trainer(model_path, tmp_path, env=make, curriculum=curriculum, max_steps=3)
    again.collector.curricula.progress = {"": Progress(1, (True,))}
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert again.collector.curricula.progress[""].index == 0  # as the checkpoint says


@pytest.mark.parametrize(
    ("curriculum", "message"),
    [
        (Curriculum(levels=(1, 9)), r"the curriculum has the levels \[9\]; the environment's level is one of \[1, 2,"),
        (Curriculum(levels=(1,), field="hardness"), "the curriculum's field is 'hardness', which the environment"),
    ],
)
def test_a_curriculum_of_what_the_environment_does_not_know_is_refused(
    curriculum: Curriculum, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        trainer(str(tmp_path / "no model"), tmp_path, env="pettingllms/plan_path-v0", curriculum=curriculum)


def test_tensorboard_gets_the_figures_of_each_agent_and_policy(model_path: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = trainer(model_path, tmp_path, policies="lora", report_to="tensorboard", logging_steps=1)
    run.train()
    run.evaluate(Dataset.from_dict({"seed": [100]}))
    (folder,) = (tmp_path / "runs").iterdir()
    events = EventAccumulator(str(folder))
    events.Reload()
    for role in ("opener", "closer"):
        for key in (f"train/agent/{role}_0/reward", f"train/policy/{role}/grad_norm"):
            logged = [log[key.removeprefix("train/")] for log in run.state.log_history if "loss" in log]
            assert [(event.step, event.value) for event in events.Scalars(key)] == [
                (step, pytest.approx(value)) for step, value in enumerate(logged, start=1)
            ]
    assert [event.step for event in events.Scalars("eval/agent/opener_0/reward")] == [2]


def setup_of(env: Any, args: MultiAgentGRPOConfig, **given: Any) -> Setup:
    names = ("eval_dataset", "processing_class", "reward_funcs", "reward_processing_classes", "filters", "curriculum")
    others = {**dict.fromkeys((*names, "schedule", "optimizer")), **given}
    rows = Dataset.from_dict({"seed": range(4)})
    return Setup.of(model="any", env=env, args=args, train_dataset=rows, policies="shared", **others)


class Paid(OneShot):
    """A question that declares what it pays."""

    def __init__(self, **ranges: tuple[float, float]) -> None:
        super().__init__()
        self.metadata = {**OneShot.metadata, "reward_ranges": ranges}


@pytest.mark.parametrize(
    ("ranges", "options", "named"),
    [
        ({"success": (0, 1), "format": (-0.2, 0)}, {}, "'format' is at least -0.2"),
        ({"success": (0, 1)}, {"crash_reward": -1.0}, "'crash' is at least -1"),
        ({"cost": (0, 2)}, {"reward_parts": {"cost": -0.5}}, "'cost' is at least -1"),
        ({"success": (0, 1), "format": (-0.2, 0)}, {"reward_parts": {"format": 0.0}}, None),
        ({"base": (1, 1), "format": (-0.2, 0)}, {}, None),
        ({"success": (0, 1), "format": (-0.2, 0)}, {"credit": "loo"}, None),
        ({"success": (0, 1), "format": (-0.2, 0)}, {"reward_funcs": lambda completions, **_: [1.0] * 4}, None),
        ({}, {}, None),
    ],
)
def test_credit_that_takes_no_reward_below_0_is_refused_at_creation_where_an_environment_may_pay_one(
    ranges: dict[str, tuple[float, float]], options: dict[str, Any], named: str | None, tmp_path: Path
) -> None:
    options = dict(options)
    given: dict[str, Any] = {"credit": "max_rl", "reward_funcs": None}
    given |= {name: options.pop(name) for name in ("credit", "reward_funcs") if name in options}
    create = partial(setup_of, partial(Paid, **ranges), settings(tmp_path, sampling="tree", **options), **given)
    if named is None:
        create()
    else:
        with pytest.raises(ValueError, match=named):
            create()


def test_a_filter_by_name_compares_what_the_credit_does(tmp_path: Path) -> None:
    args = settings(tmp_path, sampling="tree", num_continuations=1)
    setup = setup_of(OneShot, args, credit="counterfactual", filters="nonzero_variance")
    (compared,) = setup.filters
    assert isinstance(compared, partial)
    assert compared.keywords["value"] == "value"
