"""Rollouts written out by hand: a sound training of two roles, as a run's files have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


Row = dict[str, Any]

SYSTEM = {"drafter_0": "You draft a plan.", "planner_0": "You follow the draft."}
ROLES = {"drafter_0": "drafter", "planner_0": "planner"}
NOT_RECORDED_EARLIER = ("missing episodes", "changed rows", "wrong returns")
"""What these rows, as an earlier version wrote them, lack: how many episodes a step has, digests, and the rewards of
agents that did not act."""
ADVANTAGES = (0.866, -0.866, -0.866, 0.866)  # of rewards 1, 0, 0, 1: mean 0.5, deviation 0.577


def tree_header(**config: Any) -> Row:
    return {
        "format": 1,
        "kind": "rollouts",
        "config": {
            "env": "game_v0",
            "settings": {},
            "agents": {agent: {"policy": role} for agent, role in ROLES.items()},
            "sampling": "tree",
            "num_generations": 4,
            "temperature": 1.0,
            "credit": {"name": "at_grpo", "sums_to_zero": "siblings", "judges_own_step": True, "scale": "group"},
            **config,
        },
        "versions": {},
        "machine": {},
    }


def candidate(reply: str, reward: float, advantage: float | None, *, state: str | None, chosen: bool) -> Row:
    return {
        "reply": reply,
        "reward": reward,
        "parts": None,
        "return": None,
        "advantage": advantage,
        "tokens": len(reply),
        "finish": "stop",
        "chosen": chosen,
        "state": state,
    }


def step_row(agent: str, turn: int, state: str, candidates: Sequence[Row]) -> Row:
    played = next(each for each in candidates if each["chosen"])
    return {
        "agent": agent,
        "turn": turn,
        "state": state,
        "prompt": {"system": SYSTEM[agent], "text": f"At {state}: go."},
        "reply": played["reply"],
        "reasoning": None,
        "tokens": {"prompt": 9, "completion": played["tokens"]},
        "finish": played["finish"],
        "model": None,
        "seed": None,
        "rewards": {agent: played["reward"]},
        "parts": None,
        "policy": ROLES[agent],
        "prompt_ids": f"ids of {agent} at {state}",
        "candidates": list(candidates),
    }


def episode_row(index: int, steps: Sequence[Row], *, of_step: int, sample: int = 0) -> Row:
    return {
        "format": 1,
        "instance": {"index": index, "env": "game_v0", "seed": index, "options": {}, "problem": None},
        "sample": sample,
        "training": {"step": of_step},
        "steps": list(steps),
        "end": None,
        "turns": max(each["turn"] for each in steps),
        "success": False,
        "outcome": {},
        "returns": {each["agent"]: each["rewards"][each["agent"]] for each in steps},
        "state": None,
        "error": None,
    }


def tree_rows(num_steps: int = 8) -> list[Row]:
    """Each step: two instances of two turns, a drafter's then a planner's decision; the first of four is played on."""
    rows = []
    for number in range(1, num_steps + 1):
        for index in (2 * number, 2 * number + 1):
            steps, state = [], f"start {index}"
            for turn, agent in ((1, "drafter_0"), (1, "planner_0"), (2, "drafter_0"), (2, "planner_0")):
                group = [
                    candidate(
                        f"{agent} {index} {turn} {k}",
                        (1.0, 0.0, 0.0, 1.0)[k],
                        ADVANTAGES[k],
                        state=f"{state} > {agent} {k}",
                        chosen=k == 0,
                    )
                    for k in range(4)
                ]
                steps.append(step_row(agent, turn, state, group))
                state = f"{state} > {agent} 0"
            rows.append(episode_row(index, steps, of_step=number))
    return rows


def parallel_rows(num_steps: int = 8) -> list[Row]:
    """Each step: four episodes of one instance, of one decision for each agent; returns 1, 0, 0, 1."""
    rows = []
    for number in range(1, num_steps + 1):
        for sample in range(4):
            steps, state = [], f"start {number}"
            for agent in ROLES:
                after = f"{state} > {sample}"
                reward, advantage = (1.0, 0.0, 0.0, 1.0)[sample], ADVANTAGES[sample]
                one = candidate(f"{agent} {number} {sample}", reward, advantage, state=after, chosen=True)
                steps.append(step_row(agent, 1, state, [one]))
                state = after
            rows.append(episode_row(number, steps, of_step=number, sample=sample))
    return rows


def parallel_header(**config: Any) -> Row:
    credit = {"name": "grpo", "sums_to_zero": "episodes", "judges_own_step": False, "scale": "group"}
    return tree_header(sampling="parallel", credit=credit, **config)
