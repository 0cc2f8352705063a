"""Creates the environments and validates them, and the data set's rows, before any model is loaded."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pettingzoo
from datasets import Dataset
from pettingzoo import AECEnv

from pettingllms_envs.branching import branchable, branching_of
from pettingllms_envs.pictures import with_known_images
from pettingllms_envs.prompts import images_of, read_observation
from pettingllms_envs.suggestions import did_you_mean
from pettingllms_trl.records import DataRow, Prompt
from pettingllms_trl.rollout import env_pool
from pettingllms_trl.rollout.branch_probe import Branching, check_branching
from pettingllms_trl.rollout.curriculum import Curriculum
from pettingllms_trl.rollout.prompts import check_opening


Env = str | env_pool.MakeEnv
"""A name as `pettingllms list` shows it, an id of PettingZoo's registry, or a function that makes an environment."""

SCRIPT = "'From a GRPO script' in docs/training.md"


def env_makers(env: Env | Mapping[str, Env] | None) -> env_pool.MakeEnv | dict[str, env_pool.MakeEnv]:
    """A function that makes the environment, or one for each name; see `env_maker`."""
    if env is None:
        raise TypeError(
            "MultiAgentGRPOTrainer needs an environment: env='pettingllms/plan_path-v0', or a function that makes "
            "one. A GRPOTrainer script with prompts and reward functions becomes a team's by "
            "env=pettingllms_envs.conversation(roles=['solver', 'critic', 'solver']) and, if it has args, "
            f"MultiAgentGRPOConfig in place of GRPOConfig: see {SCRIPT}."
        )
    if not isinstance(env, Mapping):
        return env_maker(env)
    for name in env or [env_pool.DEFAULT_ENVIRONMENT]:
        if not isinstance(name, str) or name in ("", "None"):
            raise ValueError(
                f"env has the names {list(env)}; expected strings, as in the rows' column "
                f"{env_pool.ENVIRONMENT_COLUMN!r}. Write env={{'sokoban': ..., 'plan_path': ...}}."
            )
    return {name: env_maker(each) for name, each in env.items()}


def env_maker(env: Env, settings: Mapping[str, Any] | None = None) -> env_pool.MakeEnv:
    """A function that makes the environment, with these `settings` if it is given by name.

    `"sokoban"`, `"sokoban_v0"` and `"pettingllms/sokoban-v0"` name the same environment. Raises `ValueError` if there
    is none of that name, and `TypeError` if `env` is neither a name nor a function.
    """
    if not isinstance(env, str):
        if not callable(env):
            raise TypeError(
                f"env is a {type(env).__name__}, expected an id of PettingZoo's registry or a function that makes an "
                "AECEnv: env=lambda: my_env_v0.env(); or a dict of them by name. Reward functions are given as "
                "reward_funcs=..."
            )
        _check_callable(env)
        return env
    if env in pettingzoo.aec_registry:
        return partial(pettingzoo.make, "aec", env, **(settings or {}))
    ours: Any = importlib.import_module("pettingllms_envs")  # resolves short names, also those of plug-ins
    try:
        ours.find(env)
    except ValueError as error:
        hint = "" if "Did you mean" in str(error) else did_you_mean(env, pettingzoo.aec_registry)
        raise ValueError(
            f"{error}{hint} An id of PettingZoo's registry is known once its package was imported; or give a function "
            "that makes the environment."
        ) from None
    return partial(ours.make, env, **(settings or {}))


def _check_callable(env: env_pool.MakeEnv) -> None:
    """Raise `TypeError` for a function that needs arguments, such as a reward function in the environment's place."""
    try:
        inspect.signature(env).bind()
    except ValueError:  # some functions written in C have no signature
        pass
    except TypeError as error:
        raise TypeError(
            f"env is {getattr(env, '__name__', env)!r}, which cannot be called without arguments ({error}), expected "
            "a function that makes an AECEnv: env=lambda: MyEnv(size=4). A reward function is given as "
            f"reward_funcs=..., beside an environment that shows the prompts: see {SCRIPT}."
        ) from None


def make_envs(make_env: env_pool.MakeEnv | Mapping[str, env_pool.MakeEnv]) -> dict[str, AECEnv]:
    """Make one environment of each name. Raises `TypeError` if a function made something else."""
    makers = make_env if isinstance(make_env, Mapping) else {env_pool.DEFAULT_ENVIRONMENT: make_env}
    envs = {name: make() for name, make in makers.items()}
    for env in envs.values():
        if not isinstance(env, AECEnv):
            raise TypeError(
                f"env made a {type(env).__module__}.{type(env).__name__}, expected a pettingzoo.AECEnv. A parallel "
                "environment becomes one by pettingzoo.utils.parallel_to_aec; all its agents are then paid at the "
                "last agent's step, so train it with sampling='parallel' and credit='grpo', or with "
                "credit={'at_grpo': {'value': 'return_to_go'}}."
            )
        branching_of(env)  # raises for a wrong declaration
    return envs


def check_envs(
    make_env: env_pool.MakeEnv | Mapping[str, env_pool.MakeEnv],
    seed: int,
    datasets: Sequence[Any],
    branching: Branching | None = None,
    *,
    made: Mapping[str, AECEnv] | None = None,
    reads: Collection[str] = (),
) -> dict[str, list[AECEnv]]:
    """Validate one environment of each name, its rows' fields, and its agents' observations.

    If environments are branched, branching is checked in the instance of the first row, see `branch_probe.py`. Of a
    streamed data set only the first row is checked. `seed` is that of rows without one, `made` are the environments if
    they were made before, and `reads` the columns that reward functions read. Each is returned as the first of a pool.
    """
    envs = make_envs(make_env) if made is None else made
    first: dict[str, DataRow] = {}
    for dataset in datasets:
        for name, fields, row in _rows_by_name(dataset, envs):
            env_pool.check_fields(envs[name], fields, name, reads)
            if name == env_pool.DEFAULT_ENVIRONMENT:
                _check_filled(envs[name], dataset)
            first.setdefault(name, row)
    unplayed = env_pool.unplayed_columns(envs, datasets, reads)
    pool = env_pool.EnvPool(make_env, None, default_seed=seed, branches=branching is not None, unplayed=unplayed)
    for env in envs.values():
        pool.add(env)
    return {
        name: [_try(env, pool, first.get(name, {env_pool.ENVIRONMENT_COLUMN: name} if name else {}), branching)]
        for name, env in envs.items()
    }


