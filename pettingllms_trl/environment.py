"""The environment at the door: made, looked at, and refused in words before any model is loaded."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import pettingzoo
from pettingzoo import AECEnv

from pettingllms_trl.curriculum import Curriculum
from pettingllms_trl.rollout import MakeEnv
from pettingllms_trl.run import Row, prompt_of


def env_maker(env: str | MakeEnv) -> MakeEnv:
    """A function that makes the environment. Raises `ValueError` for an id that PettingZoo does not know."""
    if not isinstance(env, str):
        if not callable(env):
            raise TypeError(
                f"env is a {type(env).__name__}, expected an id of PettingZoo's registry or a function that makes an "
                "AECEnv: env=lambda: my_env_v0.env()"
            )
        return env
    if env not in pettingzoo.aec_registry:
        near = difflib.get_close_matches(env, pettingzoo.aec_registry, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"no environment {env!r} in PettingZoo's AEC registry. {hint}Import the package that registers it (for "
            "ours: import pettingllms_envs), or give a function that makes the environment."
        )
    return lambda: pettingzoo.make("aec", env)


def check_env(make_env: MakeEnv, seed: int, datasets: Sequence[Any]) -> AECEnv:
    """Make one environment and look at it, at every data set's fields, and at what its agents observe."""
    env = make_env()
    if not isinstance(env, AECEnv):
        raise TypeError(
            f"env made a {type(env).__module__}.{type(env).__name__}, expected a pettingzoo.AECEnv. A parallel "
            "environment becomes one by pettingzoo.utils.parallel_to_aec."
        )
    known = env.metadata.get("reset_options")
    row: Row = {}
    for dataset in filter(None, datasets):
        columns = list(dataset.column_names or next(iter(dataset)))  # a stream may not know its columns
        if known is not None:
            unknown = [column for column in columns if column not in ("seed", *known)]
            if unknown:
                raise ValueError(
                    f"the data set's rows have the fields {unknown}, which the environment does not take. Known: "
                    f"seed, {', '.join(known)}. Rename or remove the columns (dataset.remove_columns)."
                )
        row = row or next(iter(dataset))
    options = {name: value for name, value in row.items() if name != "seed"}
    env.reset(seed=row.get("seed", seed), options=options or None)
    for agent in env.agents:
        prompt_of(env.observe(agent), agent=agent)
    return env


def check_levels(env: AECEnv, curriculum: Curriculum) -> None:
    """Raise `ValueError` for levels that the environment says it does not know."""
    known = env.metadata.get("reset_options")
    if known is None:
        return
    if curriculum.field not in known:
        raise ValueError(
            f"the curriculum's field is {curriculum.field!r}, which the environment does not take. Known: "
            f"{', '.join(known)}. Set Curriculum(field=...)."
        )
    legal = dict(known)[curriculum.field] if isinstance(known, Mapping) else ()
    unknown = [level for level in curriculum.levels if legal and level not in legal]
    if unknown:
        raise ValueError(
            f"the curriculum has the levels {unknown}; the environment's {curriculum.field} is one of {list(legal)}."
        )
