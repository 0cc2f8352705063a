"""Whether an environment can be branched: checked with a few steps when a trainer is made that branches it.

A branch that is not exact gives candidates wrong rewards without any error: a copy that restarts the game, a client
whose copy talks to the same session, a wrapper that is not put back. So a short episode is played, and at each of its
decisions the environment is branched as in training and compared with what it was before.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import data_equivalence
from pettingzoo import AECEnv

from pettingllms_trl.env_state import SavedState, copy_env, save_state


ATTEMPTS = 8
"""Episodes that are tried where, with `crash_reward`, a reply may crash the environment."""
REPLIES = ("0", "1", "a", "")
"""What agents reply in every second episode, the others being of samples of their action spaces."""

EPISODES = 'sampling="parallel" (with credit="grpo", or another that compares episodes)'

View = Mapping[str, Any]
"""What can be seen of an environment's state, by name."""


@dataclass(frozen=True, slots=True)
class Branching:
    """What environments are branched for.

    Args:
        settings: The settings that need it, as they are: `sampling='tree'`.
        remedy: What to set in their place.
        crash_reward: As in [`MultiAgentGRPOConfig`].
    """

    settings: str
    remedy: str
    crash_reward: float | None

    @classmethod
    def of(
        cls, *, sampling: str, num_continuations: int, crash_reward: float | None, trains: bool = True
    ) -> Branching | None:
        """`None` where no environment is branched: evaluation, and training with `sampling="parallel"` alone."""
        instead = {
            f"sampling={sampling!r}": EPISODES if trains and sampling == "tree" else "",
            f"num_continuations={num_continuations}": "num_continuations=0" if trains and num_continuations else "",
            f"crash_reward={crash_reward}": "crash_reward=None" if crash_reward is not None else "",
        }
        needed = {setting: other for setting, other in instead.items() if other}
        return cls(" and ".join(needed), " and ".join(needed.values()), crash_reward) if needed else None


class _NotBranched(Exception):
    """Why an environment cannot be branched."""


class _Crash(Exception):
    """What an environment raised when it was stepped."""


def check_branching(env: AECEnv, renew: Callable[[], AECEnv], branching: Branching) -> AECEnv:
    """Play a short episode; check at each decision that a branch begins in its state, and moves nothing but itself.

    A reply is a sample of the agent's action space: a `str` as it is, anything else (the number of a move) written as
    one, since replies are text. The environment is left as it was, and so are Python's and NumPy's random numbers.

    Args:
        env: Just reset.
        renew: Makes another one, just reset, where a reply has crashed this one.
        branching: What it is branched for. With a `crash_reward`, replies that crash it are passed over.

    Returns:
        An environment just reset: the one given, or a fresh one.

    Raises:
        ValueError: It cannot be branched; or it raised when it was stepped, and there is no `crash_reward`.
    """
    name = env.metadata.get("name", type(env.unwrapped).__name__)
    with _same_random_numbers_afterwards():
        for attempt in range(ATTEMPTS):
            try:
                _play(env, attempt)
            except _NotBranched as error:
                raise ValueError(
                    f"the environment {name!r} cannot be branched, which {branching.settings} needs: {error}. Set "
                    f"{branching.remedy}, or give the environment snapshot() and restore() (or the wrapper that keeps "
                    "a state of its own)."
                ) from error.__cause__
            except _Crash as crash:
                if branching.crash_reward is None:
                    raise ValueError(
                        f"the environment {name!r} raised {crash}. A model may reply with any text: set crash_reward "
                        "to a number below any return, which a reply that crashes the environment is then given; or "
                        "have the environment accept every text."
                    ) from crash.__cause__
                with suppress(Exception):  # it may fail in this, too
                    env.close()
                env = renew()
            else:
                return env
    warnings.warn(
        f"the environment {name!r} raised in each of {ATTEMPTS} short episodes, so whether it can be branched was not "
        "checked. Give it an action_space whose samples it accepts.",
        stacklevel=2,
    )
    return env


