"""Schedules: which policies are trained in which generation, such as one after the other.

    schedule = Alternate(("drafter", "planner"), every=5)  # five generations each, the drafter first
    schedule = Alternate(("drafter", "planner"), every=5, rest=0.1)  # the other learns at a tenth of its rate

A schedule is a function from the number of a generation, counted from 0, to the names of the policies that are trained
on it. It depends on that number alone, so a resumed run continues it. The other policies play with their current
weights and answer each prompt once, like frozen agents, since no policy learns from their candidates. They get no
gradient, so that neither their weights nor the optimizer's moments change, nor does weight decay shrink them. The
learning-rate scheduler counts optimizer steps, whichever policy is trained in them.

A schedule may return a mapping instead, from each name to a factor of the policy's learning rate. One that does so
does it from the first generation on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pettingllms_trl.policies.routing import Policy


Schedule = Callable[[int], Collection[str]]
"""The names of the policies that a generation, counted from 0, trains; a mapping has factors of learning rates."""


@dataclass(frozen=True, slots=True)
class Alternate:
    """Trains one policy after the other, in turn.

    Args:
        order: Names of policies, in the order of their turns.
        rest: Factor of the learning rates of those whose turn it is not; 0: they do not learn.

    Raises:
        ValueError: `order` is empty, `every` is less than 1, or `rest` is not in [0, 1).
    """

    order: Sequence[str]
    every: int = 1
    rest: float = 0.0

    def __post_init__(self) -> None:
        if not self.order or isinstance(self.order, str):
            raise ValueError(
                f"order is {self.order!r}; expected the names of policies. Write Alternate(('drafter', 'planner'))."
            )
        if self.every < 1:
            raise ValueError(f"every is {self.every}; expected a number of generations of at least 1.")
        if not 0 <= self.rest < 1:
            raise ValueError(f"rest is {self.rest}; expected a factor from 0 to below 1. Write rest=0.1.")

    def __call__(self, generation: int) -> Collection[str]:
        """The policy that is trained on this generation; with `rest` all, and the factors of their learning rates."""
        turn = self.order[generation // self.every % len(self.order)]
        return {name: 1.0 if name == turn else self.rest for name in self.order} if self.rest else (turn,)


def learners(schedule: Schedule, generation: int, trained: Sequence[str]) -> tuple[str, ...]:
    """The policies that are trained on a generation, in the order of `trained`.

    Args:
        generation: Number of the generation, from 0.

    Raises:
        ValueError: The schedule names no policy, or one that is not trained, or a factor is not a positive number.
    """
    names = schedule(generation)
    if isinstance(names, Mapping) and not all(0 < factor < math.inf for factor in names.values()):
        raise ValueError(
            f"the schedule gave {names!r} for generation {generation}; expected factors of learning rates above 0. "
            "Leave out who is not to learn."
        )
    if isinstance(names, str) or not names or any(name not in trained for name in names):
        raise ValueError(
            f"the schedule gave {names!r} for generation {generation}; expected some of the policies that are "
            f"trained: {', '.join(trained)}. Name one at least."
        )
    return tuple(name for name in trained if name in names)


def learning(schedule: Schedule | None, generation: int, trained: Sequence[Policy]) -> tuple[Policy, ...]:
    """The policies that learn from a generation; all that are trained, where there is no schedule."""
    if schedule is None:
        return tuple(trained)
    names = learners(schedule, generation, [policy.name for policy in trained])
    return tuple(policy for policy in trained if policy.name in names)


def rate_factors(schedule: Schedule | None, generation: Callable[[], int]) -> Callable[[], Mapping[str, float]] | None:
    """What gives the factors of the policies' learning rates; `None` if the schedule has none."""
    if schedule is None or not isinstance(schedule(0), Mapping):
        return None

    def of_step() -> Mapping[str, float]:
        names = schedule(generation())
        return names if isinstance(names, Mapping) else {}

    return of_step


def check_windows(gradient_accumulation_steps: int, micro_steps_per_generation: int) -> None:
    """Validate that no optimizer step spans two generations, which may train different policies or on other replies.

    Raises:
        ValueError: A generation's micro-steps are not a whole number of optimizer steps.
    """
    if micro_steps_per_generation % gradient_accumulation_steps:
        raise ValueError(
            f"gradient_accumulation_steps is {gradient_accumulation_steps}, and a generation has "
            f"{micro_steps_per_generation} micro-steps (steps_per_generation * num_iterations); with a schedule or "
            "imitate a generation was expected to be a whole number of optimizer steps, or one would mix what two "
            "generations teach. Set generation_batch_size or steps_per_generation accordingly."
        )
