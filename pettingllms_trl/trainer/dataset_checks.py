"""What data sets lack is found when a trainer is created: columns of reward functions, and the seeds of instances.

Which other columns an environment takes is checked in `rollout/env_checks.py`.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from itertools import islice
from typing import Any

from datasets import Dataset
from pettingzoo import AECEnv
from torch import nn

from pettingllms_envs.branching.views import View, differences, look
from pettingllms_trl.credit.reward_functions import (
    ARGUMENTS,
    DECISION_ARGUMENTS,
    RewardFunction,
    RewardFunctions,
    check_columns,
)
from pettingllms_trl.records import DataRow
from pettingllms_trl.rollout.branch_states import same_random_numbers_afterwards
from pettingllms_trl.rollout.curriculum import Curricula
from pettingllms_trl.rollout.env_pool import DEFAULT_ENVIRONMENT, ENVIRONMENT_COLUMN, EnvPool, MakeEnv, ResetArgs


TRAIN = "train_dataset"


def by_argument(train_dataset: Any, eval_dataset: Any) -> dict[str, Any]:
    """The data sets that are given, by the arguments that give them."""
    if isinstance(eval_dataset, Mapping):
        evaluated = {f"eval_dataset[{name!r}]": dataset for name, dataset in eval_dataset.items()}
    else:
        evaluated = {"eval_dataset": eval_dataset}
    return {name: each for name, each in {TRAIN: train_dataset, **evaluated}.items() if each is not None}


def check_reward_columns(rewards: RewardFunctions, datasets: Mapping[str, Any], curricula: Curricula) -> None:
    """Validate that the rows have the columns that reward functions require, and none named like an argument.

    Args:
        datasets: By the argument that gives them. Only the first row of a stream is read.
        curricula: They write a column into the rows that are trained on.
    """
    functions = rewards.by_name
    if not functions:
        return
    levels = [curriculum.field for curriculum in curricula.curricula.values()]
    for where, dataset in datasets.items():
        columns = list(dataset.column_names or next(iter(dataset), ()))  # a stream may not know its columns
        check_columns(columns)
        given = (*ARGUMENTS, *DECISION_ARGUMENTS, *columns, *(levels if where == TRAIN else ()))
        for name, function in functions.items():
            if missing := [each for each in required_arguments(function) if each not in given]:
                raise ValueError(
                    f"the reward function {name!r} requires the columns {missing}; expected them in {where}, which "
                    f"has the columns {', '.join(columns) or 'none'}. Add them, correct the names of the function's "
                    f"parameters, or give these defaults ({missing[0]}=None)."
                )


def read_columns(rewards: RewardFunctions) -> list[str]:
    """The names of reward functions' parameters, by which they read columns of rows."""
    return [each.name for function in rewards.by_name.values() for each in _parameters(function)]


def required_arguments(function: RewardFunction) -> list[str]:
    """The names of a function's parameters without a default: none of a model, nor behind `*args, **kwargs`."""
    return [each.name for each in _parameters(function) if each.default is Parameter.empty]


def _parameters(function: RewardFunction) -> list[Parameter]:
    if isinstance(function, str | nn.Module):
        return []
    try:
        parameters = signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return []
    return [each for each in parameters if each.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]


# ---- Rows without a seed --------------------------------------------------------------------------------------------

MOST_RESETS = 8
"""Resets of all environments together, at most `RESETS` for the rows of one in one data set."""
RESETS = 4
NUM_READ = 8
"""Rows of a data set that are read."""
LIKE_SEED = 0.75
"""Similarity (`difflib`) of a column's name to `seed` from which it is taken for a misspelt one."""


def check_seeds(
    make_env: MakeEnv | Mapping[str, MakeEnv],
    envs: Mapping[str, Sequence[AECEnv]],
    datasets: Mapping[str, Any],
    default_seed: int,
) -> None:
    """Warn if rows have no seed and nothing else tells their instances apart, as where the column is misspelt.

    An environment that declares `metadata["reset_options"]` is not tried: its rows have only what it reads.

    Args:
        envs: One environment or more of each name, just reset to the first of its rows, as they are left.
        datasets: By the argument that gives them. Only the first row of a stream is read.
    """
    env_pool = EnvPool(make_env, None, default_seed=default_seed)
    tried: set[tuple[str, ...]] = set()
    left = MOST_RESETS
    for name in [name for name, pool in envs.items() if pool[0].metadata.get("reset_options") is None]:
        start: ResetArgs | None = None
        for where, dataset in datasets.items():
            read = _rows_of(dataset, name)
            rows = [env_pool.reset_args(row) for row in read]
            start = start or next(iter(rows), None)
            kind = (name, *sorted(rows[0].options or ())) if rows else ()
            has_seed = any(row.get("seed") is not None for row in read)
            if start is not None and rows and not has_seed and kind not in tried and left >= RESETS:
                tried.add(kind)
                instances = _Instances(
                    envs[name][0], where if name == DEFAULT_ENVIRONMENT else f"{where} for {name!r}"
                )
                with same_random_numbers_afterwards():
                    warning = instances.warning(rows)
                    instances.reset(start)
                left -= instances.num_resets
                if warning is not None:
                    warnings.warn(warning, stacklevel=3)


