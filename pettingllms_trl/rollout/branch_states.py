"""Branches an environment at a decision for the check in `branch_probe.py`, and compares its state each time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from pettingzoo import AECEnv

from pettingllms_envs.branching import ReplayError, SavedState, save_state
from pettingllms_envs.branching.snapshots import has_snapshots
from pettingllms_envs.branching.views import View, described, differences, look, short, told, view_of
from pettingllms_envs.copying import copy_env


REPLAYS = 2  # of each reply: a state that is shared with its snapshot only shows the second time


class NotBranched(Exception):
    """Why an environment cannot be branched."""


class Differs(NotBranched):
    """A reply led to another state when it was played again."""


class Crash(Exception):
    """An error that an environment raised when it was stepped."""


class BranchPoint:
    """The state in which replies are played, each with the same random numbers."""

    def __init__(self, env: AECEnv) -> None:
        self.env, self.view, self.saved, self.random = env, view_of(env), saved_state(env), _random_states()

    def play(self, reply: str, *, is_first: bool = False, is_last: bool = False) -> AECEnv:
        """The environment after a reply.

        As in training, it is not restored before the first reply, and an environment that is copied is itself stepped
        with the last reply.
        """
        _set_random_states(self.random)
        if self.saved is not None and is_first:
            _compare(self.env, self.view, "saving its state changes it")
        elif self.saved is not None:
            restore(self.env, self.saved, self.view)
        played = self.env if self.saved is not None or is_last else copied(self.env, self.view)
        step(played, reply)
        if played is not self.env:
            said = "when its copy is stepped, it moves with it, so both share a state or a session"
            _compare(self.env, self.view, said)
        return played

    def replay(self, reply: str, expected: View, *, is_last: bool) -> AECEnv:
        """Play a reply again, which must lead to the same state as before."""
        for k in range(REPLAYS):
            later = self.play(reply, is_last=is_last and k == REPLAYS - 1)
            said = (
                f"the reply {short(reply)} leads elsewhere when it is played again, so a part of the state is left "
                "out, or shared with the snapshot or the copy: a list that restore() does not copy, a wrapper's "
                "reference into the environment, a generator of random numbers"
            )
            _compare(later, expected, said, Differs)
        return later


@contextmanager
def _branching(what: str) -> Iterator[None]:
    """Raise `NotBranched` for what is raised within, in third-party code."""
    try:
        yield
    except ReplayError as error:
        raise NotBranched(str(error).removesuffix(".")) from error
    except Exception as error:  # the environment is not ours: it may raise anything
        raise NotBranched(f"{what} raised {told(error)}") from error


def saved_state(env: AECEnv) -> SavedState | None:
    """The environment's saved state; `None` if it is copied."""
    with _branching("saving its state"):
        return save_state(env)


def restore(env: AECEnv, saved: SavedState, view: View) -> None:
    """Restore a state, which must then look as `view`."""
    with _branching("restoring its state"):
        saved.restore(env)
    _compare(env, view, "it is not put back into a state that it was in")


def copied(env: AECEnv, view: View) -> AECEnv:
    """A copy, which must look as `view`."""
    with _branching(f"{'' if has_snapshots(env) else 'it has no snapshot(), and '}copying it"):
        twin = copy_env(env)
    _compare(twin, view, "its copy is in another state")
    return twin


def step(env: AECEnv, reply: str | None) -> None:
    """Step an environment. Raises `Crash` if it does."""
    agent = env.agent_selection
    try:
        env.step(reply)
    except Exception as error:  # the environment is not ours
        raise Crash(f"{told(error)} when {agent!r} replied {short(reply)}") from error


def is_done(env: AECEnv, agent: str) -> bool:
    """Whether an agent is terminated or truncated."""
    return bool(env.terminations[agent] or env.truncations[agent])


def _compare(env: AECEnv, expected: View, what: str, error: type[NotBranched] = NotBranched) -> None:
    found = look(env)
    for name in differences(expected, found):
        raise error(f"{what} ({described(name, expected, found)})")


@contextmanager
def same_random_numbers_afterwards() -> Iterator[None]:
    """Leave the random states of Python and NumPy unchanged."""
    before = _random_states()
    try:
        yield
    finally:
        _set_random_states(before)


def _random_states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()  # noqa: NPY002


def _set_random_states(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
