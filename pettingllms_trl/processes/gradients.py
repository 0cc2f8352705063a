"""`Gradients`: those of an optimizer step, where some policies have no rows and several processes have their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from torch import nn

from pettingllms_trl.policies.routing import Policy, Routing
from pettingllms_trl.processes.distributed import accumulating, average_gradients, is_deepspeed, is_fsdp


class Trained(Protocol):
    """The policies of a run (`Team`)."""

    @property
    def routing(self) -> Routing: ...
    def parameters_of(self, policy: Policy, /) -> list[nn.Parameter]: ...


class Gradients:
    """The gradients of an optimizer step, before the optimizer sees them.

    Args:
        forward: A short forward pass of a policy through the model that accelerate has prepared; returns its scores.
        whole: A context in which forward passes keep their activations (no gradient checkpointing).
    """

    def __init__(
        self,
        team: Trained,
        accelerator: Accelerator,
        *,
        forward: Callable[[Any, Policy], torch.Tensor],
        whole: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._team, self._accelerator = team, accelerator
        self._forward, self._whole = forward, whole
        self._is_deepspeed = is_deepspeed(accelerator)
        self.left_out: set[str] = set()  # policies with rows in this optimizer step, none in a forward pass

    def begin(self, model: nn.Module) -> None:
        """Before an optimizer step's first pass."""
        if self._is_deepspeed:
            self._zero(model, self._team.routing.trained)

    def finish(self, model: nn.Module) -> None:
        """After an optimizer step's last pass; DeepSpeed takes its step here."""
        if self._is_deepspeed:
            self._zero(model, self._team.routing.trained, steps=True)
        else:
            # All of their rows are left out: a gradient of zero, which the optimizer treats differently from none.
            for policy in self._team.routing.trained:
                if policy.name in self.left_out and all(p.grad is None for p in self._team.parameters_of(policy)):
                    self._zero(model, [policy])
            if self._accelerator.num_processes > 1 and not is_fsdp(self._accelerator):
                average_gradients(p for policy in self._team.routing.trained for p in self._team.parameters_of(policy))
        self.left_out.clear()

    def _zero(self, model: nn.Module, policies: Sequence[Policy], *, steps: bool = False) -> None:
        """Give all that these policies train a gradient of zero, by a forward and backward pass.

        Where all rows of a policy are left out, its optimizer step is one with such gradients. DeepSpeed needs them
        before an optimizer step's first pass and after its last (`steps`): it takes what has no gradient in the first
        for last step's (`partition_grads` of ZeRO-3), with an offloaded optimizer what has none in the last, and steps
        within a backward pass, of which there may be none.
        """
        zero = torch.zeros((), device=self._accelerator.device)
        scaling = {"scale_wrt_gas": False} if self._is_deepspeed else {}
        with self._whole(), nullcontext() if steps else accumulating(model, self._accelerator):
            for policy in policies:
                zero = zero + 0.0 * self._forward(model, policy).sum()
            self._accelerator.backward(zero, **scaling)
