"""Branches an environment at a decision for the check in `branch_probe.py`, and compares its state each time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from pettingzoo import AECEnv

from pettingllms_envs.branching import ReplayError, SavedState, save_state
from pettingllms_envs.branching.snapshots import has_snapshots
from pettingllms_envs.branching.views import View, described, differences, look, short, told, view_of
from pettingllms_envs.copying import copy_env


REPLAYS = 2
"""How often a reply is replayed: a state that is shared with its snapshot only shows the second time."""


class NotBranched(Exception):
    """Why an environment cannot be branched."""


class Differs(NotBranched):
    """A reply led to another state when it was played again."""


class Crash(Exception):
    """An error that an environment raised when it was stepped."""


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """The state in which replies are played, and the random states that each of them starts with."""

    env: AECEnv
    view: View
    saved: SavedState | None
    random: Any
    numpy_random: Any

    @classmethod
    def of(cls, env: AECEnv) -> BranchPoint:
        return cls(env, view_of(env), saved_state(env), random.getstate(), np.random.get_state())  # noqa: NPY002

    def play(self, reply: str, *, is_first: bool = False, is_last: bool = False) -> AECEnv:
        """The environment after a reply.

        As in training, it is not restored before the first reply, and an environment that is copied is itself stepped
        with the last reply.
        """
        random.setstate(self.random)
        np.random.set_state(self.numpy_random)  # noqa: NPY002
        if self.saved is not None:
            if is_first:
                _compare(self.env, self.view, "saving its state changes it")
            else:
                restore(self.env, self.saved, self.view)
            step(self.env, reply)
            return self.env
        if is_last:
            step(self.env, reply)
            return self.env
        twin = copied(self.env, self.view)
        step(twin, reply)
        _compare(self.env, self.view, "when its copy is stepped, it moves with it, so both share a state or a session")
        return twin

    def replay(self, reply: str, expected: View, *, is_last: bool) -> AECEnv:
        """Play a reply again, which must lead to the same state as before."""
        for k in range(REPLAYS):
            later = self.play(reply, is_last=is_last and k == REPLAYS - 1)
            _compare(
                later,
                expected,
                f"the reply {short(reply)} leads elsewhere when it is played again, so a part of the state is left "
                "out, or shared with the snapshot or the copy: a list that restore() does not copy, a wrapper's "
                "reference into the environment, a generator of random numbers",
                Differs,
            )
        return later


def saved_state(env: AECEnv) -> SavedState | None:
    """The environment's saved state; `None` if it is copied."""
    try:
        return save_state(env)
    except Exception as error:  # the environment is not ours: it may raise anything
        raise NotBranched(f"saving its state raised {told(error)}") from error


def restore(env: AECEnv, saved: SavedState, view: View) -> None:
    """Restore a state, which must then look as `view`."""
    try:
        saved.restore(env)
    except ReplayError as error:
        raise NotBranched(str(error).removesuffix(".")) from error
    except Exception as error:  # the environment is not ours
        raise NotBranched(f"restoring its state raised {told(error)}") from error
    _compare(env, view, "it is not put back into a state that it was in")


def copied(env: AECEnv, view: View) -> AECEnv:
    """A copy, which must look as `view`."""
    try:
        twin = copy_env(env)
    except Exception as error:  # the environment is not ours
        lacks = "" if has_snapshots(env) else "it has no snapshot(), and "
        raise NotBranched(f"{lacks}copying it raised {told(error)}") from error
    _compare(twin, view, "its copy is in another state")
    return twin


def step(env: AECEnv, reply: str | None) -> None:
    """Step an environment. Raises `Crash` if it does."""
    agent = env.agent_selection
    try:
        env.step(reply)
    except Exception as error:  # the environment is not ours
        raise Crash(f"{told(error)} when {agent!r} replied {short(reply)}") from error


def _compare(env: AECEnv, expected: View, what: str, error: type[NotBranched] = NotBranched) -> None:
    """Raise `error` if an environment's state is not the expected one."""
    found = look(env)
    for name in differences(expected, found):
        raise error(f"{what} ({described(name, expected, found)})")


def is_done(env: AECEnv, agent: str) -> bool:
    """Whether an agent is terminated or truncated."""
    return bool(env.terminations[agent] or env.truncations[agent])


@contextmanager
def same_random_numbers_afterwards() -> Iterator[None]:
    """Leave the random states of Python and NumPy unchanged."""
    before, numpy_before = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(numpy_before)  # noqa: NPY002