def _play(env: AECEnv, attempt: int) -> None:
    """An episode of a decision more than there are agents, so that all of them have acted before the last branch."""
    first, view = _saved(env), _view(env)
    now = env if first is not None else _copied(env, view)
    for _ in range(len(env.possible_agents) + 1):
        while now.agents and _is_done(now, now.agent_selection):
            _step(now, None)
        if not now.agents:
            break
        reply = REPLIES[attempt // 2 % len(REPLIES)] if attempt % 2 else _sample(now, seed=attempt)
        now = _branched(now, reply)
    if first is not None:
        _restore(env, first, view)


def _branched(env: AECEnv, reply: str) -> AECEnv:
    """The environment after a reply, played on a branch."""
    view = _view(env)
    saved = _saved(env)
    if saved is not None:
        _step(env, reply)
        _restore(env, saved, view)
        _step(env, reply)
        return env
    twin = _copied(env, view)
    _step(twin, reply)
    _compare(env, view, "when its copy is stepped, it moves with it, so both share a state or a session")
    return twin


def _saved(env: AECEnv) -> SavedState | None:
    try:
        return save_state(env)
    except Exception as error:  # the environment is not ours: it may raise anything
        raise _NotBranched(f"saving its state raised {_told(error)}") from error


def _restore(env: AECEnv, saved: SavedState, view: View) -> None:
    try:
        saved.restore(env)
    except Exception as error:  # the environment is not ours
        raise _NotBranched(f"restoring its state raised {_told(error)}") from error
    _compare(env, view, "it is not put back into a state that it was in")


def _copied(env: AECEnv, view: View) -> AECEnv:
    try:
        twin = copy_env(env)
    except Exception as error:  # the environment is not ours
        raise _NotBranched(f"it has no snapshot(), and copying it raised {_told(error)}") from error
    _compare(twin, view, "its copy is in another state")
    return twin


def _step(env: AECEnv, reply: str | None) -> None:
    agent = env.agent_selection
    try:
        env.step(reply)
    except Exception as error:  # the environment is not ours
        raise _Crash(f"{_told(error)} when {agent!r} replied {reply!r}") from error


def _compare(env: AECEnv, expected: View, what: str) -> None:
    """Raise `_NotBranched` where an environment is not as it is expected to be."""
    found = _look(env)
    for name, value in expected.items():
        if not data_equivalence(found.get(name), value, exact=True):
            raise _NotBranched(f"{what} ({name}: expected {_short(value)}, got {_short(found.get(name))})")


def _view(env: AECEnv) -> View:
    """What is to be seen of an environment's state, without what differs when it is looked at twice."""
    first, second = _look(env), _look(env)
    return {name: value for name, value in first.items() if data_equivalence(second.get(name), value, exact=True)}


def _look(env: AECEnv) -> View:
    agents = _read(lambda: list(env.agents))
    view: dict[str, Any] = {
        "agents": agents,
        "agent_selection": _read(lambda: env.agent_selection),
        "rewards": _read(lambda: {agent: float(reward) for agent, reward in env.rewards.items()}),
        "terminations": _read(lambda: {agent: bool(done) for agent, done in env.terminations.items()}),
        "truncations": _read(lambda: {agent: bool(done) for agent, done in env.truncations.items()}),
    }
    for agent in agents if isinstance(agents, list) else []:
        view[f"observation of {agent!r}"] = _read(partial(env.observe, agent))
    if hasattr(type(env.unwrapped), "state_hash"):
        view["state_hash()"] = _read(env.unwrapped.state_hash)
    return view


def _read(read: Callable[[], Any]) -> Any:
    """A copy of what is read; or what reading it raised, so that this is compared."""
    try:
        return copy.deepcopy(read())
    except Exception as error:  # noqa: BLE001  # the environment is not ours
        return _told(error)


def _is_done(env: AECEnv, agent: str) -> bool:
    return bool(env.terminations[agent] or env.truncations[agent])


def _sample(env: AECEnv, *, seed: int) -> str:
    """A sample of the acting agent's action space, as text; its own random numbers are not used."""
    try:
        space = copy.deepcopy(env.action_space(env.agent_selection))
        space.seed(seed)
        sample = space.sample()
    except Exception:  # noqa: BLE001  # it may have no such space, or none that can be sampled
        return REPLIES[seed % len(REPLIES)]
    return sample if isinstance(sample, str) else str(sample)


@contextmanager
def _same_random_numbers_afterwards() -> Iterator[None]:
    before, numpy_before = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(numpy_before)  # noqa: NPY002


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _short(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 200 else f"{said[:200]}..."
