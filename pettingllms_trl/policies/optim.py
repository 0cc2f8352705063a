"""`KeepsApart`: the policies of one trainer learn, and are saved, each for itself.

| what          | how                                                                                              |
|---------------|--------------------------------------------------------------------------------------------------|
| learning rate | parameter groups by policy, in one optimizer                                                     |
| clipping      | by the norm of a policy's own gradients                                                          |
| folder        | `<dir>/<policy>/`, loaded alone by `from_pretrained`, with its tokenizer; read back from there   |

Where one model plays all (`policies="shared"`), all of this is TRL's own, and its weights are at the root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from transformers.trainer import TRAINING_ARGS_NAME
from trl import GRPOTrainer

from pettingllms_trl.policies import weights
from pettingllms_trl.policies.profiles import Voice
from pettingllms_trl.policies.routing import Policy, Routing


class KeepsApart(GRPOTrainer):
    """See the head of this file."""

    # Set by Layouts.
    routing: Routing
    _is_plain: bool
    _voices: dict[str, Voice]

    @property
    def _bare_model(self) -> weights.Model:
        """The trainer's model without what accelerate puts around one, for which it looks in every module."""
        is_bare = isinstance(self.model, PreTrainedModel | PeftModel)
        return self.model if is_bare else self.accelerator.unwrap_model(self.model)

    # ---- The optimizer --------------------------------------------------------------------------------------------

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """The inherited optimizer, its parameter groups split by policy, each with its own learning rate."""
        fresh = self.optimizer is None
        optimizer = super().create_optimizer(model)
        if fresh and any(policy.learning_rate is not None for policy in self.routing.trained):
            groups = []
            for policy in self.routing.trained:
                own = {id(p) for p in self._parameters_of(policy)}
                rate = self.args.learning_rate if policy.learning_rate is None else policy.learning_rate
                for group in optimizer.param_groups:
                    params = [p for p in group["params"] if id(p) in own]
                    groups.append({**group, "params": params, "lr": rate})
            optimizer.param_groups = groups
        return optimizer

    def _clip_grad_norm(self, model: torch.nn.Module) -> Any:
        """Each policy's gradients are clipped by their own norm. Returns the norm of all of them, before clipping."""
        trained = self.routing.trained
        # DeepSpeed has clipped inside its step, by the common norm.
        if self.is_deepspeed_enabled or (len(trained) == 1 and trained[0].max_grad_norm is None):
            return super()._clip_grad_norm(model)
        self.accelerator.unscale_gradients()  # once; accelerate's own clipping would do it for each policy
        norms = []
        for policy in trained:
            parameters = [p for p in self._parameters_of(policy) if p.grad is not None]
            if not parameters:  # nothing taught it in this step; a norm of 0 would dilute what is logged
                continue
            limit = self.args.max_grad_norm if policy.max_grad_norm is None else policy.max_grad_norm
            norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
            norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
            self._metrics["train"][f"policy/{policy.name}/grad_norm"].append(float(norm))
            norms.append(norm)
        return torch.stack(norms or [torch.zeros((), device=self.accelerator.device)]).norm()

    def _parameters_of(self, policy: Policy) -> list[torch.nn.Parameter]:
        return weights.parameters_of(self._bare_model, policy)

    # ---- Disk -----------------------------------------------------------------------------------------------------

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        if self._is_plain:
            super()._save(output_dir, state_dict)
        elif self.args.should_save:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            weights.save(self._bare_model, self.routing.trained, folder, state_dict)
            for policy in self.routing.trained:
                self._voices[policy.name].processing_class.save_pretrained(folder / policy.name)
            torch.save(self.args, folder / TRAINING_ARGS_NAME)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if self._is_plain or self.is_fsdp_enabled:  # FSDP2's shards are read back from a file of its own
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        else:
            own = self.accelerator.unwrap_model(self.model if model is None else model)
            weights.restore(own, self.routing.trained, Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        if self._is_plain or self.is_deepspeed_enabled or self.is_fsdp_enabled:
            super()._load_best_model()
        else:  # transformers looks for weights at the root only, and goes on without
            self._load_from_checkpoint(self.state.best_model_checkpoint)
