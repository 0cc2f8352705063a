"""Schedules: which policies are trained in which generation, such as one after the other.

    schedule = Alternate(("drafter", "planner"), every=5)  # five generations each, the drafter first

A schedule is a function from the number of a generation, counted from 0, to the names of the policies that are trained
on it. It depends on that number alone, so a resumed run continues it. The other policies play with their current
weights and answer each prompt once, like frozen agents, since no policy learns from their candidates. They get no
gradient, so that neither their weights nor the optimizer's moments change, nor does weight decay shrink them. The
learning-rate scheduler counts optimizer steps, whichever policy is trained in them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pettingllms_trl.policies.routing import Policy


Schedule = Callable[[int], Collection[str]]
"""From the number of a generation, counted from 0, to the names of the policies that are trained on it."""


@dataclass(frozen=True, slots=True)
class Alternate:
    """Trains one policy after the other, in turn.

    Args:
        order: Names of policies, in the order of their turns.
        every: Generations of a turn.

    Raises:
        ValueError: `order` is empty, or `every` is less than 1.
    """

    order: Sequence[str]
    every: int = 1

    def __post_init__(self) -> None:
        if not self.order or isinstance(self.order, str):
            raise ValueError(
                f"order is {self.order!r}; expected the names of policies. Write Alternate(('drafter', 'planner'))."
            )
        if self.every < 1:
            raise ValueError(f"every is {self.every}; expected a number of generations of at least 1.")

    def __call__(self, generation: int) -> tuple[str, ...]:
        """The policy that is trained on this generation."""
        return (self.order[generation // self.every % len(self.order)],)


def learners(schedule: Schedule, generation: int, trained: Sequence[str]) -> tuple[str, ...]:
    """The policies that are trained on a generation, in the order of `trained`.

    Args:
        schedule: The schedule.
        generation: Number of the generation, from 0.
        trained: Names of the policies that are trained at all.

    Raises:
        ValueError: The schedule names no policy, or one that is not trained.
    """
    names = schedule(generation)
    if isinstance(names, str) or not names or any(name not in trained for name in names):
        raise ValueError(
            f"the schedule gave {names!r} for generation {generation}; expected some of the policies that are "
            f"trained: {', '.join(trained)}. Name one at least."
        )
    return tuple(name for name in trained if name in names)


def learning(schedule: Schedule | None, generation: int, trained: Sequence[Policy]) -> tuple[Policy, ...]:
    """The policies that learn from a generation; all that are trained, where there is no schedule.

    Raises:
        ValueError: As `learners` does.
    """
    if schedule is None:
        return tuple(trained)
    names = learners(schedule, generation, [policy.name for policy in trained])
    return tuple(policy for policy in trained if policy.name in names)


def check_windows(gradient_accumulation_steps: int, micro_steps_per_generation: int) -> None:
    """Validate that no optimizer step spans two generations, which may train different policies.

    Raises:
        ValueError: A generation's micro-steps are not a whole number of optimizer steps.
    """
    if micro_steps_per_generation % gradient_accumulation_steps:
        raise ValueError(
            f"gradient_accumulation_steps is {gradient_accumulation_steps}, and a generation has "
            f"{micro_steps_per_generation} micro-steps (steps_per_generation * num_iterations); with a schedule a "
            "generation was expected to be a whole number of optimizer steps, or one would mix what two generations "
            "teach. Set generation_batch_size or steps_per_generation accordingly."
        )
