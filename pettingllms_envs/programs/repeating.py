"""Checks that a program asks the same when an episode is played again with the same replies, as a tree needs it to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from pettingllms_envs.branching import ReplayError
from pettingllms_envs.branching.views import marked
from pettingllms_envs.failures import EpisodeRestart, ProgramFailed
from pettingllms_envs.programs.program_env import REMEDY, ProgramEnv


REPLY = "0"
MOST_CALLS = 100


class _Step(NamedTuple):
    """A step of an episode: who asked, what, and what was paid after the reply."""

    agent: str
    asked: str
    paid: str


def check_repeats(env: ProgramEnv, seed: int | None, options: Mapping[str, Any] | None) -> None:
    """Play an episode twice with the reply `"0"`, and compare requests, rewards, and how it ends. Closes `env`.

    Raises:
        ReplayError: They differ. The message has both requests, with the place marked.
    """
    order = env.program.state.order
    while True:
        first, second = (_played(env, seed, options) for _ in range(2))
        if not (difference := _difference(first, second)):
            break
        if _calls(first) == _calls(second):  # asked at the same time, though one had its reply before the next came
            order.found_parallel()
        if not order.wait or order.has_waited_longest:
            raise ReplayError(
                f"{env.program.words} is not the same when an episode is played again with the same replies: "
                f"{difference}{REMEDY}"
            )
        order.lost(order.wait)  # a call may have come after an earlier one had its reply, which is immediate here
    if order.has_equal_calls:
        raise ReplayError(
            f"{env.program.words} asks an agent the same twice at the same time, and nothing tells these calls apart "
            "when an episode is played again. Have them differ in a word, or ask one after the other."
        )


def _calls(steps: list[_Step]) -> list[tuple[str, str]]:
    return sorted((step.agent, step.asked) for step in steps)


def _difference(first: list[_Step], second: list[_Step]) -> str:
    """The first one, in words; empty if there is none."""
    for number, (one, other) in enumerate(zip_longest(first, second, fillvalue=_Step("nobody", "", ""))):
        for name, what in (("agent", "is asked by"), ("asked", "asks"), ("paid", "is followed by")):
            was, now = getattr(one, name), getattr(other, name)
            if was != now:
                was, now = marked(was, now)
                return f"its call {number} {what}\n    {was}\nthe first time, and\n    {now}\nthe second time."
    return ""


def _played(env: ProgramEnv, seed: int | None, options: Mapping[str, Any] | None) -> list[_Step]:
    steps: list[_Step] = []
    try:
        env.reset(seed=seed, options=options)
        while len(steps) < MOST_CALLS and not all(env.terminations.values()):
            agent = env.agent_selection
            asked = env.comparable(agent)
            try:
                env.step(REPLY)
                paid = repr((env.rewards, env.infos[agent]["outcome"]))
            except ProgramFailed as failed:  # on such a reply
                return [*steps, _Step(agent, asked, re.split("\n| raised: ", str(failed))[0])]
            steps.append(_Step(agent, asked, paid))
    except EpisodeRestart:
        return _played(env, seed, options)  # with a longer wait
    finally:
        env.close()
    return steps
