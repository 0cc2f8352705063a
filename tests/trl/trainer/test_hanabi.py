"""Hanabi is trained in self-play, and with a bot as a partner."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.environments.hanabi.cards import COLOR, PLAY, HanabiMove
from pettingllms_envs.environments.hanabi.rules import Hanabi
from pettingllms_envs.teams.cooperative import AdHoc, CooperativeTeam
from pettingllms_trl import MultiAgentGRPOTrainer
from short_runs import KeepsRollouts, settings


MOVES = (HanabiMove(PLAY, 0), HanabiMove(PLAY, 1), HanabiMove(COLOR, 0, 1))


@dataclass(frozen=True, slots=True)
class ByLetters(Hanabi):
    """Hanabi of one color for a model of random weights, whose letters add up to a move."""

    level: int = 1
    wording: str = "symbols"

    def parse(self, reply: str) -> HanabiMove:
        return MOVES[sum(map(ord, reply)) % len(MOVES)]


class Table(KeepsRollouts, MultiAgentGRPOTrainer):
    """Keeps the rollouts."""


@pytest.mark.parametrize(
    ("team", "agents"),
    [
        pytest.param(partial(AdHoc, partner="iggi"), {"player_0"}, id="with a bot"),
        pytest.param(CooperativeTeam, {"player_0", "player_1"}, id="self-play"),
    ],
)
def test_hanabi_is_trained(team: Any, agents: set[str], model_path: str, tmp_path: Path) -> None:
    trainer = Table(
        model=model_path,
        env=lambda: TextEnv(team(ByLetters())),
        args=settings(tmp_path, sampling="parallel", max_steps=3),
        train_dataset=Dataset.from_dict({"seed": range(24)}),
        credit="grpo",
    )
    before = [each.detach().clone() for each in trainer.model.parameters()]
    trainer.train()
    episodes = [episode for rollout in trainer.rollouts for episode in rollout]
    assert {decision.agent for episode in episodes for decision in episode.decisions} == agents
    assert not all(torch.equal(one, other) for one, other in zip(before, trainer.model.parameters(), strict=True))
