"""`RolloutTimes`: warns, once, where rollouts take much longer than the updates that they are for.

An instance's decisions follow one another, so a rollout takes as long as its longest instance, and the engine is
seldom full. The rows of several optimizer steps, played in one generation, take little longer than those of one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from transformers import TrainerCallback

from pettingllms_trl.config import MultiAgentGRPOConfig


MOST = 3.0
"""Times as long as updates that rollouts may take without a warning."""
NUM_STEPS = 4
"""Optimizer steps over which they are compared. The first of a run is left out: kernels are compiled in it."""
SHORT = 5.0
"""Seconds of a step's rollouts, on average, below which nobody needs advice."""


class RolloutTimes(TrainerCallback):
    """Measures how long rollouts and updates take, and warns where rollouts take much longer.

    Every process waits for the others' rollouts and so measures the same, about.
    """

    def __init__(
        self, args: MultiAgentGRPOConfig, warn: Callable[[str], None], *, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._args, self._warn, self._now = args, warn, now
        # Several updates already.
        self._is_over = args.steps_per_generation > args.gradient_accumulation_steps or args.imitate is not None
        self._began: float | None = None
        self._rollout = 0.0
        self._steps: deque[tuple[float, float]] = deque(maxlen=NUM_STEPS)  # seconds of rollouts, and of the rest
        self._num_steps = 0

    @contextmanager
    def rollout(self) -> Iterator[None]:
        began = self._now()
        yield
        self._rollout += self._now() - began

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step begins; the generation that it needs is made within."""
        self._began, self._rollout = self._now(), 0.0

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """It is over, but for evaluation, checkpoints and logging."""
        if self._is_over or self._began is None:
            return
        self._num_steps += 1
        if self._num_steps > 1:
            self._steps.append((self._rollout, self._now() - self._began - self._rollout))
        if len(self._steps) < NUM_STEPS:
            return
        rollout, update = (sum(seconds) / NUM_STEPS for seconds in zip(*self._steps, strict=True))
        if rollout > MOST * update and rollout >= SHORT:
            self._is_over = True
            self._warn(f"step {state.global_step}: {self._words(rollout, update)}")

    def _words(self, rollout: float, update: float) -> str:
        steps, most = 2 * self._args.gradient_accumulation_steps, self._args.max_envs
        return (
            f"over the last {NUM_STEPS} optimizer steps rollouts took {rollout / max(update, 1e-9):.0f} times as long "
            f"as updates ({rollout:.0f} s and {update:.1f} s a step). The rows of two optimizer steps played together "
            f"take little longer than those of one: set steps_per_generation={steps} (twice "
            "gradient_accumulation_steps, in place of generation_batch_size). The second update is then one step "
            "off-policy, for which the loss's importance ratios account."
            + ("" if most is None else f" max_envs={most} limits what is in play at once: raise it, too.")
        )