def _rows_of(dataset: Any, name: str) -> list[DataRow]:
    """Rows of an environment, spread over a data set from the first to the last."""
    if not isinstance(dataset, Dataset):
        return [row for row in islice(dataset, 1) if name in (DEFAULT_ENVIRONMENT, row.get(ENVIRONMENT_COLUMN))]
    own: Sequence[int] = range(len(dataset))
    if name != DEFAULT_ENVIRONMENT:
        own = [i for i, each in enumerate(dataset[ENVIRONMENT_COLUMN][:]) if each == name]
    last = len(own) - 1
    return [dataset[own[i]] for i in dict.fromkeys(k * last // (NUM_READ - 1) for k in range(NUM_READ))] if own else []


class _Instances:
    """Resets an environment to rows, to see whether their instances differ.

    Args:
        where: The data set, and of several environments which one.
    """

    def __init__(self, env: AECEnv, where: str) -> None:
        self._env, self._where = env, where
        self.num_resets = 0

    def warning(self, rows: Sequence[ResetArgs]) -> str | None:
        """A warning if the rows, which have no seed, begin alike."""
        first = self._beginning(rows[0])
        if first is None:  # the rollout will say why it cannot be reset
            return None
        column = _like_seed([row.options or {} for row in rows])
        others = [row for row in rows[1:] if not _is_equal(row.options, rows[0].options)] or list(rows[1:])
        if column is not None and self._is_alike(first, _with_another(rows[0], column)):
            return (
                f"the rows of {self._where} have no column 'seed', and the environment begins alike whatever their "
                f"column {column!r} says; expected a seed in each row, or all rows are one instance. Rename it: "
                f"dataset.rename_column({column!r}, 'seed'). If the environment reads it, declare "
                f"metadata['reset_options'] = {dict.fromkeys(rows[0].options or (), ())}."
            )
        if others and all(self._is_alike(first, row) for row in others[: 1 if column is not None else 2]):
            return (
                f"the rows of {self._where} have no seed, and those that were tried begin alike; expected a column "
                "'seed', or other columns that the environment reads, or all rows are one instance. Add "
                "dataset.add_column('seed', range(len(dataset))). If its columns do tell the rows apart, declare "
                f"metadata['reset_options'] = {dict.fromkeys(rows[0].options or (), ())}."
            )
        return None

    def _is_alike(self, first: View, row: ResetArgs) -> bool:
        view = self._beginning(row)
        return view is not None and not any(differences(first, view)) and not any(differences(view, first))

    def _beginning(self, row: ResetArgs) -> View | None:
        """What is observable of the instance when it begins; `None` if it could not be reset."""
        try:
            self.reset(row)
        except Exception:  # noqa: BLE001  # the environment is not ours
            return None
        return look(self._env)

    def reset(self, row: ResetArgs) -> None:
        self.num_resets += 1
        self._env.reset(seed=row.seed, options=row.options)


def _like_seed(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """A column of numbers whose name is much like `seed`; a word of its own, such as `speed`, only if the other
    columns do not tell the rows apart."""
    names = [name for name, value in rows[0].items() if isinstance(value, int) and not isinstance(value, bool)]
    near = [name for name in names if difflib.SequenceMatcher(None, name.lower(), "seed").ratio() >= LIKE_SEED]
    found = [*near, *(name for name in names if "seed" in name.lower())]
    return next((name for name in found if "seed" in name.lower() or not _is_told_apart(rows, name)), None)


def _is_told_apart(rows: Sequence[Mapping[str, Any]], column: str) -> bool:
    """Whether each row has values of its own in the columns besides one."""
    others = [{name: value for name, value in row.items() if name != column} for row in rows]
    return all(row and not any(_is_equal(row, each) for each in others[:i]) for i, row in enumerate(others))


def _is_equal(row: Any, other: Any) -> bool:
    """Whether the columns of two rows are equal. Arrays and tensors, whose comparison has no one answer, are not."""
    try:
        return bool(row == other)
    except (ValueError, RuntimeError):
        return False


def _with_another(row: ResetArgs, column: str) -> ResetArgs:
    options = dict(row.options or {})
    return replace(row, options={**options, column: options[column] + 1})
