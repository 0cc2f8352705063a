"""Environments on other machines: actors of Ray hold them, and this process plays them through `RayEnv`.

An answer has all that is observable, and the snapshot. What would be branched by a copy is replayed.
"""

from __future__ import annotations

import itertools
import json
import pickle
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import Any

from pettingzoo import AECEnv

from pettingllms_envs.branching import SavedState, branching_of
from pettingllms_envs.failures import ServiceFailed
from pettingllms_envs.installing import needs_extra


OPTIONS: dict[str, Any] = {"max_restarts": -1, "max_concurrency": 128, "scheduling_strategy": "SPREAD"}  # of an actor


def options_of(workers: Any) -> dict[str, Any]:
    """The mapping that it says; `ValueError` if it is none, or its `address` or `actors` have other types."""
    given = workers
    with suppress(ValueError, RecursionError):
        given = json.loads(workers) if isinstance(workers, str) and workers.startswith("{") else workers
    given = {"address": given} if isinstance(given, str) and not given.startswith("{") else given
    if isinstance(given, Mapping):
        address, num = given.get("address", "ray"), given.get("actors", 1)
        if isinstance(address, str) and address and type(num) is int and num > 0:
            return OPTIONS | dict(given)
    raise ValueError(
        f"env_workers is {workers!r}; expected 'ray', the address of a cluster, or a mapping (JSON on a command line) "
        'with a text and a number from 1, such as {"address": "auto", "actors": 16}.'
    )


STARTUP = 120.0  # seconds in which all actors start
PUBLIC = ("agents", "agent_selection", "rewards", "_cumulative_rewards", "terminations", "truncations", "infos")
Makers = Mapping[str, Callable[[], AECEnv]]
_NUMBERS = itertools.count()


class Host:
    """Lives in an actor, and holds environments by number."""

    def __init__(self, makers: Makers, expected: str) -> None:
        if (found := version("pettingllms")) != expected:
            raise ValueError(f"an actor has pettingllms {found}, and this process has {expected}")
        self._makers, self._making, self._envs = makers, threading.Lock(), dict[int, Any]()

    def call(self, number: int, name: str, method: str, *args: Any) -> Any:
        if method in ("make", "reset") and number not in self._envs:
            with self._making:  # a user's function need not be thread-safe
                self._envs[number] = self._makers[name]()
        if number not in self._envs:
            raise ServiceFailed("the environment's actor was restarted, and the episode is lost")
        env = self._envs.pop(number) if method == "close" else self._envs[number]
        if method not in ("make", "reset", "step", "restore"):
            return getattr(env if hasattr(AECEnv, method) else env.unwrapped, method)(*args)
        if method == "restore":
            (args[0] if isinstance(args[0], SavedState) else SavedState(args[0])).restore(env)
        elif method == "reset":
            env.reset(seed=args[0], options=args[1])
        elif method == "step":
            env.step(*args)
        return _view(env, is_new=method == "make")


def _view(env: Any, *, is_new: bool) -> dict[str, Any]:  # attributes of a `RayEnv`, before its first reset if `is_new`
    inner, kind, mode = env.unwrapped, type(env.unwrapped), branching_of(env)
    view: dict[str, Any] = {"metadata": {**env.metadata, "branching": "replay" if mode == "copy" else mode}}
    if is_new:
        spaces = {each: (env.observation_space(each), env.action_space(each)) for each in env.possible_agents}
        view |= {"takes_reply": True} if hasattr(kind, "takes_reply") else {}
        return {**view, "possible_agents": env.possible_agents, "_spaces": spaces}
    view |= {name: getattr(env, name, None) for name in PUBLIC} | {"reading": getattr(inner, "reading", None)}
    view |= {"state_hash": partial(str, inner.state_hash())} if hasattr(kind, "state_hash") else {}
    view |= {"comparable": {a: inner.comparable(a) for a in env.agents}.get} if hasattr(kind, "comparable") else {}
    saved, seen = SavedState.of(env) if mode == "snapshot" else None, dict[str, Any]()
    for agent in env.agents:
        with suppress(Exception):  # it is raised when somebody asks for this one
            seen[agent] = env.observe(agent)
    return {**view, "_saved": saved and (saved if saved.wrappers else saved.snapshot), "_seen": seen}


