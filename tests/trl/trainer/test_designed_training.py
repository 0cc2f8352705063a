"""Training a designed team."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset

import pettingllms_envs
from fixed_pair import PAIR, fixed_pair
from pettingllms_envs.workflows.designs import write_design
from pettingllms_trl import MultiAgentGRPOTrainer, Policy
from short_runs import KeepsRollouts, adapter, around_generation, settings


class Team(KeepsRollouts, MultiAgentGRPOTrainer):
    """Keeps rollouts."""


def trained(model: str, env: Any, path: Path, **policies: Any) -> Team:
    args = settings(path, max_steps=2)
    data = Dataset.from_dict({"seed": range(16)})
    credit = {"at_grpo": {"value": "return_to_go"}}
    trainer = Team(model, env, args, data, credit=credit, policies={"member": "m", **policies}, peft_config=adapter())
    moves = [trainer.processing_class(f"Moves: {letter}")["input_ids"] for letter in "UDLR"]

    def readable(prompts: Any, sample: Any) -> Any:
        """Every second reply is a move, so that rewards differ."""
        ids, logprobs, *rest = sample()
        ids = [moves[i // 2 % 4] if i % 2 else each for i, each in enumerate(ids)]
        if logprobs is not None:
            logprobs = [[-1.0] * len(ids[i]) if i % 2 else each for i, each in enumerate(logprobs)]
        return (ids, logprobs, *rest)

    around_generation(trainer, readable)
    trainer.train()
    return trainer


def test_a_designed_team_in_which_all_is_fixed_is_trained_as_the_same_turn_workflow(
    model_path: str, tmp_path: Path
) -> None:
    def designer(messages: Sequence[Any]) -> str:
        return write_design(PAIR)

    fixed = trained(model_path, fixed_pair, tmp_path / "fixed")
    env = partial(pettingllms_envs.make, "plan_path", workflow="designed", size=3)
    designed = trained(model_path, env, tmp_path / "designed", designer=Policy(api=designer))
    of_fixed, of_designed = (
        [d for rollout in trainer.rollouts for e in rollout for d in e.decisions if d.agent != "designer_0"]
        for trainer in (fixed, designed)
    )
    assert [(d.agent, d.prompt) for d in of_fixed] == [(d.agent, d.prompt) for d in of_designed]
    rewards = [[c.reward for c in d.candidates] for d in of_fixed]
    assert rewards == [[c.reward for c in d.candidates] for d in of_designed]
    assert len({reward for group in rewards for reward in group}) > 1
    losses = [[each["loss"] for each in t.state.log_history if "loss" in each] for t in (fixed, designed)]
    assert losses[0] == losses[1] != [0.0, 0.0]
    weights = [dict(trainer.model.named_parameters()) for trainer in (fixed, designed)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert weights[0].keys() == weights[1].keys()
