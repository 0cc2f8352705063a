"""Environments for rollouts, made once and reused.

There is one environment, or several that the rows' column `environment` distinguishes, as TRL's `environment_factory`:

    EnvPool({"sokoban": make_sokoban, "plan_path": make_plan_path})
    {"environment": "sokoban", "seed": 7, "level": 2, "split": None}  # reset(seed=7, options={"level": 2})

As the rows of a data set all have the same fields, a field that is `None` is one that the row does not have.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pettingzoo import AECEnv

from pettingllms_envs.branching import branchable
from pettingllms_trl.records import DataRow


MakeEnv = Callable[[], AECEnv]

ENVIRONMENT_COLUMN = "environment"
DEFAULT_ENVIRONMENT = ""
"""Name of the environment in a run with a single one, where `ENVIRONMENT_COLUMN` has no meaning."""


@dataclass(frozen=True, slots=True)
class ResetArgs:
    """The name of a row's environment, and the arguments of its `reset`."""

    environment: str
    seed: int
    options: dict[str, Any] | None


class EnvPool:
    """Creates environments on demand and reuses idle ones. Several threads may acquire and release at the same time.

    With several environments there is a function, and a list of environments made before, for each name. `branches`
    says whether several replies may be played from one state; `unplayed` are the columns of `unplayed_columns`.
    """

    def __init__(
        self,
        make_env: MakeEnv | Mapping[str, MakeEnv],
        idle: list[AECEnv] | Mapping[str, list[AECEnv]] | None,
        *,
        default_seed: int,
        branches: bool = False,
        unplayed: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._makers = make_env if isinstance(make_env, Mapping) else {DEFAULT_ENVIRONMENT: make_env}
        given = {} if idle is None else idle if isinstance(idle, Mapping) else {DEFAULT_ENVIRONMENT: idle}
        self._idle = defaultdict[str, list[AECEnv]](list, given)
        self._default_seed, self.branches, self._unplayed = default_seed, branches, unplayed or {}
        self._making = threading.Lock()  # a user's function need not be thread-safe
        self._in_use: dict[int, weakref.ref[Any]] = {}  # by id, which is another's once the object is gone
        for envs in self._idle.values():  # made once, or copies of such
            for env in envs:
                inner = getattr(env, "unwrapped", env)
                self._in_use[id(inner)] = weakref.ref(inner)

    def reset_args(self, row: DataRow) -> ResetArgs:
        """How to reset an environment to a row's instance. Raises `ValueError` for an unknown environment."""
        is_one = DEFAULT_ENVIRONMENT in self._makers
        name = DEFAULT_ENVIRONMENT if is_one else name_of(row, self._makers)
        reserved = {"seed", *self._unplayed.get(name, ()), *(() if is_one else (ENVIRONMENT_COLUMN,))}
        seed = row.get("seed")
        options = {field: value for field, value in row.items() if field not in reserved and value is not None}
        return ResetArgs(name, self._default_seed if seed is None else seed, options or None)

    def acquire(self, name: str, *, fresh: bool = False) -> AECEnv:
        """An idle environment of that name, or a new one; a `fresh` one has never been played in.

        Raises `ValueError` if it is to be branched and declares that it cannot be; or as `add` does.
        """
        env = None
        if not fresh:
            with suppress(IndexError):  # not checked first: another thread may take the last one
                env = self._idle[name].pop()
        if env is None:
            with self._making:
                env = self._makers[name]()
                self.add(env)
        return branchable(env) if self.branches else env

    @property
    def num_in_play(self) -> int:
        """Environments that were acquired and are neither released nor closed."""
        return len(self._in_use) - sum(map(len, self._idle.values()))

    def add(self, env: AECEnv) -> None:
        """Record that the user's function has returned an environment, which is then in use: in play, or idle.

        Raises `ValueError` if it is in use already, perhaps in another wrapper: rows would play in each other's game.
        """
        inner = getattr(env, "unwrapped", env)
        known = self._in_use.get(id(inner))
        if known is not None and known() is inner:
            raise ValueError(
                f"env returned a {type(inner).__name__} that it had returned before and that is still in use; "
                "expected another one at every call, since each row is played in an environment of its own. Make it "
                "inside the function: env=lambda: MyEnv(). A variable, or a new wrapper around one, is the same "
                "environment again."
            )
        self._in_use[id(inner)] = weakref.ref(inner)

    def close(self, env: AECEnv) -> None:
        """Close an environment, which is then no longer in use, so that the user's function may return it again."""
        self._in_use.pop(id(getattr(env, "unwrapped", env)), None)
        env.close()

    def release(self, name: str, env: AECEnv) -> None:
        """Keep an environment for later rows."""
        self._idle[name].append(env)


def name_of(row: DataRow, known: Mapping[str, Any]) -> str:
    """Name of a row's environment. Raises `ValueError` if the row names none, or an unknown one."""
    name = row.get(ENVIRONMENT_COLUMN)
    if name not in known:
        given = "has no" if name is None else f"has {name!r} for its"
        raise ValueError(
            f"a row {given} {ENVIRONMENT_COLUMN}; expected one of {', '.join(map(repr, known))}, the names in "
            f"env={{...}}. Add or correct the column {ENVIRONMENT_COLUMN!r}."
        )
    return str(name)


def unplayed_columns(
    envs: Mapping[str, AECEnv], datasets: Sequence[Any], reads: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """The columns of rows that are no reset options, by the environment's name: those that reward functions `reads`.

    An environment that does not declare `metadata["reset_options"]` is given all columns; of one whose replies reward
    functions judge (`metadata["judged"]`) all others are theirs.
    """
    columns = dict.fromkeys(column for dataset in datasets for column in columns_of(dataset))
    unplayed = dict.fromkeys(envs, tuple[str, ...]())
    for name, env in envs.items():
        options, is_judged = env.metadata.get("reset_options"), env.metadata.get("judged")
        if options is not None:
            others = [column for column in columns if column not in ("seed", *options)]
            unplayed[name] = tuple([column for column in others if is_judged or column in reads])
    return unplayed


def columns_of(dataset: Any) -> list[str]:
    """The names of a data set's columns."""
    return list(dataset.column_names or next(iter(dataset), ()))  # a stream may not know its columns


def check_fields(env: AECEnv, fields: Sequence[str], name: str, reads: Collection[str]) -> None:
    """Raise `ValueError` for fields of rows that nobody reads, and where one is missing that the environment needs."""
    missing = [option for option in env.metadata.get("required_options") or () if option not in fields]
    of, which = ("", "the") if name == DEFAULT_ENVIRONMENT else (f" of {name!r}", "that")
    if missing:
        raise ValueError(
            f"the data set's rows{of} have the fields {', '.join(fields) or 'none'}; expected {missing[0]!r} among "
            f"them, without which {env.metadata.get('name', 'the environment')} has no instance. Rename the column: "
            f"dataset.rename_column({next(iter(fields), 'question')!r}, {missing[0]!r})."
        )
    known = env.metadata.get("reset_options")
    unknown = [field for field in fields if field not in (*(known or ()), *reads)]
    if unknown and known is not None and not env.metadata.get("judged"):
        remedy = (
            "Rename or remove the columns (dataset.remove_columns). A column that a reward function alone reads is a "
            f"parameter of it: def reward(completions, {unknown[0]}, **columns)."
        )
        raise ValueError(
            f"the data set's rows{of} have the fields {unknown}, which {which} environment does not take. Known: "
            f"{', '.join(['seed', *known])}. {'Let such a column be None in its rows.' if of else remedy}"
        )
