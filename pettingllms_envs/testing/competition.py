"""Checks of environments whose agents have goals of their own: `metadata["competitive"]` is `"zero_sum"` or `"mixed"`.

There is no maximum that all agents share, and luck decides single episodes. So the oracle is held to what an
equilibrium promises: with the oracle playing all others, no agent gains on average by another policy. A policy that
does better over a few episodes is played again on many others, and only those decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

from pettingllms_envs.testing import play


KINDS = ("zero_sum", "mixed")
NUM_FIRST = 20  # episodes after which a policy that seems to gain is played on others
NUM_SECOND = 200  # of those
SEEMS, GAINS = 2.0, 4.0  # mean gains in standard errors: a chance of 1 in 40, and of 1 in 20,000
TOLERANCE = 1e-12  # of differences of returns


def competition(env: Any) -> str | None:
    """`"zero_sum"`, `"mixed"`, or None where agents have a common goal."""
    kind: str | None = env.metadata.get("competitive")
    if kind is not None and kind not in KINDS:
        raise play.Failed(f"metadata['competitive'] is {kind!r}; expected 'zero_sum', 'mixed' or None")
    if kind is not None and env.metadata.get("max_return") is not None:
        raise play.Failed(
            f"metadata['competitive'] is {kind!r}; expected no metadata['max_return'], which a team shares"
        )
    return kind


def alone(agent: str, policy: play.Policy) -> play.Policy:
    """The policy for one agent, and the oracle for all others."""
    return lambda env, acting: policy(env, acting) if acting == agent else play.best(env, acting)


@dataclass(slots=True)
class AgainstOracle:
    """Plays policies against the oracle.

    Args:
        starts: `NUM_FIRST + NUM_SECOND` starts.
        due: What each agent gets when the oracle plays all, by the number of the start.
    """

    env: Any
    starts: Sequence[play.Start]
    max_steps: int
    due: dict[int, Mapping[str, float]] = field(default_factory=dict)

    def mean_gain(self, name: str, agent: str, policy_of: Callable[[int], play.Policy]) -> float:
        """The mean gain of an agent by a policy in its first episodes beside the oracle; `Failed` if it gains."""
        first = self._gains(agent, policy_of, range(NUM_FIRST))
        if _in_errors(first) > SEEMS:
            numbers = range(NUM_FIRST, NUM_FIRST + NUM_SECOND)
            second = self._gains(agent, policy_of, numbers)
            if _in_errors(second) > GAINS:
                best_number = max(zip(second, numbers, strict=True))[1]
                played = self._played(agent, policy_of, best_number)
                raise play.Failed(
                    f"{name}: {agent} gains {fmean(second):g} on average of {NUM_SECOND} episodes, "
                    f"{_in_errors(second):.1f} standard errors, while the oracle plays the others; expected that the "
                    "oracle is an equilibrium, from which nobody gains alone\n"
                    + play.told(played.start, played.replies)
                )
        return fmean(first)

    def _gains(self, agent: str, policy_of: Callable[[int], play.Policy], numbers: Sequence[int]) -> list[float]:
        won = [self._played(agent, policy_of, n).totals.get(agent, 0.0) for n in numbers]
        return [each - self._due(n).get(agent, 0.0) for each, n in zip(won, numbers, strict=True)]

    def _played(self, agent: str, policy_of: Callable[[int], play.Policy], number: int) -> play.Course:
        return play.episode(self.env, self.starts[number], alone(agent, policy_of(number)), max_steps=self.max_steps)

    def _due(self, number: int) -> Mapping[str, float]:
        if number not in self.due:
            self.due[number] = play.episode(self.env, self.starts[number], play.best, max_steps=self.max_steps).totals
        return self.due[number]


def against_oracle(case: play.Case, env: Any) -> tuple[AgainstOracle, play.Case]:
    """Plays policies against the oracle of an environment; with the case, which has enough starts for it."""
    more = NUM_FIRST + NUM_SECOND - len(case.starts)
    greatest = max(start.seed for start in case.starts)
    further = [play.Start(greatest + 1 + i, case.starts[i % len(case.starts)].options) for i in range(max(more, 0))]
    case = replace(case, starts=(*case.starts, *further))
    return AgainstOracle(env, case.starts, case.max_steps), case


def _in_errors(gains: Sequence[float]) -> float:
    """The mean in standard errors; if all are equal, infinite or 0."""
    mean, deviation = fmean(gains), stdev(gains)
    if deviation <= TOLERANCE:
        return math.inf if mean > TOLERANCE else 0.0
    return mean / (deviation / math.sqrt(len(gains)))