class RayEnv(AECEnv):  # type: ignore[misc]  # pettingzoo ships no types
    """An environment of that name, which an actor holds."""

    def __init__(self, actor: Any, name: str, about: Mapping[str, Any]) -> None:
        self._actor, self._place, self.agents, self.render_mode = actor, (next(_NUMBERS), name), list[str](), None
        self.bot, self.check_repeats, self.oracle = (partial(self._ask, n) for n in ("bot", "check_repeats", "oracle"))
        self.__dict__.update(about)

    def _ask(self, method: str, *args: Any) -> Any:
        import ray

        try:
            if method == "reset":  # once a killed actor was restarted
                ray.wait([self._actor.__ray_ready__.options(max_task_retries=-1).remote()], timeout=STARTUP)
            return ray.get(self._actor.call.remote(*self._place, method, *args))
        except ray.exceptions.UnserializableException as error:  # a constructor with several arguments, say
            raise RuntimeError(f"an error that cannot be sent: {str(error).rstrip().rpartition(chr(10))[2]}") from None
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as lost:
            raise ServiceFailed(f"the environment's Ray actor failed: {lost}") from lost

    def observation_space(self, agent: str) -> Any:
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> Any:
        return self._spaces[agent][1]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.__dict__.update(self._ask("reset", seed, options))

    def step(self, action: Any) -> None:
        self.__dict__.update(self._ask("step", action))

    def restore(self, snapshot: Any) -> None:
        self.__dict__.update(self._ask("restore", snapshot))

    def snapshot(self) -> Any:
        return self._saved

    def observe(self, agent: str) -> Any:
        return self._seen[agent] if agent in self._seen else self._ask("observe", agent)

    def interrupt(self) -> None:
        self._actor.call.remote(*self._place, "interrupt")  # for a program; nobody reads the error of others

    def close(self) -> None:
        with suppress(ServiceFailed):  # it is gone
            self._ask("close")


def ray_makers(makers: Makers, workers: str | Mapping[str, Any]) -> Makers:
    """Functions that make the environments in actors, which start now; a `ValueError` says why they cannot.

    Args:
        workers: `"ray"`, for the cluster that Ray finds or starts; the address of one; or a mapping, or JSON, with
            an `address`, the number of `actors` (the cluster's CPUs), `runtime_env`, and Ray's options of an actor.
    """
    with needs_extra("ray", "ray", "environments in other processes (env_workers)"):
        import ray
    given = options_of(workers)
    address, num = given.pop("address", "ray"), given.pop("actors", None)
    try:
        ray.cloudpickle.dumps(makers)
        if not ray.is_initialized():
            ray.init(None if address == "ray" else address, runtime_env=given.pop("runtime_env", None))
        num = num or int(ray.cluster_resources().get("CPU", 1))
        actors = [ray.remote(Host).options(**given).remote(makers, version("pettingllms")) for _ in range(num)]
        ray.get([actor.__ray_ready__.remote() for actor in actors], timeout=STARTUP)
    except (OSError, ValueError, TypeError, RuntimeError, pickle.PicklingError, ray.exceptions.RayError) as error:
        raise ValueError(
            f"env_workers is {workers!r}: {error}; expected environments that can be sent, to actors that have the "
            "same packages and files. Open files inside the function, env=lambda: MyEnv(open(path)), and have Ray "
            'bring what the actors lack: env_workers={"runtime_env": {"working_dir": "."}}.'
        ) from error
    turns, about = itertools.cycle(actors), {name: RayEnv(actors[0], name, {})._ask("make") for name in makers}
    return {name: lambda name=name: RayEnv(next(turns), name, about[name]) for name in makers}  # type: ignore[misc]
