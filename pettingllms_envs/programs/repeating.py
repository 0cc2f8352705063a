"""Checks that a program asks the same when an episode is played again with the same replies, as a tree needs it to."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from pettingllms_envs.branching import ReplayError
from pettingllms_envs.branching.views import marked
from pettingllms_envs.failures import EpisodeRestart, ProgramFailed
from pettingllms_envs.programs.program import REMEDY


REPLY = "0"
MOST_CALLS = 100


class _Step(NamedTuple):
    """A step of an episode: who asked, what, and what was paid after the reply."""

    agent: str
    asked: str
    paid: str


def check_repeats(env: Any, seed: int | None, options: Mapping[str, Any] | None) -> None:
    """Play an episode of a program twice with the reply `"0"`, and compare requests, rewards, and its end. Closes it.

    Raises:
        ReplayError: They differ. The message has both requests, with the place marked.
    """
    found, difference, num_more_equal = env.program.state, "", 0
    while num_more_equal <= 0 or (difference and not found.widths):
        first, second = (_played(env, seed, options) for _ in range(2))
        other = _difference(first, second)
        difference = difference or other
        num_more_equal += -1 if other else 1
        if other or (difference and not found.widths):
            if found.has_waited_longest or not _may_be_late(first, second, is_parallel=bool(found.widths)):
                raise ReplayError(
                    f"{env.program.words} is not the same when an episode is played again with the same replies: "
                    f"{difference}{REMEDY}"
                )
            found.found_parallel()
            found.lost(found.wait)
    if found.has_equal_calls:
        raise ReplayError(
            f"{env.program.words} asks an agent the same twice at the same time, and nothing tells these calls apart "
            "when an episode is played again. Have them differ in a word, or ask one after the other."
        )


def _may_be_late(first: list[_Step], second: list[_Step], *, is_parallel: bool) -> bool:
    """Whether two runs may differ because a call came after an earlier one had its reply, which is immediate here.

    Unless calls were open at the same time (`is_parallel`), that the program asks so is a guess.
    """
    calls, paid = ([sorted(step[part] for step in run) for run in (first, second)] for part in (slice(2), 2))
    return paid[0] == paid[1] and (is_parallel or calls[0] == calls[1])


def _difference(first: list[_Step], second: list[_Step]) -> str:
    """The first one, in words; empty if there is none."""
    for number, (one, other) in enumerate(zip_longest(first, second, fillvalue=_Step("nobody", "", ""))):
        for name, what in (("agent", "is asked by"), ("asked", "asks"), ("paid", "is followed by")):
            was, now = getattr(one, name), getattr(other, name)
            if was != now:
                was, now = marked(was, now)
                return f"its call {number} {what}\n    {was}\nthe first time, and\n    {now}\nthe second time."
    return ""


def _played(env: Any, seed: int | None, options: Mapping[str, Any] | None) -> list[_Step]:
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
                return [*steps, _Step(agent, asked, str(failed).partition("\n")[0].partition(" raised: ")[0])]
            steps.append(_Step(agent, asked, paid))
    except EpisodeRestart:
        return _played(env, seed, options)  # with a longer wait
    finally:
        env.close()
    return steps
