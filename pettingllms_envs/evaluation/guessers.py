"""Guessers: agents that do not read what a task says they have to, beside which an agent shows whether it reads.

They are a task's `blind_policies`, if it has some (`bounds.HasBlindBound`), and each of its `blind_replies`, which
is given whatever the prompt is. A guesser plays all agents of an environment.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pettingllms_envs.bounds import BlindPolicy, HasBlindBound, always
from pettingllms_envs.episodes.episode import Instance
from pettingllms_envs.episodes.observing import infos_of, task_of
from pettingllms_envs.prompts import read_observation, text_of


MOST_STEPS = 10_000
"""Of an episode that a guesser plays."""


class GuesserResult(NamedTuple):
    """How a guesser did."""

    name: str
    successes: tuple[bool, ...]


def guessers_of(env: Any) -> dict[str, BlindPolicy]:
    """The guessers of an environment's task by name; of a third-party environment none."""
    task = task_of(env)
    if task is None:
        return {}
    policies: Mapping[str, BlindPolicy] = task.blind_policies if isinstance(task, HasBlindBound) else {}
    return {**policies, **{f"always {reply!r}": partial(always, reply) for reply in task.blind_replies}}


def best_guesser(make_env: Callable[[], Any], instances: Sequence[Instance], seed: int = 0) -> GuesserResult:
    """Play all guessers of an environment on the same instances, and return the one that succeeds most often.

    It is chosen by the very instances on which it is reported, so its rate is rather too high than too low.
    """
    env = make_env()
    guessers = guessers_of(env)
    if not guessers:
        raise ValueError(
            f"{env.metadata.get('name')} has no guessers; expected a task with `blind_policies` or `blind_replies`. "
            "Add them to its task (docs/cooperation.md), or leave the guesser out."
        )
    found: dict[str, list[bool]] = {name: [] for name in guessers}
    for instance in instances:  # all guessers on one instance, of which a task may keep what takes long to make
        for name, policy in guessers.items():
            found[name].append(succeeds(env, policy, instance, seed))
    best = max(found, key=lambda name: sum(found[name]))
    return GuesserResult(best, tuple(found[best]))


def succeeds(env: Any, policy: BlindPolicy, instance: Instance, seed: int = 0) -> bool:
    """Whether a guesser that plays all agents succeeds on an instance."""
    rng = random.Random(f"guesser {seed} {instance.key}")
    env.reset(seed=instance.seed, options=dict(instance.options) or None)
    outcome: Mapping[str, Any] = {}
    for agent in env.agent_iter(MOST_STEPS):
        if env.terminations[agent] or env.truncations[agent]:
            env.step(None)
            continue
        prompt = read_observation(env.observe(agent), agent=agent).messages[-1]["content"]
        env.step(policy(text_of(prompt), rng))
        if any(env.terminations.values()) or any(env.truncations.values()):
            outcome = _outcome(env) or outcome
    outcome = outcome or _outcome(env)
    if "success" not in outcome:
        raise ValueError(
            f"the outcome of {env.metadata.get('name')} is {dict(outcome)}; expected a `success`, which guessers are "
            "compared by. Add it to the environment's outcome."
        )
    return bool(outcome["success"])


def _outcome(env: Any) -> Mapping[str, Any]:
    return next((info["outcome"] for info in infos_of(env).values() if "outcome" in info), {})
