"""Environments for rollouts: made once and reused, and their states, saved and restored so that several replies can be
played from one.

Environments are of one kind, or of several that the rows' column `environment` distinguishes:

    EnvPool({"sokoban": make_sokoban, "plan_path": make_plan_path})
    {"environment": "sokoban", "seed": 7, "level": 2, "split": None}  # reset(seed=7, options={"level": 2})

The column is the one by which TRL's `environment_factory` routes. As the rows of a data set all have the same fields,
a field that is `None` is one that the row does not have. An `EnvHandle` holds the environment in which an instance is
played; if it fails, a new one replaces it.

An environment with `snapshot()` and `restore()` is restored, together with the attributes of the wrappers around it.
Any other environment is copied as a whole. `view_of` reads what is observable of a state, to check that this was
exact.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

from gymnasium.utils.env_checker import data_equivalence
from pettingzoo import AECEnv

from pettingllms_envs.copying import deep_copy
from pettingllms_trl.records import Row
from pettingllms_trl.rollout.timeouts import CallTimer


View = Mapping[str, Any]
"""The observable parts of an environment's state, by name."""


def view_of(env: AECEnv) -> View:
    """The observable state of an environment, without what differs when it is read twice."""
    first, second = look(env), look(env)
    return {name: value for name, value in first.items() if data_equivalence(second.get(name), value, exact=True)}


def look(env: AECEnv) -> View:
    """All that is observable of an environment's state."""
    agents = read(lambda: list(env.agents))
    view: dict[str, Any] = {
        "agents": agents,
        "agent_selection": read(lambda: env.agent_selection),
        "rewards": read(lambda: {agent: float(reward) for agent, reward in env.rewards.items()}),
        "terminations": read(lambda: {agent: bool(done) for agent, done in env.terminations.items()}),
        "truncations": read(lambda: {agent: bool(done) for agent, done in env.truncations.items()}),
    }
    for agent in agents if isinstance(agents, list) else []:
        view[f"observation of {agent!r}"] = read(partial(env.observe, agent))
    if hasattr(type(env.unwrapped), "state_hash"):
        view["state_hash()"] = read(env.unwrapped.state_hash)
    return view


def read(reader: Callable[[], Any]) -> Any:
    """A copy of what is read, or the error that reading it raised, so that errors are compared, too."""
    try:
        return copy.deepcopy(reader())
    except Exception as error:  # noqa: BLE001  # the environment is not ours
        return told(error)


def is_other(view: View, first: View) -> bool:
    """Whether two views differ in a name that both have."""
    return any(not data_equivalence(view[name], first[name], exact=True) for name in view.keys() & first.keys())


def told(error: Exception) -> str:
    """An error as one line."""
    return f"{type(error).__name__}: {error}"


def short(value: Any) -> str:
    """A value's `repr`, truncated."""
    said = repr(value)
    return said if len(said) <= 200 else f"{said[:200]}..."


LINK = "env"
"""The attribute under which PettingZoo's wrappers hold what they wrap."""
PLAIN = frozenset({bool, bytes, float, int, str, type(None)})
"""Types whose values need no copying."""


class SavedState(NamedTuple):
    """A state to which an environment, or another one made the same way and reset, can be restored repeatedly.

    Args:
        snapshot: What the environment's `snapshot()` returned.
        wrappers: Attributes of the wrappers around that environment, the outermost wrapper first.
        stand_ins: Placeholders for the wrappers and the environment itself where the attributes refer to them. Empty
            if all attributes are plain values, which need no copying.
    """

    snapshot: Any
    wrappers: Sequence[Mapping[str, Any]] = ()
    stand_ins: Sequence[object] = ()

    def restore(self, env: AECEnv) -> None:
        """Put an environment into this state."""
        wrappers: Sequence[Mapping[str, Any]] = self.wrappers
        if self.stand_ins:
            layers = dict(zip(map(id, self.stand_ins), _layers(env), strict=True))
            wrappers = deep_copy(wrappers, layers)
        layer = env
        for attributes in wrappers:
            own = vars(layer)
            inner = own[LINK]
            own.clear()
            own.update(attributes)
            own[LINK] = layer = inner
        layer.restore(self.snapshot)


def save_state(env: AECEnv) -> SavedState | None:
    """Save the state of an environment; `None` if it can only be copied.

    A wrapper's attributes are deep-copied, unless the wrapper has its own `snapshot()` and `restore()`, which then
    cover all that it wraps. With a wrapper that defines `__deepcopy__`, the whole environment is copied.

    Raises:
        Exception: From the environment, or from an attribute of a wrapper that cannot be copied.
    """
    kind: Any = type(env)
    if _is_restorable(kind):
        return SavedState(env.snapshot())
    layers = _layers(env)
    if not layers:
        return None
    *wrappers, restorable = layers
    snapshot = restorable.snapshot()
    attributes, is_plain = [], True
    for wrapper in wrappers:
        own = vars(wrapper).copy()
        del own[LINK]
        attributes.append(own)
        is_plain = is_plain and PLAIN.issuperset(map(type, own.values()))
    if is_plain:
        return SavedState(snapshot, attributes)
    stand_ins = [object() for _ in layers]
    known = dict(zip(map(id, layers), stand_ins, strict=True))
    return SavedState(snapshot, deep_copy(attributes, known), stand_ins)


