"""The entropy bonus of each policy: its coefficient, fixed or steered to an entropy that the user wants.

TRL keeps one coefficient and steers it in the loss of the last micro-step, which for a team is that of several forward
passes and policies. Here TRL computes the bonus and sums up the entropies as ever; the coefficients, one for each
policy, are steered by the same rule (Skywork-OR1, arXiv:2505.22312) once in every optimizer step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from pettingllms_trl.config import MultiAgentGRPOConfig


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


class EntropyBonus:
    """The coefficients of all trained policies, and the entropies of the optimizer step in progress.

    Args:
        policies: Names of the trained policies, in their order.
        args: Coefficient, target, and how far a step moves the coefficient.
    """

    def __init__(self, policies: Sequence[str], args: MultiAgentGRPOConfig) -> None:
        self._args = args
        self._controls = dict.fromkeys(policies, EntropyControl(args.entropy_coef))
        self._sums: dict[str, torch.Tensor] = {}

    def control(self, policy: str) -> EntropyControl:
        """A policy's coefficient, and its entropy in the last optimizer step."""
        return self._controls[policy]

    @property
    def first(self) -> EntropyControl:
        """That of the first policy, for what has room for one."""
        return next(iter(self._controls.values()))

    def sums(self, policy: str) -> torch.Tensor | None:
        """Sum of entropies and number of tokens of a policy in this optimizer step, (2,); `None` before its first."""
        return self._sums.get(policy)

    def keep(self, policy: str, sums: torch.Tensor | None) -> None:
        """The sums after a further forward pass of a policy."""
        if sums is not None:
            self._sums[policy] = sums

    def steer(self, reduce: Callable[[torch.Tensor], torch.Tensor], device: torch.device) -> dict[str, float]:
        """At the end of an optimizer step: the coefficients for the next.

        Args:
            reduce: The sum of a tensor over all processes.
            device: Of that tensor.
        """
        for name, control in self._controls.items():
            total = reduce(self._sums.pop(name, torch.zeros(2, device=device)))
            if total[1] > 0:
                self._controls[name] = control.after((total[0] / total[1].clamp(min=1.0)).item(), self._args)
        return {name: control.coefficient for name, control in self._controls.items()}

    def state_dict(self) -> dict[str, list[float]]:
        """Coefficient and entropy of each policy."""
        return {name: [control.coefficient, control.entropy] for name, control in self._controls.items()}

    def load_state_dict(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from there."""
        self._controls |= {name: EntropyControl(*values) for name, values in state.items()}
