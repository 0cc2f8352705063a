"""Demonstrations for the warm-up: an oracle, careless now and then, plays every role, and its replies are kept."""

from __future__ import annotations

import random
from typing import Any

from pettingllms_envs.core import Workflow
from pettingllms_envs.replies import LETTERS
from pettingllms_envs.tasks.plan_path import PlanPath
from pettingllms_envs.tasks.plan_path_grid import PlanPathState


Demonstration = dict[str, Any]
"""TRL's conversational prompt-completion row, and the role that spoke."""

FIRST_SEED = 10_000_000  # far from the seeds that reinforcement learning trains on
MAX_MOVES = 8
COPIED = 0.5


def careless_walk(task: PlanPath, state: PlanPathState, carelessness: float, rng: random.Random) -> str:
    """A walk to the goal; with probability `carelessness` a step is any free one instead of a best one."""
    moves = ""
    while not task.solved(state) and len(moves) < MAX_MOVES:
        free = [letter for letter in LETTERS if task.apply(state, letter).position != state.position]
        careless = rng.random() < carelessness
        letter = rng.choice(free) if careless else task.oracle(state, rng)[0]
        moves += letter
        state = task.apply(state, letter)
    return moves


def demonstrate(
    workflow: Workflow[Any], *, number: int, carelessness: float, seed: int, role: str | None = None
) -> list[Demonstration]:
    """Play the workflow on instances of the train split and keep what was shown and what was replied.

    The planner copies the draft half the time, whatever it is worth: when to trust it is left for it to learn.

    Args:
        workflow: Over Plan-Path.
        number: How many demonstrations.
        carelessness: Probability that a step is a random free one, in [0, 1].
        seed: Draws instances and replies.
        role: Keep this role's only.
    """
    task = workflow.task
    rng = random.Random(f"demonstrations {seed}")
    kept: list[Demonstration] = []
    while len(kept) < number:
        state = workflow.start(task.generate(FIRST_SEED + rng.randrange(FIRST_SEED), "train"))
        draft: str | None = None
        over = False
        while not over:
            actor = workflow.actor(state)
            moves = careless_walk(task, state.task, carelessness, rng)
            if actor == "drafter":
                draft = moves
            elif draft is not None and rng.random() < COPIED:
                moves = draft
            reply = task.write(moves)
            if role in (None, actor):
                kept.append(
                    {
                        "prompt": [
                            {"role": "system", "content": workflow.system(actor)},
                            {"role": "user", "content": workflow.observe(state, actor)},
                        ],
                        "completion": [{"role": "assistant", "content": reply}],
                    }
                )
            state, _, solved, truncated = workflow.step(state, reply)
            over = solved or truncated
    return kept[:number]