def _layers(env: AECEnv) -> list[Any]:
    """The wrappers around the environment that can be restored, the outermost first, and that environment.

    Empty if there is no such environment, or if a wrapper defines how it is copied. Methods are looked up in classes,
    since a wrapper's `__getattr__` gives it those of what it wraps.
    """
    layers: list[Any] = [env]
    innermost: Any = env.unwrapped
    kind: Any = type(env)
    while not _is_restorable(kind):
        wrapper = layers[-1]
        if wrapper is innermost or LINK not in vars(wrapper) or hasattr(kind, "__deepcopy__"):
            return []
        layers.append(vars(wrapper)[LINK])
        kind = type(layers[-1])
    return layers


@lru_cache(maxsize=128)  # called for every candidate
def _is_restorable(kind: Any) -> bool:
    return hasattr(kind, "snapshot") and hasattr(kind, "restore")


class EnvHandle:
    """The environment in which an instance is played.

    Args:
        env: Not reset yet, unless it is a copy of one that was.
        reset_args: How the instance is reset.
    """

    def __init__(self, env: AECEnv, reset_args: ResetArgs) -> None:
        self.env, self.reset_args = env, reset_args

    def reset(self) -> None:
        """Reset the environment to the instance."""
        self.env.reset(seed=self.reset_args.seed, options=self.reset_args.options)

    def replace(self, fresh: Callable[[str], AECEnv], calls: CallTimer) -> AECEnv:
        """Replace the environment by a fresh one, reset to the instance, after a call of it has failed."""
        self.close(calls)
        self.env = fresh(self.reset_args.environment)
        calls.start()
        self.reset()
        calls.restart()
        return self.env

    def close(self, calls: CallTimer) -> None:
        """Close an environment that has failed."""
        calls.start()
        with suppress(Exception):  # this may fail, too
            self.env.close()
        calls.stop()


MakeEnv = Callable[[], AECEnv]

ENVIRONMENT_COLUMN = "environment"
DEFAULT_ENVIRONMENT = ""
"""Name of the environment in a run with a single one, where `ENVIRONMENT_COLUMN` has no meaning."""


@dataclass(frozen=True, slots=True)
class ResetArgs:
    """How an environment is reset to an instance.

    Args:
        environment: Name of the environment.
        seed: Argument of `reset`.
        options: Argument of `reset`.
    """

    environment: str
    seed: int
    options: dict[str, Any] | None


class EnvPool:
    """Creates environments on demand and reuses idle ones. Several threads may acquire and release at the same time.

    Args:
        make_env: Makes an environment; or such a function for each name in `ENVIRONMENT_COLUMN`.
        idle: Environments made before, used first: a list, or a list for each name.
        default_seed: Seed of rows without one.
    """

    def __init__(
        self,
        make_env: MakeEnv | Mapping[str, MakeEnv],
        idle: list[AECEnv] | Mapping[str, list[AECEnv]] | None,
        *,
        default_seed: int,
    ) -> None:
        self._makers = make_env if isinstance(make_env, Mapping) else {DEFAULT_ENVIRONMENT: make_env}
        given = idle if isinstance(idle, Mapping) else {DEFAULT_ENVIRONMENT: [] if idle is None else idle}
        self._idle = {name: given.get(name, []) for name in self._makers}
        self._default_seed = default_seed
        self._making = threading.Lock()  # a user's function need not be thread-safe

    def reset_args(self, row: Row) -> ResetArgs:
        """How to reset an environment to a row's instance. Raises `ValueError` for an unknown environment."""
        name = DEFAULT_ENVIRONMENT if DEFAULT_ENVIRONMENT in self._makers else name_of(row, self._makers)
        reserved = ("seed",) if name == DEFAULT_ENVIRONMENT else ("seed", ENVIRONMENT_COLUMN)
        seed = row.get("seed")
        options = {field: value for field, value in row.items() if field not in reserved and value is not None}
        return ResetArgs(name, self._default_seed if seed is None else seed, options or None)

    def acquire(self, name: str, *, fresh: bool = False) -> AECEnv:
        """An idle environment of that name, or a new one; a `fresh` one has never been played in."""
        if not fresh:
            with suppress(IndexError):  # not checked first: another thread may take the last one
                return self._idle[name].pop()
        with self._making:
            return self._makers[name]()

    def release(self, name: str, env: AECEnv) -> None:
        """Keep an environment for later rows."""
        self._idle[name].append(env)


def name_of(row: Row, known: Mapping[str, Any]) -> str:
    """Name of a row's environment.

    Raises:
        ValueError: The row names no environment, or an unknown one.
    """
    name = row.get(ENVIRONMENT_COLUMN)
    if name not in known:
        given = "has no" if name is None else f"has {name!r} for its"
        raise ValueError(
            f"a row {given} {ENVIRONMENT_COLUMN}; expected one of {', '.join(map(repr, known))}, the names in "
            f"env={{...}}. Add or correct the column {ENVIRONMENT_COLUMN!r}."
        )
    return str(name)
