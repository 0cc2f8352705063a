"""`SkipsSteps`: an optimizer step whose loss or gradient is not finite is not taken, and too many of them end the run.

What is too many is in `health.py`. DeepSpeed steps by itself; with it the first one ends the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from trl import GRPOTrainer

from pettingllms_trl.policies.routing import Routing
from pettingllms_trl.update.health import Skips, named


class SkipsSteps(GRPOTrainer):
    """See the head of this file."""

    # Set by MultiAgentGRPOTrainer.
    routing: Routing

    _passes: tuple[tuple[torch.Tensor, dict[str, Any]], ...] = ()
    """Of the optimizer step in progress: the loss of each forward pass and its batch."""
    _skips = Skips()

    def _compute_loss(self, model: nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        if self.model.training:
            self._passes = (*self._passes, (loss.detach(), inputs))
        return loss

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """The inherited; where it or a loss is not finite, the step that would follow is taken away."""
        norm = super()._get_grad_norm(model, grad_norm)
        finite = self._losses_are_finite()
        passes, self._passes = self._passes, ()
        if self.is_deepspeed_enabled:  # it has stepped; in float16 it scales and skips by itself
            if not self.args.fp16 and not math.isfinite(norm):
                raise FloatingPointError(self._account("1 step in a row", norm, passes, stepped=True))
            return norm
        # A scaler of float16 tries scales until its gradients overflow, and skips those steps itself.
        if self.accelerator.scaler is None:
            finite = finite and math.isfinite(norm)
            if not finite:
                model.zero_grad()  # to None: an optimizer leaves such parameters, their moments and decay alone
            self.optimizer._is_overflow = not finite  # then the scheduler waits, too
        self._skips = self._skips.after(skipped=not finite)
        self._metrics["train"]["skipped_steps"] = [float(self._skips.total)]
        if not finite and (too_many := self._skips.too_many):
            raise FloatingPointError(self._account(too_many, norm, passes))
        return norm

    def _losses_are_finite(self) -> bool:
        """Those of the optimizer step in progress, of all processes."""
        losses = torch.stack([loss for loss, _ in self._passes] or [torch.zeros((), device=self.accelerator.device)])
        return bool(self.accelerator.gather(losses.sum()).isfinite().all())

    def _stop_if_not_finite(self) -> None:
        """Before DeepSpeed steps, for it leaves no step to be taken away."""
        if not self._losses_are_finite():
            raise FloatingPointError(self._account("1 step in a row", math.nan, self._passes))

    def _account(
        self,
        too_many: str,
        norm: Any,
        passes: Sequence[tuple[torch.Tensor, Mapping[str, Any]]],
        *,
        stepped: bool = False,
    ) -> str:
        bad = [(loss, batch) for loss, batch in passes if not torch.isfinite(loss)] or passes
        agents = list(self.routing.of_agent)
        found = [f"{where}: loss {float(loss)}" for loss, batch in bad for where in named(batch, agents)]
        rest = f"\n  and {len(found) - 20} more" if len(found) > 20 else ""
        weights = "lost, for DeepSpeed has stepped" if stepped else "those of the last good step"
        return (
            f"step {self.state.global_step + 1}: the loss or its gradient was not finite in {too_many} (gradient norm "
            f"{float(norm)}). Training stops; the weights are {weights}, and the checkpoints in "
            f"{self.args.output_dir} are as they were. In this step the loss was of:\n  "
            + "\n  ".join(found[:20])
            + f"{rest}\nResume with a lower learning_rate or max_grad_norm, in bfloat16 or float32; and look for "
            "rewards that are huge."
        )
