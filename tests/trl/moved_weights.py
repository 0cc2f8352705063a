"""Which policies of a team a training has moved."""

from __future__ import annotations

from typing import Any

import torch


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    """A copy of the model's parameters."""
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}


def part_of(name: str) -> str:
    """The policy that a parameter belongs to: its adapter, its model in the container, or "base"."""
    if "lora_" in name:
        return name.split("lora_")[1].split(".")[1]
    return name.split(".")[1] if name.startswith("models.") else "base"


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    """The policies of which a parameter differs."""
    assert before.keys() == after.keys()
    return {part_of(name) for name in before if not torch.equal(before[name], after[name])}
