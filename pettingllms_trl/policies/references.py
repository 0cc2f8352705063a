"""References that follow their policies (`sync_ref_model`, TR-DPO, arXiv:2404.09656), each its own.

TRL moves one, of a full model, and a run that is resumed starts from the first one again. Here every policy with
weights of its own has a reference of its own, and a checkpoint holds where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accelerate.utils import broadcast
from torch import nn
from transformers import TrainerCallback
from trl import GRPOTrainer
from trl.trainer.callbacks import SyncRefModelCallback

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies import weights
from pettingllms_trl.policies.profiles import Voice
from pettingllms_trl.policies.routing import Routing


def check_moving(routing: Routing, args: MultiAgentGRPOConfig, *, has_adapter: bool) -> None:
    """Refuse references that cannot follow.

    Args:
        has_adapter: The trainer's model is, or becomes, one with an adapter that PEFT named.

    Raises:
        ValueError: There are none, or they are adapters.
    """
    if not args.sync_ref_model:
        return
    if not any(args.beta if policy.beta is None else policy.beta for policy in routing.trained):
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


class MovesReferences(GRPOTrainer):
    """See the head of this file."""

    # Set by Layouts.
    routing: Routing
    _voices: dict[str, Voice]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.args.sync_ref_model:
            plugin = self.accelerator.state.deepspeed_plugin
            if self.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3):
                raise ValueError(
                    "sync_ref_model=True with weights that are spread over processes (FSDP, ZeRO-3), where a "
                    "checkpoint could not hold the references. Use DDP or ZeRO-2, or leave it out."
                )
            self.add_callback(_Sync(self._move_references))

    def _references(self) -> dict[str, nn.Module]:
        """Of each trained policy with a KL term; none where they stay as they are."""
        if not self.args.sync_ref_model:
            return {}
        named = {policy.name: self._voices[policy.name].ref_model for policy in self.routing.trained}
        return {name: self.accelerator.unwrap_model(ref) for name, ref in named.items() if isinstance(ref, nn.Module)}

    def _move_references(self) -> None:
        model = self._bare_model
        references = self._references()
        for policy in self.routing.trained:
            if policy.name in references:
                own, alpha = weights.weights_of(model, policy), self.args.ref_model_mixup_alpha
                SyncRefModelCallback.sync_target_model(own, references[policy.name], alpha)

    def _place(self) -> dict[str, Any]:
        references = self._references() if self.args.should_save else {}
        return {**super()._place(), "references": {name: ref.state_dict() for name, ref in references.items()}}

    def _take_place(self, place: dict[str, Any]) -> None:
        super()._take_place(place)
        for name, reference in self._references().items():
            if name in place["references"]:
                reference.load_state_dict(place["references"][name])
            for tensor in reference.state_dict().values():
                broadcast(tensor)


class _Sync(TrainerCallback):
    """Moves references after every `ref_model_sync_steps` optimizer steps."""

    def __init__(self, move: Callable[[], None]) -> None:
        self._move = move

    def on_step_end(self, args: MultiAgentGRPOConfig, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % args.ref_model_sync_steps == 0:
            self._move()
