"""Training a designed team."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

import pettingllms_envs
from fixed_pair import PAIR, fixed_pair
from pettingllms_envs.teams.designs import write_design
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


@pytest.mark.slow
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


def test_all_members_share_an_adapter_and_only_those_who_act_are_paid_and_trained(
    model_path: str, tmp_path: Path
) -> None:
    env = partial(pettingllms_envs.make, "plan_path", workflow="designed", size=3, reply_chars=20)
    credit = {"at_grpo": {"value": "return_to_go"}}
    data = Dataset.from_dict({"seed": range(16)})
    args = settings(tmp_path, max_steps=1, max_completion_length=150, per_device_train_batch_size=4)
    trainer = Team(model_path, env, args, data, credit=credit, policies="lora", peft_config=adapter())
    pair = trainer.processing_class(write_design(PAIR))["input_ids"]

    def designing(prompts: Any, sample: Any) -> Any:
        """The first reply to each of the designer's prompts is a design of two members."""
        ids, logprobs, *rest = sample()
        ids, logprobs = list(ids), None if logprobs is None else list(logprobs)
        prompts = list(map(tuple, prompts))
        for i, prompt in enumerate(prompts):
            if prompt not in prompts[:i] and "You are the designer" in trainer.processing_class.decode(prompt):
                ids[i] = pair
                if logprobs is not None:
                    logprobs[i] = [-1.0] * len(pair)
        return (ids, logprobs, *rest)

    around_generation(trainer, designing)
    trainer.train()
    assert set(trainer.team.routing.adapters) == {"designer", "member"}
    for episode in trainer.rollouts[0]:
        first = episode.decisions[0]
        assert [c.parts for c in first.candidates] == [{"size": -0.02}] + [{"format": -0.2}] * 3
        assert [d.agent for d in episode.decisions] == ["designer_0", "member_0", "member_1"]
        assert episode.returns.keys() == {"designer_0", "member_0", "member_1"}
        assert episode.outcome["team_size"] == 2
