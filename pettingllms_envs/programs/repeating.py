"""Checks that a program asks the same when an episode is played again with the same replies, as a tree needs it to."""

from __future__ import annotations

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
    """Play an episode twice with the reply `"0"`, and compare requests, rewards, and how it ends.

    Args:
        env: The environment, which is closed afterwards.
        seed: Argument of `reset`.
        options: Argument of `reset`.

    Raises:
        ReplayError: They differ. The message has both requests, with the place marked.
    """
    order = env.program.state.order
    while difference := _difference(_played(env, seed, options), _played(env, seed, options)):
        if not order.wait or order.has_waited_longest:
            raise ReplayError(
                f"{env.program.words} is not the same when an episode is played again with the same replies: "
                f"{difference}{REMEDY}"
            )
        order.lost(order.wait)  # a call may have come after an earlier one had its reply, which is immediate here


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
    while True:
        try:
            return _played_once(env, seed, options)
        except EpisodeRestart:
            continue  # with a longer wait
        finally:
            env.close()


def _played_once(env: ProgramEnv, seed: int | None, options: Mapping[str, Any] | None) -> list[_Step]:
    steps: list[_Step] = []
    env.reset(seed=seed, options=options)
    while len(steps) < MOST_CALLS and not all(env.terminations.values()):
        agent = env.agent_selection
        asked = env.comparable(agent)
        try:
            env.step(REPLY)
            paid = repr((env.rewards, env.infos[agent]["outcome"]))
        except ProgramFailed as failed:  # on such a reply
            return [*steps, _Step(agent, asked, str(failed).partition("\n")[0])]
        steps.append(_Step(agent, asked, paid))
    return steps
