"""The entropy bonus of each policy, with a fixed coefficient or one that is adapted to a target entropy.

TRL has one coefficient and adapts it in the loss of the last micro-step, which for a team consists of several forward
passes and policies. Here TRL still computes the bonus and sums up the entropies; the coefficients, one for each
policy, are adapted by the same rule (Skywork-OR1, arXiv:2505.22312) once in every optimizer step.
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
        entropy: Mean over the tokens of the policy's last optimizer step, in nats. The bonus is added if this is at
            most `entropy_target`; infinite before the first step.
    """

    coefficient: float
    entropy: float = math.inf

    def after(self, entropy: float, args: MultiAgentGRPOConfig) -> EntropyControl:
        """Raise the coefficient by a step if an optimizer step's entropy is at most the target, else lower it."""
        if entropy <= args.entropy_target:
            coefficient = min(self.coefficient + args.entropy_coef_delta, args.entropy_coef_max)
        else:
            coefficient = max(self.coefficient - args.entropy_coef_delta, args.entropy_coef_min)
        return replace(self, coefficient=coefficient, entropy=entropy)


class EntropyBonus:
    """The coefficients of all trained policies, and the entropies of the optimizer step in progress.

    Args:
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
        """The control of the first policy, for TRL's attributes, which hold only one."""
        return next(iter(self._controls.values()))

    def sums(self, policy: str) -> torch.Tensor | None:
        """Sum of entropies and number of tokens of a policy in this optimizer step, (2,); `None` before its first."""
        return self._sums.get(policy)

    def keep(self, policy: str, sums: torch.Tensor | None) -> None:
        """Store the sums after another forward pass of a policy."""
        if sums is not None:
            self._sums[policy] = sums

    def steer(self, reduce: Callable[[torch.Tensor], torch.Tensor], device: torch.device) -> dict[str, list[float]]:
        """Adapt the coefficients at the end of an optimizer step; returns those of the next one as metrics.

        Args:
            reduce: Sums a tensor over all processes.
        """
        totals = [reduce(self._sums.pop(name, torch.zeros(2, device=device))) for name in self._controls]
        means = torch.stack([torch.stack([total[0] / total[1].clamp(min=1.0), total[1]]) for total in totals]).tolist()
        for (name, control), (mean, num_tokens) in zip(self._controls.items(), means, strict=True):
            if num_tokens > 0:
                self._controls[name] = control.after(mean, self._args)
        found = {name: control.coefficient for name, control in self._controls.items()}
        by_policy = {f"policy/{name}/entropy_coef": [value] for name, value in found.items()}
        return {"entropy_coef": [*found.values()], **(by_policy if len(found) > 1 else {})}

    def state_dict(self) -> dict[str, list[float]]:
        return {name: [control.coefficient, control.entropy] for name, control in self._controls.items()}

    def load_state_dict(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from coefficients that were adapted. Fixed ones are the configuration's, which may have changed."""
        adapted = {name: EntropyControl(*values) for name, values in state.items() if math.isfinite(values[1])}
        self._controls |= adapted if self._args.use_adaptive_entropy else {}
