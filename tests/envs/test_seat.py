"""An agent's seat as a Gymnasium environment, and Gymnasium's ids: what PettingZoo's interface gives its agent."""

from __future__ import annotations

import copy
import math
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Dict, Text
from gymnasium.utils.env_checker import check_env
from pettingzoo import AECEnv

import pettingllms_envs
from council import Council
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.agents.base import AgentFailed, Reply, Request
from pettingllms_envs.doors import doors
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.single_agent import Seat, seat
from pettingllms_envs.spaces import ChatText
from pettingllms_envs.testing import check


FORMS = {
    **dict.fromkeys(["aime", "apps", "code_contests", "live_code_bench", "math", "olympiad_bench"], "single"),
    **dict.fromkeys(["plan_path", "search", "sokoban", "sudoku"], "single"),
    **dict.fromkeys(["archives", "hidden_bench", "note_taking"], "full"),
    "hanabi": "ad_hoc",
}
WITHOUT = ("conversation", "kuhn_poker")
of_each = pytest.mark.parametrize("name", sorted(FORMS))
IMAGES = ("describer_solver", "describer_0", "null")


def made(name: str, **settings: Any) -> Any:
    return gymnasium.make(f"pettingllms/{name}-v0", **settings)


def some_reply(env: Any, agent: str, rng: random.Random) -> str:
    """The oracle's reply, or one that ignores the state: the same for two environments in one state."""
    if env.metadata["has_oracle"] and rng.random() < 0.4:
        return str(env.unwrapped.oracle())
    return rng.choice(["", "Moves: U", "no", "print(1)", *env.unwrapped.workflow.task.blind_replies])


def by_words(request: Request) -> str:
    """A partner that depends on all that it is given."""
    rng = random.Random(f"{request.messages} {request.step}")
    return some_reply(request.env, request.agent, rng)


Course = list[tuple[Any, ...]]


def by_pettingzoo(env: Any, agent: str, seed: int, others: Callable[[Request], str] = by_words) -> Course:
    """What `last()` says at the agent's turns: text, reward, ends, info."""
    env.reset(seed=seed)
    rng, course, number = random.Random(seed), Course(), 0
    for name in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        if name == agent:
            text = f"{observation['system']}\n\n{observation['text']}"
            course.append((text, reward, terminated, truncated, info))
        if terminated or truncated:
            env.step(None)
            if name == agent:
                return course
            continue
        prompt = [{"role": "system", "content": observation["system"]}] if observation["system"] else []
        prompt.append({"role": "user", "content": observation["text"]})
        asked = Request(env=env, agent=name, messages=prompt, seed=0, instance=0, sample=0, step=number)
        env.step(some_reply(env, agent, rng) if name == agent else others(asked))
        number += 1
    return course


def by_gymnasium(env: Any, seed: int) -> Course:
    """The same from a seat; the reward before the first turn is not known yet."""
    observation, info = env.reset(seed=seed)
    aec, rng = env.unwrapped.env, random.Random(seed)
    course: Course = [(observation, None, False, False, info)]
    while not any(course[-1][2:4]):
        course.append(env.step(some_reply(aec, env.unwrapped.agent, rng)))
    return course


def check_alike(played: Course, seen: Course) -> None:
    """Texts, ends and infos are equal at each turn, and the rewards' sums to the last digit."""
    assert [each[0] for each in seen] == [each[0] for each in played]
    assert [each[2:] for each in seen] == [each[2:] for each in played]
    assert sum(each[1] for each in seen[1:]) == sum(each[1] for each in played)
    assert [each[1] for each in seen[2:]] == [each[1] for each in played[2:]]


def play_both_ways(name: str, num_episodes: int, agent: str = "", **settings: Any) -> float:
    env = made(name, **({"agent": agent, "others": by_words} if agent else {}), **settings)
    aec = pettingllms_envs.make(name, **{"workflow": env.unwrapped.env.metadata["settings"]["workflow"], **settings})
    total = 0.0
    for seed in range(num_episodes):
        played = by_pettingzoo(aec, env.unwrapped.agent, seed)
        check_alike(played, by_gymnasium(env, seed))
        total += abs(sum(each[1] for each in played))
    return total


TEAMS = [
    ("sokoban", "planner_0", "draft_plan"),
    ("plan_path", "drafter_0", "draft_plan"),
    ("archives", "answerer_0", "team"),
    ("note_taking", "right_0", "team"),
    ("hanabi", "player_1", "team"),
    ("hidden_bench", "member_0", "team"),
    ("kuhn_poker", "player_1", "match"),
    ("math", "solver_0", "ensemble"),
]


@of_each
def test_episodes_are_the_same_as_pettingzoos_and_rewards_add_up_to_the_last_digit(name: str) -> None:
    assert play_both_ways(name, 2 if name in ("apps", "code_contests", "live_code_bench") else 5) > 0


@pytest.mark.parametrize(("name", "agent", "workflow"), TEAMS)
def test_they_are_in_a_team_with_rewards_between_two_turns_and_before_the_first(
    name: str, agent: str, workflow: str
) -> None:
    assert play_both_ways(name, 5, agent, workflow=workflow) > 0


@pytest.mark.slow
@of_each
def test_500_episodes_are_the_same(name: str) -> None:
    assert play_both_ways(name, 500) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "agent", "workflow"), TEAMS)
def test_500_episodes_in_a_team_are_the_same(name: str, agent: str, workflow: str) -> None:
    assert play_both_ways(name, 500, agent, workflow=workflow) > 0
