"""`StepGuard`: skips optimizer steps whose loss or gradient is not finite, and ends the run after too many of them.

It keeps the losses of the current optimizer step with their batches, whose columns identify the decisions, and a
record of the skipped steps. DeepSpeed takes its steps itself; with it the first such step ends the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.records import Decision


MOST_SKIPPED_IN_A_ROW = 2
MOST_SKIPPED_LATELY = 5
LATELY = 100
MOST_NAMED = 20
"""Most decisions that an error message lists."""


class StepGuard:
    """Tracks the losses of the current optimizer step, and which of the last steps were skipped.

    Args:
        agents: Names of the agents, in the order of the batches' column `agent`.
    """

    def __init__(self, agents: Sequence[str], args: MultiAgentGRPOConfig, accelerator: Accelerator) -> None:
        self._agents, self._args, self._accelerator = list(agents), args, accelerator
        self._passes: list[tuple[torch.Tensor, Mapping[str, Any]]] = []
        self.skips = SkipRecord()

    def add(self, loss: torch.Tensor, batch: Mapping[str, Any]) -> None:
        """Record the loss of a forward pass, with the batch, whose columns hold the `provenance` of its rows."""
        self._passes.append((loss.detach(), batch))

    @property
    def has_passes(self) -> bool:
        return bool(self._passes)

    def check_losses(self, *, step: int) -> None:
        """Raise `FloatingPointError` for a loss that is not finite, before DeepSpeed takes its step.

        Args:
            step: Optimizer steps taken before.
        """
        if not self.losses_are_finite():
            raise FloatingPointError(self._report("1 step in a row", step=step, norm=math.nan))

    def conclude(self, norm: float, *, finite: bool, model: nn.Module, optimizer: Any, step: int) -> None:
        """Take the optimizer step away where its gradient or a loss is not finite.

        Args:
            norm: Of the gradient. DeepSpeed has stepped by now, and in float16 scales and skips by itself.
            finite: Whether the losses are, see `losses_are_finite`.
            step: Optimizer steps taken before.

        Raises:
            FloatingPointError: Too many steps were taken away, or DeepSpeed has taken such a step.
        """
        if getattr(self._accelerator.state, "deepspeed_plugin", None) is not None:
            if not self._args.fp16 and not math.isfinite(norm):
                raise FloatingPointError(self._report("1 step in a row", step=step, norm=norm, has_stepped=True))
        else:
            # A scaler of float16 tries scales until its gradients overflow, and skips those steps itself.
            if self._accelerator.scaler is None:
                finite = finite and math.isfinite(norm)
                if not finite:
                    model.zero_grad()  # to None: an optimizer leaves such parameters, their moments and decay alone
                optimizer._is_overflow = not finite  # then the scheduler waits, too
            self.skips = self.skips.after(skipped=not finite)
            if not finite and self.skips.too_many:
                raise FloatingPointError(self._report(self.skips.too_many, step=step, norm=norm))
        self._passes = []

    def losses_are_finite(self) -> torch.Tensor:
        """Whether those of the optimizer step in progress are, of all processes; a bool on the device."""
        own = torch.stack([loss for loss, _ in self._passes] or [torch.zeros((), device=self._accelerator.device)])
        return self._accelerator.gather(own.sum()).isfinite().all()

    def _report(self, too_many: str, *, step: int, norm: float, has_stepped: bool = False) -> str:
        """The message of the error that ends the run."""
        bad = [(loss, batch) for loss, batch in self._passes if not torch.isfinite(loss)] or self._passes
        found = [
            f"{where}: loss {float(loss)}" for loss, batch in bad for where in describe_decisions(batch, self._agents)
        ]
        rest = f"\n  and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        weights = "lost, for DeepSpeed has stepped" if has_stepped else "those of the last good step"
        return (
            f"step {step + 1}: the loss or its gradient was not finite in {too_many} (gradient norm {norm}). Training "
            f"stops; the weights are {weights}, and the checkpoints in {self._args.output_dir} are as they were. In "
            "this step the loss was of:\n  "
            + "\n  ".join(found[:MOST_NAMED])
            + f"{rest}\nResume with a lower learning_rate or "
            "max_grad_norm, in bfloat16 or float32; and look for rewards that are huge."
        )

    def state_dict(self) -> dict[str, Any]:
        return {"lately": list(self.skips.lately), "total": self.skips.total}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.skips = SkipRecord(tuple(state["lately"]), state["total"])


@dataclass(frozen=True, slots=True)
class SkipRecord:
    """Which of the last steps were skipped.

    Args:
        lately: Whether each of the last 100 steps was skipped, oldest first.
        total: Number of skipped steps in the whole run.
    """

    lately: tuple[bool, ...] = ()
    total: int = 0

    def after(self, *, skipped: bool) -> SkipRecord:
        return SkipRecord((*self.lately, skipped)[-LATELY:], self.total + skipped)

    @property
    def too_many(self) -> str | None:
        """A description of the skipped steps if there are too many, else `None`: occasional overflows are normal."""
        row = len([*takewhile(bool, reversed(self.lately))])
        if row > MOST_SKIPPED_IN_A_ROW:
            return f"{row} steps in a row"
        if sum(self.lately) > MOST_SKIPPED_LATELY:
            return f"{sum(self.lately)} of the last {len(self.lately)} steps"
        return None


def provenance(decisions: Sequence[Decision], agents: Sequence[str]) -> dict[str, torch.Tensor]:
    """The decision of each candidate as columns of a batch, each (B,), so that a bad loss can be traced."""
    columns = [(d.instance, d.episode, d.turn, agents.index(d.agent)) for d in decisions for _ in d.candidates]
    values = torch.tensor(columns, dtype=torch.long).reshape(-1, 4)
    return dict(zip(("instance", "episode", "turn", "agent"), values.unbind(1), strict=True))


def describe_decisions(batch: Mapping[str, Any], agents: Sequence[str]) -> list[str]:
    """Human-readable names of the decisions in a batch with `provenance` columns, without duplicates."""
    rows = zip(*(batch[name].tolist() for name in ("instance", "episode", "turn", "agent")), strict=True)
    return [
        f"{agents[agent]}, turn {turn} of episode {episode} of instance {instance}"
        for instance, episode, turn, agent in sorted(set(rows))
    ]
