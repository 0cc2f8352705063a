"""Runs PettingZoo's own tests, and Gymnasium's, and counts their warnings as failures."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from gymnasium.spaces import Dict, Space
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, max_cycles_test, parallel_api_test, parallel_seed_test, render_test, seed_test
from pettingzoo.utils import BaseWrapper
from pettingzoo.utils.conversions import aec_to_parallel_wrapper

from pettingllms_envs.single_agent import Seat
from pettingllms_envs.testing.play import Case, Failed, Skipped, blaming, made_if_taken


NUM_CYCLES = 50

# What PettingZoo says of every environment whose observations and actions are texts.
TEXT_WARNINGS = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete",
    "Action space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete",
    "Agents have different observation space sizes",  # roles may observe different kinds: texts, images, messages
)


def check_pettingzoo(case: Case) -> str:
    """`api_test` and `seed_test`; `max_cycles_test` and `render_test` where `make` takes those settings.

    `max_cycles` is tested only where every agent acts once in each cycle: `metadata["cyclic"]` is not false.

    `max_cycles_test` compares an AEC environment with a parallel one in which every agent acts in every step, so that
    a step is a cycle. It is given `make(max_cycles=...)` and PettingZoo's `aec_to_parallel_wrapper` around the same,
    with empty replies, and not the environment's own parallel form.
    """
    for seed in range(3):
        env = _seeded(case.make(), seed)
        worded = isinstance(env.observe(env.agent_selection), str)
        with _counting("api_test", known=(*_about_options(case.make()), *_of_render(env), *_of_names(env))):
            api_test(_Worded(env) if worded else env, num_cycles=NUM_CYCLES)
    with _counting("seed_test"):
        # It seeds the spaces of those agents alone that are there at the beginning.
        seed_test(lambda: _seeded(case.make()), num_cycles=NUM_CYCLES)
    passed = [f"api_test{' (each observation as the text of a dictionary)' if worded else ''}", "seed_test"]
    is_cyclic = env.metadata.get("cyclic", True)
    if is_cyclic and made_if_taken(case.make, max_cycles=4) is not None:
        with _counting("max_cycles_test"):
            max_cycles_test(_quiet_module(case.make))
        passed.append("max_cycles_test (of make, and of PettingZoo's aec_to_parallel_wrapper around it)")
    modes = case.make().metadata.get("render_modes")
    if modes and made_if_taken(case.make, render_mode=modes[0]) is not None:
        with _counting("render_test"):
            render_test(lambda render_mode: _seeded(case.make(render_mode=render_mode)))
        passed.append(f"render_test ({', '.join(modes)})")
    return ", ".join(passed)


def check_parallel(case: Case) -> str:
    """`parallel_api_test` and `parallel_seed_test`, where a parallel environment is given."""
    if case.make_parallel is None:
        raise Skipped("no make_parallel was given")
    try:
        env = case.make_parallel()
    except ValueError as error:
        agents = case.make().possible_agents
        if len(agents) == 1:
            raise
        raise Skipped(f"its {len(agents)} agents act one after another ({error})") from None
    with _counting("parallel_api_test", known=_about_options(case.make_parallel())):
        parallel_api_test(_seeded(env), num_cycles=NUM_CYCLES)
    with _counting("parallel_seed_test"):
        parallel_seed_test(case.make_parallel, num_cycles=NUM_CYCLES)
    return "parallel_api_test, parallel_seed_test (of make_parallel)"


def check_gymnasium(case: Case) -> str:
    """Gymnasium's `check_env`, of the seat of the agent that acts first among others that reply at random."""
    env = _seeded(case.make())
    seat = Seat(env, env.agent_selection, "random")
    seat.reset(seed=0)
    if seat.step(seat.action_space.sample())[3]:
        raise Skipped("an episode is truncated after one step, which Gymnasium's check_env takes for an error")
    with _counting("check_env", of="Gymnasium"):
        check_env(seat, skip_render_check=True)
    return f"check_env of the seat of {seat.agent}"


@contextmanager
def _counting(test: str, known: tuple[str, ...] = (), of: str = "PettingZoo") -> Iterator[None]:
    """Run one of the tests; any warning fails it, except known ones and those about text spaces."""
    with warnings.catch_warnings(record=True) as caught, blaming(lambda: f"in {of}'s {test}"):
        warnings.simplefilter("always")
        yield
    said = [str(each.message) for each in caught]
    unexpected = [text for text in said if text not in TEXT_WARNINGS and text not in known]
    if unexpected:
        raise Failed(f"{of}'s {test} warns: {unexpected[0]}")


def _about_options(env: Any) -> tuple[str, ...]:
    """The environment's warning about `options={"options": 1}`, with which PettingZoo resets it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.reset(seed=0, options={"options": 1})
    return tuple(str(each.message) for each in caught)


def _of_render(env: Any) -> tuple[str, ...]:
    """PettingZoo's warning about a missing `render()`, which an environment without render modes does not need."""
    return () if env.metadata.get("render_modes") else ("Environment has not defined a render() method",)


def _of_names(env: Any) -> tuple[str, ...]:
    """PettingZoo's warning about names of agents, which a program's are not: they are names of its models."""
    said = 'We recommend agents to be named in the format <descriptor>_<number>, like "player_0"'
    return (said,) if "program" in env.metadata else ()


def _seeded(env: Any, seed: int = 0) -> Any:
    """The environment with its spaces and its own random numbers seeded, so that a report repeats."""
    env.reset(seed=seed)
    for agent in env.possible_agents:
        env.action_space(agent).seed(seed)
    return env


class _Worded(BaseWrapper):  # type: ignore[misc]
    """Wraps `str` observations in dictionaries, since `api_test` reads the dtype of anything else."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._spaces = {agent: Dict({"text": env.observation_space(agent)}) for agent in env.possible_agents}

    def observation_space(self, agent: str) -> Dict:
        return self._spaces[agent]

    def observe(self, agent: str) -> dict[str, str]:
        return {"text": self.env.observe(agent)}


class _Silence(Space[str]):
    """A space whose samples are empty."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return ""


class _Quiet(BaseWrapper):  # type: ignore[misc]
    """An environment whose action spaces sample empty replies, which end no episode early."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.metadata = {**env.metadata, "is_parallelizable": True}  # the wrapper for the parallel side insists

    def action_space(self, agent: str) -> Space[str]:
        return _Silence()


def _quiet_module(make: Callable[..., Any]) -> SimpleNamespace:
    """What `max_cycles_test` takes. A cycle in which every agent acts once is a turn, and a step of the wrapper."""
    return SimpleNamespace(
        env=lambda max_cycles: _Quiet(make(max_cycles=max_cycles)),
        parallel_env=lambda max_cycles: aec_to_parallel_wrapper(_Quiet(make(max_cycles=max_cycles))),
    )
