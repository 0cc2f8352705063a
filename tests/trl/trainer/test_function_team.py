"""A team that is written as a function trains as the same team as a class: equal weights, to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from datasets import Dataset

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import (
    UNREADABLE_PENALTY,
    Role,
    Unreadable,
    play,
    situation,
    system_prompt,
    team_return,
)
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.teams.base import BaseWorkflow
from pettingllms_envs.teams.proposal import DRAFTER, PLANNER, DraftPlan, ranges
from pettingllms_trl import MultiAgentGRPOTrainer
from short_runs import settings


REPLIES = ("Moves: U", "Moves: R R", "Moves: D", "Moves: L D", "Moves: D R", "I do not know")


class Turn(NamedTuple):
    """The task's state, the turn, the words about the last one; of a proposal its words and what it was paid."""

    task: Any
    turn: int = 1
    feedback: str = ""
    words: str = ""
    credited: float = 0.0


@dataclass(frozen=True)
class ClassPlan(BaseWorkflow[Any, Any]):
    """`draft_plan` as a state machine."""

    name: ClassVar[str] = "draft_plan"
    roles: ClassVar[tuple[Role, ...]] = (DRAFTER, PLANNER)

    def start(self, task_state: Any) -> Turn:
        return Turn(task_state)

    def actor(self, state: Turn) -> str:
        return self.roles[bool(state.words)].name

    def system(self, role: str) -> str:
        return system_prompt(self.task, self.roles[role == PLANNER.name])

    def observe(self, state: Turn, role: str) -> str:
        return situation(self, state, state.feedback, state.words if role == PLANNER.name else "")

    def step(self, state: Turn, reply: str) -> Any:
        task, drafter = self.task, DRAFTER.name
        if not state.words:
            move, before = task.parse(reply), team_return(task, state.task)
            if isinstance(move, Unreadable):
                words, parts = f"The drafter's reply was unreadable: {move.reason}.", {"format": UNREADABLE_PENALTY}
                return state._replace(words=words, credited=before), {drafter: parts}, False, False
            after = task.apply(state.task, move)
            parts = {"draft": team_return(task, after) - before, **task.costs(state.task, move, after)}
            words = f"The drafter proposes: {task.describe(state.task, move, after, proposed=True)}"
            return state._replace(words=words, credited=before + sum(parts.values())), {drafter: parts}, False, False
        board, solved, paid, feedback = play(task, state.task, reply, PLANNER.name)
        paid[drafter] = {"settle": team_return(task, board) - state.credited}
        over = solved or state.turn == self.num_turns
        return Turn(board, state.turn + (not over), feedback), paid, solved, over and not solved

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {**super().ranges(), **ranges(self)}


def trained(workflow: Any, model_path: str, folder: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """The weights and the log of three steps with trees."""
    trainer = MultiAgentGRPOTrainer(
        model=model_path,
        env=partial(make, workflow),
        policies="full",
        args=settings(folder, generation_batch_size=16, max_steps=3, seed=3),
        train_dataset=Dataset.from_dict({"seed": range(12)}),
    )
    # Moves for whatever is sampled, so that candidates differ in rewards.
    trainer.processing_class.batch_decode = lambda rows, **_: [
        REPLIES[sum(map(int, ids)) % len(REPLIES)] for ids in rows
    ]
    trainer.train()
    return {name: w.detach().clone() for name, w in trainer.model.named_parameters()}, trainer.state.log_history


def make(workflow: Any) -> TextEnv:
    return TextEnv(workflow(PlanPath(size=4), num_turns=2))


@pytest.mark.slow
def test_trees_of_a_function_give_the_weights_that_those_of_the_class_give(model_path: str, tmp_path: Path) -> None:
    weights, log = trained(DraftPlan, model_path, tmp_path / "function")
    expected, log_of_class = trained(ClassPlan, model_path, tmp_path / "class")
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert [each["grad_norm"] for each in log[:3]] == [each["grad_norm"] for each in log_of_class[:3]]
    assert all(each["grad_norm"] > 0 for each in log[:3])
