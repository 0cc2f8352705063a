"""Agents that compete are trained by their own returns: in self-play, with a model each, or against a partner."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.environments.kuhn_poker.rules import KuhnPoker
from pettingllms_envs.teams.match import Match
from pettingllms_trl import Decision, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.credit import Advantages, grpo
from short_runs import KeepsRollouts, adapter, settings


@dataclass(frozen=True, slots=True)
class ByLetters(KuhnPoker):
    """Kuhn poker for a model of random weights: replies of an odd sum of letters bet, all others pass."""

    def parse(self, reply: str) -> str:
        return "bet" if sum(map(ord, reply)) % 2 else "pass"


def kuhn(players: int = 2) -> TextEnv:
    return TextEnv(Match(ByLetters(players=players)))


class Table(KeepsRollouts, MultiAgentGRPOTrainer):
    """Keeps the rollouts."""


class KeepsAdvantages:
    """GRPO's credit, with the decisions and advantages of all generations."""

    def __init__(self) -> None:
        self.found: list[tuple[Decision, float]] = []

    def __call__(self, decisions: Sequence[Decision], /) -> Advantages:
        advantages = grpo(decisions, scale="none")
        self.found += [(decision, own[0]) for decision, own in zip(decisions, advantages, strict=True)]
        return advantages


def table(model: str, path: Path, *, env: Any = kuhn, policies: Any = "shared", **options: Any) -> Table:
    """A trainer for 3 steps of 4 rows of 4 episodes."""
    credit = options.pop("credit", "rae")
    return Table(
        model=model,
        env=env,
        args=settings(path, **{"sampling": "parallel", "max_steps": 3, "seed": 3, **options}),
        train_dataset=Dataset.from_dict({"seed": range(24)}),
        policies=policies,
        credit=credit,
        peft_config=adapter() if isinstance(policies, dict) and "learner" in policies.values() else None,
    )


def moved(trainer: Table, train: Any) -> set[str]:
    """Names of the parameters that `train()` changes."""
    before = {name: each.detach().clone() for name, each in trainer.model.named_parameters()}
    train()
    return {name for name, each in trainer.model.named_parameters() if not torch.equal(each, before[name])}


@pytest.mark.parametrize("players", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_in_self_play_one_policy_is_trained_on_all_sides_by_returns_that_add_up_to_0(
    players: int, model_path: str, tmp_path: Path
) -> None:
    trainer = table(model_path, tmp_path, env=lambda: kuhn(players))
    assert moved(trainer, trainer.train)
    episodes = [episode for rollout in trainer.rollouts for episode in rollout]
    assert len(trainer.rollouts) == 3
    assert all(sum(episode.returns.values()) == 0 for episode in episodes)
    assert {len(episode.returns) for episode in episodes} == {players}
    seen = trainer.state.log_history[0]
    assert {f"agent/player_{i}/return" for i in range(players)} <= seen.keys(), sorted(seen)


def test_with_a_full_model_for_each_player_both_are_trained(model_path: str, tmp_path: Path) -> None:
    policies = {
        "player_0": Policy(model=model_path, name="first"),
        "player_1": Policy(model=model_path, name="second"),
    }
    trainer = table(model_path, tmp_path, policies=policies)
    changed = moved(trainer, trainer.train)
    assert any("first" in name for name in changed)
    assert any("second" in name for name in changed)


def test_what_one_player_s_decision_gains_by_an_episode_the_other_s_loses(model_path: str, tmp_path: Path) -> None:
    """The returns of two players are opposite in every episode of an instance, so their advantages are, too."""
    credit = KeepsAdvantages()
    table(model_path, tmp_path, credit=credit, max_steps=1).train()
    of_episode: dict[tuple[int, int], dict[str, set[float]]] = {}
    for decision, advantage in credit.found:
        agents = of_episode.setdefault((decision.instance, decision.episode), {})
        agents.setdefault(decision.agent, set()).add(round(advantage, 9))
    pairs = [(first, second) for agents in of_episode.values() for first, second in [tuple(agents.values())]]
    assert pairs
    assert all({-each for each in first} == second for first, second in pairs)
    assert any(first != {0.0} for first, _ in pairs)


def test_a_learner_is_trained_against_a_frozen_partner_on_its_own_decisions_alone(
    model_path: str, tmp_path: Path
) -> None:
    trainer = table(model_path, tmp_path, policies={"player_0": "learner", "player_1": Policy(trainable=False)})
    changed = moved(trainer, trainer.train)
    assert changed
    assert all("learner" in name for name in changed)


def test_the_reward_of_the_own_step_is_warned_of_in_words_and_a_return_is_not(model_path: str, tmp_path: Path) -> None:
    with pytest.warns(
        UserWarning, match=r"player_0, player_1 are paid at later steps .* agents compete: set sampling"
    ):
        table(model_path, tmp_path, sampling="tree", credit="at_grpo")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table(model_path, tmp_path, sampling="tree", credit={"at_grpo": {"value": "return_to_go"}})
        table(model_path, tmp_path, credit="rae")
    assert not [each for each in caught if "paid at later steps" in str(each.message)]


@pytest.mark.slow
def test_a_tree_trains_players_by_the_returns_that_follow(model_path: str, tmp_path: Path) -> None:
    trainer = table(model_path, tmp_path, sampling="tree", credit="counterfactual", num_continuations=1)
    assert moved(trainer, trainer.train)
    for episode in trainer.rollouts[0]:
        assert sum(episode.returns.values()) == 0
