"""Moving KL references: each follows its policy (`sync_ref_model`, TR-DPO, arXiv:2404.09656).

TRL moves the reference of its one full model, and a resumed run starts from the initial one again. Here every policy
with its own weights has its own reference, and checkpoints save them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from accelerate.utils import broadcast
from torch import nn
from transformers import TrainerCallback
from trl.trainer.callbacks import SyncRefModelCallback

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies.routing import Routing


def check_moving(routing: Routing, beta: float, *, has_adapter: bool) -> None:
    """Validate that references can be moved, with `sync_ref_model`; `beta` is that of policies without one.

    Args:
        has_adapter: Whether the trainer's model has, or gets, an adapter with PEFT's default name.
    """
    if not any(beta if policy.beta is None else policy.beta for policy in routing.trained):
        raise ValueError(
            "sync_ref_model=True, but no policy has a KL term, so there is no reference to move. Set beta, or leave "
            "sync_ref_model out."
        )
    adapters = [*routing.trained_adapters, *(["default"] if has_adapter and not routing.adapters else [])]
    if adapters:
        raise ValueError(
            f"sync_ref_model=True, but {', '.join(map(repr, adapters))} is an adapter, expected full models: the "
            "mean of two adapters' matrices A and B is not an adapter of the mean weights, so that the reference "
            "would be neither. Train full models (policies='full' or 'shared' without a peft_config), or leave it out."
        )


class MovingReferences:
    """The moving references of all trained policies with a KL term.

    Args:
        alpha: How far a reference moves towards them, TR-DPO's mixup alpha.
        saves: Whether this process writes checkpoints; on the others the state is empty.
    """

    def __init__(
        self, references: Mapping[str, nn.Module], weights_of: Callable[[str], nn.Module], *, alpha: float, saves: bool
    ) -> None:
        self._references, self._weights_of = references, weights_of
        self._alpha, self._saves = alpha, saves

    def move(self) -> None:
        """Move every reference one step towards its policy."""
        for name, reference in self._references.items():
            SyncRefModelCallback.sync_target_model(self._weights_of(name), reference, self._alpha)

    def state_dict(self) -> dict[str, Any]:
        return {name: reference.state_dict() for name, reference in self._references.items()} if self._saves else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the references; the first process sends its state to the others."""
        for name, reference in self._references.items():
            if name in state:
                reference.load_state_dict(state[name])
            for tensor in reference.state_dict().values():
                broadcast(tensor)


class MoveReferencesCallback(TrainerCallback):
    """Moves references after every `ref_model_sync_steps` optimizer steps."""

    def __init__(self, references: MovingReferences) -> None:
        self._references = references

    def on_step_end(self, args: MultiAgentGRPOConfig, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % args.ref_model_sync_steps == 0:
            self._references.move()
