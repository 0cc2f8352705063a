"""`MultiPolicyModel`: several full models as the one model of a `Trainer`, for policies with weights of their own.

The trainer keeps one optimizer and one checkpoint for all; a forward pass goes to the active model.

    team = MultiPolicyModel({"base": peft_model, "planner": qwen, "coder": llama})
    team.active = "planner"
    team(input_ids=...)  # qwen's; the others get no gradient
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel


class MultiPolicyModel(PreTrainedModel):
    """Models of any architecture, one of which is active at a time.

    Args:
        models: By name, at least one. The first is active, and the config is a copy of its config, since a trainer
            reads a single model type and Hub id from it.
    """

    config_class = PreTrainedConfig
    base_model_prefix = ""
    supports_gradient_checkpointing = True
    # Each model chose its attention when it was loaded.
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def __init__(self, models: Mapping[str, PreTrainedModel | PeftModel]) -> None:
        name, first = next(iter(models.items()))
        super().__init__(copy.deepcopy(first.config))
        self.active = name
        self.generation_config = copy.deepcopy(first.generation_config)
        self.models = nn.ModuleDict(models)
        self._no_split_modules = sorted({name for m in models.values() for name in m._no_split_modules or ()})

    @property
    def active_model(self) -> Any:
        return self.models[self.active]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.active_model(*args, **kwargs)

    def generate(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.active_model.generate(*args, **kwargs)

    def generate_batch(self, *args: Any, **kwargs: Any) -> Any:
        return self.active_model.generate_batch(*args, **kwargs)

    def get_input_embeddings(self) -> None:
        """None, as of the other one: accelerate makes units of FSDP2 of them. TRL's fused head never calls the head,
        so that the gradients of a unit of its own would not be reduced over processes."""

    def get_output_embeddings(self) -> None:
        """None, see `get_input_embeddings`."""

    def save_pretrained(self, save_directory: str | Path, **kwargs: Any) -> None:
        """Save each model to a folder of its name."""
        model: Any
        for name, model in self.models.items():
            model.save_pretrained(Path(save_directory) / name, **kwargs)
