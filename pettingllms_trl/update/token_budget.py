"""`TokenBudget`: how many tokens a training has generated, and its end once they are as many as it may generate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback


class TokenBudget(TrainerCallback):
    """Counts the tokens that are sampled in training, and stops it where there is a limit.

    Methods of different cost are compared at equal tokens: a step of one samples several times what a step of another
    does. The count is part of a checkpoint, so that a resumed run ends where an uninterrupted one does.

    Args:
        max_tokens: How many may be generated. `None`: no limit.
        micro_steps_per_generation: Micro-steps that a generation's sequences are trained on in, so that a training
            does not stop before it has used what it has sampled.
    """

    def __init__(self, max_tokens: int | None, *, micro_steps_per_generation: int) -> None:
        self.max_tokens, self._micro_steps = max_tokens, micro_steps_per_generation
        self.num_generated = 0

    def add(self, num_tokens: int) -> None:
        self.num_generated += num_tokens

    def is_spent(self, micro_step: int) -> bool:
        """Whether training ends after this number of micro-steps."""
        return self.done >= 1.0 and micro_step % self._micro_steps == 0

    @property
    def done(self) -> float:
        """The share of the tokens that were generated; 0 without a limit."""
        return self.num_generated / self.max_tokens if self.max_tokens else 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop |= self.is_spent(state.global_step * args.gradient_accumulation_steps)

    def state_dict(self) -> Mapping[str, Any]:
        return {"num_generated": self.num_generated}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.num_generated = state["num_generated"]
