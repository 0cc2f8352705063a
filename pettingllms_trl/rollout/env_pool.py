"""Environments for rows: of one kind, or of several that the rows' column `environment` tells apart.

    EnvPool({"sokoban": make_sokoban, "plan_path": make_plan_path})
    {"environment": "sokoban", "seed": 7, "level": 2, "split": None}  # reset(seed=7, options={"level": 2})

The column is the one by which TRL's `environment_factory` routes. As the rows of a data set all have the same fields,
a field that is `None` is one that the row does not have.

An `EnvHandle` holds the environment in which an instance is played; where it fails, a new one takes its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pettingzoo import AECEnv

from pettingllms_trl.records import Row
from pettingllms_trl.rollout.timeouts import CallTimer


class EnvHandle:
    """See the head of this file.

    Args:
        env: Not reset yet, unless it is a copy of one that was.
        setup: Of the instance.
    """

    def __init__(self, env: AECEnv, setup: ResetArgs) -> None:
        self.env, self.setup = env, setup

    def reset(self) -> None:
        """Go to the beginning of the instance."""
        self.env.reset(seed=self.setup.seed, options=self.setup.options)

    def renew(self, fresh: Callable[[str], AECEnv], calls: CallTimer) -> AECEnv:
        """In the middle of a call that has failed: go to the beginning of the instance in a fresh environment."""
        self.close(calls)
        self.env = fresh(self.setup.environment)
        calls.begin()
        self.reset()
        calls.next()
        return self.env

    def close(self, calls: CallTimer) -> None:
        """Close an environment that has failed."""
        calls.begin()
        with suppress(Exception):  # it may fail in this, too
            self.env.close()
        calls.end()


MakeEnv = Callable[[], AECEnv]

COLUMN = "environment"
ONLY = ""
"""Name of the environment where there is one alone; `COLUMN` then means nothing."""


@dataclass(frozen=True, slots=True)
class ResetArgs:
    """How an instance begins.

    Args:
        environment: Name of the environment.
        seed: It is reset with.
        options: It is reset with.
    """

    environment: str
    seed: int
    options: dict[str, Any] | None


class EnvPool:
    """Makes environments, and keeps those that nobody plays in. Several threads may take and give at once.

    Args:
        make_env: Makes one; or, by the name that rows have in `COLUMN`, one of each kind.
        idle: Those made before, used first: a list, or a list for each name.
        default_seed: Of rows without a seed.
    """

    def __init__(
        self,
        make_env: MakeEnv | Mapping[str, MakeEnv],
        idle: list[AECEnv] | Mapping[str, list[AECEnv]] | None,
        *,
        default_seed: int,
    ) -> None:
        self._makers = make_env if isinstance(make_env, Mapping) else {ONLY: make_env}
        given = idle if isinstance(idle, Mapping) else {ONLY: [] if idle is None else idle}
        self._idle = {name: given.get(name, []) for name in self._makers}
        self._default_seed = default_seed
        self._making = threading.Lock()  # a user's function need not bear being called by several threads at once

    def setup(self, row: Row) -> ResetArgs:
        """How a row's instance begins. Raises `ValueError` where it names no environment that there is."""
        name = ONLY if ONLY in self._makers else name_of(row, self._makers)
        reserved = ("seed",) if name == ONLY else ("seed", COLUMN)
        seed = row.get("seed")
        options = {field: value for field, value in row.items() if field not in reserved and value is not None}
        return ResetArgs(name, self._default_seed if seed is None else seed, options or None)

    def take(self, name: str, *, fresh: bool = False) -> AECEnv:
        """An environment of that name; a `fresh` one has never been played in."""
        if not fresh:
            with suppress(IndexError):  # rather than look first: another thread may take the last one
                return self._idle[name].pop()
        with self._making:
            return self._makers[name]()

    def give_back(self, name: str, env: AECEnv) -> None:
        """Keep it until a row wants it."""
        self._idle[name].append(env)


def name_of(row: Row, known: Mapping[str, Any]) -> str:
    """Name of the environment that a row is of.

    Raises:
        ValueError: It names none, or one that is not known.
    """
    name = row.get(COLUMN)
    if name not in known:
        given = "has no" if name is None else f"has {name!r} for its"
        raise ValueError(
            f"a row {given} {COLUMN}; expected one of {', '.join(map(repr, known))}, the names in env={{...}}. Add or "
            f"mend the column {COLUMN!r}."
        )
    return str(name)
