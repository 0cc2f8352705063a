"""The entropy bonus of each policy: its coefficient, fixed or steered to an entropy that the user wants.

TRL keeps one coefficient and steers it in the loss of the last micro-step, which for a team is that of several forward
passes and policies. Here TRL computes the bonus and sums up the entropies as ever; the coefficients, one for each
policy, are steered by the same rule (Skywork-OR1, arXiv:2505.22312) once in every optimizer step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from trl import GRPOTrainer

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies.routing import Routing
from pettingllms_trl.update.micro_batches import Batch


@dataclass(frozen=True, slots=True)
class EntropyControl:
    """The bonus of one policy.

    Args:
        coefficient: Weight of the mean entropy in the objective.
        entropy: Mean over the tokens of the policy's last optimizer step, in nats. The bonus is given where that is
            at most `entropy_target`; infinite before the first step.
    """

    coefficient: float
    entropy: float = math.inf

    def after(self, entropy: float, args: MultiAgentGRPOConfig) -> EntropyControl:
        """One step up where an optimizer step's entropy is at most the target, one down where it is above."""
        if entropy <= args.entropy_target:
            coefficient = min(self.coefficient + args.entropy_coef_delta, args.entropy_coef_max)
        else:
            coefficient = max(self.coefficient - args.entropy_coef_delta, args.entropy_coef_min)
        return replace(self, coefficient=coefficient, entropy=entropy)


class SteersEntropy(GRPOTrainer):
    """See the head of this file."""

    # Set by MultiAgentGRPOTrainer and by GRPOTrainer.
    routing: Routing
    entropy_coef: float
    use_adaptive_entropy: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._entropy: dict[str, EntropyControl] = {}
        self._entropy_sums: dict[str, torch.Tensor | None] = {}
        super().__init__(*args, **kwargs)

    def _compute_loss(self, model: torch.nn.Module, inputs: Batch) -> torch.Tensor:
        name = inputs["policy"]
        control = self._entropy.get(name, EntropyControl(self.args.entropy_coef))
        self.entropy_coef = control.coefficient * inputs["entropy_scale"]
        if not self.use_adaptive_entropy:
            logged = self._metrics["train"]["entropy_coef"] if self._entropy_bonus_enabled else []
            before = len(logged)
            loss = super()._compute_loss(model, inputs)
            if len(logged) > before:
                logged[-1] = control.coefficient
            return loss
        self._last_world_entropy, self._entropy_window_stats = control.entropy, self._entropy_sums.get(name)
        is_last = self.accelerator.sync_gradients
        self.accelerator.sync_gradients = False  # TRL steers where it is set, which would be in every pass
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self.accelerator.sync_gradients = is_last
            self._entropy_sums[name] = self._entropy_window_stats

    def _steer_entropy(self) -> None:
        """After a micro-step: at the end of an optimizer step, each policy's coefficient for the next."""
        if not (self.use_adaptive_entropy and self.accelerator.sync_gradients):
            return
        metrics = self._metrics["train"]
        for policy in self.routing.trained:
            sums = self._entropy_sums.pop(policy.name, None)
            sums = torch.zeros(2, device=self.accelerator.device) if sums is None else sums
            sums = self.accelerator.reduce(sums, reduction="sum")
            control = self._entropy.get(policy.name, EntropyControl(self.args.entropy_coef))
            if sums[1] > 0:
                control = control.after((sums[0] / sums[1].clamp(min=1.0)).item(), self.args)
            self._entropy[policy.name] = control
            metrics["entropy_coef"].append(control.coefficient)
            if len(self.routing.trained) > 1:
                metrics[f"policy/{policy.name}/entropy_coef"].append(control.coefficient)
        first = self._entropy[self.routing.trained[0].name]
        # Where TRL has its one, which it also writes beside a checkpoint.
        self.entropy_coef, self._last_world_entropy = first.coefficient, first.entropy

    def _place(self) -> dict[str, Any]:
        entropy = {name: [control.coefficient, control.entropy] for name, control in self._entropy.items()}
        return {**super()._place(), "entropy": entropy}

    def _take_place(self, place: dict[str, Any]) -> None:
        super()._take_place(place)
        self._entropy = {name: EntropyControl(*values) for name, values in place["entropy"].items()}