def agents_of(envs: Mapping[str, Sequence[AECEnv]]) -> list[str]:
    """The agents of all environments, each name once: agents of the same name share a policy."""
    return list(dict.fromkeys(agent for pool in envs.values() for agent in pool[0].possible_agents))


def _rows_by_name(dataset: Any, known: Mapping[str, Any]) -> Iterator[tuple[str, list[str], DataRow]]:
    """For each environment named in the rows: its name, the fields that its rows set, and the first of its rows."""
    if env_pool.DEFAULT_ENVIRONMENT in known:
        columns = [column for column in env_pool.columns_of(dataset) if column != "seed"]
        yield env_pool.DEFAULT_ENVIRONMENT, columns, next(iter(dataset), {})
        return
    if not isinstance(dataset, Dataset):
        dataset = Dataset.from_list([dict(next(iter(dataset)))])
    names = dataset[env_pool.ENVIRONMENT_COLUMN][:] if env_pool.ENVIRONMENT_COLUMN in dataset.column_names else [None]
    for name in dict.fromkeys(names):
        env_pool.name_of({env_pool.ENVIRONMENT_COLUMN: name}, known)  # raises for an unknown one
    columns = [column for column in dataset.column_names if column not in ("seed", env_pool.ENVIRONMENT_COLUMN)]
    filled = {
        (name, column)
        for column in columns
        for name, value in zip(names, dataset[column][:], strict=True)
        if value is not None
    }
    for name in dict.fromkeys(names):
        yield name, [column for column in columns if (name, column) in filled], dataset[names.index(name)]


def _check_filled(env: AECEnv, dataset: Any) -> None:
    """Raise `ValueError` if a row lacks what the environment needs, in a data set that is in memory."""
    for option in (env.metadata.get("required_options") or ()) if isinstance(dataset, Dataset) else ():
        if dataset.data.column(option).null_count:
            for empty in [i for i, value in enumerate(dataset[option]) if value is None]:
                raise ValueError(
                    f"row {empty} of the data set has no {option!r} (None); expected one in each row. Leave it out: "
                    f"dataset.filter(lambda row: row[{option!r}] is not None)."
                )


def _try(env: AECEnv, pool: env_pool.EnvPool, row: DataRow, branching: Branching | None) -> AECEnv:
    """Reset the environment to a row's instance and validate it. Returns it as it is branched, or a fresh one."""
    env = branchable(env) if branching is not None else env
    reset_args = pool.reset_args(row)

    def reset(env: AECEnv) -> AECEnv:
        env.reset(seed=reset_args.seed, options=reset_args.options)
        return env

    reset(env)
    for agent in env.agents:
        read_observation(with_known_images(env.observe(agent), {}), agent=agent)
    if branching is None:
        return env
    if is_program(env):  # to branch it at each decision would take many runs
        env.unwrapped.check_repeats(reset_args.seed, reset_args.options)
        return reset(env)

    fresh = partial(pool.acquire, reset_args.environment, fresh=True)
    return check_branching(env, lambda: reset(fresh()), branching, close=pool.close)


def is_program(env: AECEnv) -> bool:
    """Whether an environment is a program that speaks to an endpoint."""
    return "program" in env.metadata


def check_openings(envs: Mapping[str, Sequence[AECEnv]], agents_with_history: Collection[str]) -> None:
    """Raise `ValueError` if an agent with a history observes a whole dialogue, or tools, after the reset."""
    for env, agent, prompt in _first_prompts(envs):
        if agent in agents_with_history and is_program(env):
            raise ValueError(
                f"history='conversation' for {agent!r}, an agent of a program; expected 'none', since each of a "
                "program's calls has its history. Leave history out."
            )
        if agent in agents_with_history:
            check_opening(agent, prompt)


def agents_with_tools(envs: Mapping[str, Sequence[AECEnv]]) -> dict[str, bool]:
    """The agents that observe tools after the reset, and whether an environment of this package reads their calls."""
    found: dict[str, bool] = {}
    for env, agent, prompt in _first_prompts(envs):
        if prompt.tools:
            is_native = (env.metadata.get("settings") or {}).get("tool_calls") == "native"
            found[agent] = found.get(agent, False) or is_native or is_program(env)
    return found


def agents_with_images(envs: Mapping[str, Sequence[AECEnv]]) -> list[str]:
    """The agents that observe images after the reset."""
    return list(dict.fromkeys(agent for _, agent, prompt in _first_prompts(envs) if prompt.images))


def _first_prompts(envs: Mapping[str, Sequence[AECEnv]]) -> Iterator[tuple[AECEnv, str, Prompt]]:
    for pool in envs.values():
        for agent in pool[0].agents:
            messages, tools = read_observation(pool[0].observe(agent), agent=agent)
            yield pool[0], agent, Prompt(messages, images=tuple(images_of(messages)), tools=tools)


def check_levels(env: AECEnv, curriculum: Curriculum) -> None:
    """Raise `ValueError` for levels that are not among the environment's."""
    known = env.metadata.get("reset_options")
    if known is not None and curriculum.field not in known:
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
