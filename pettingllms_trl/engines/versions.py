"""Which weights the trainer holds: a version that every change of them raises, and by which engines are kept current.

The number of optimizer steps is no such version: the best checkpoint is loaded after the last step, a second `train()`
counts from 0 again, and a user may change weights between two steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from transformers import TrainerCallback

from pettingllms_trl.policies.routing import Policy


@dataclass(frozen=True, slots=True)
class WeightsVersion:
    """How often a trainer's weights have changed, counted for those that a change can concern.

    | what changes them                                     | `trained` | `frozen` | `base` |
    |-------------------------------------------------------|-----------|----------|--------|
    | an optimizer step, the beginning of `train()`         | + 1       |          |        |
    | a checkpoint that is loaded                           | + 1       | + 1      |        |
    | by hand (`MultiAgentGRPOTrainer.weights_changed`)     | + 1       | + 1      | + 1    |

    Args:
        trained: Of the policies that are trained.
        frozen: Of frozen adapters, and of frozen models that were given as objects.
        base: Of frozen models that were loaded by name, as an engine loads them itself. No checkpoint holds them.
    """

    trained: int = 0
    frozen: int = 0
    base: int = 0

    def after_step(self) -> WeightsVersion:
        """The version after an optimizer step."""
        return replace(self, trained=self.trained + 1)

    def after_load(self) -> WeightsVersion:
        """The version after a checkpoint was loaded."""
        return replace(self, trained=self.trained + 1, frozen=self.frozen + 1)

    def after_change_by_hand(self) -> WeightsVersion:
        """The version after anything may have changed."""
        return WeightsVersion(self.trained + 1, self.frozen + 1, self.base + 1)

    def of(self, policy: Policy) -> int:
        """The version of one policy's own weights: of its adapter, or of its model."""
        if policy.is_trained:
            return self.trained
        return self.base if policy.adapter is None else self.frozen


class CountsSteps(TrainerCallback):
    """Calls a function after each optimizer step, before any other callback can sample."""

    def __init__(self, count: Callable[[], None]) -> None:
        self._count = count

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """See `TrainerCallback`."""
        self._count()
