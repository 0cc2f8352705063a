"""Weights, gradients and optimizer states on each GPU, and what GPUs send each other. Pure arithmetic, in bytes.

`docs/recipes.md` shows the tables that follow from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias


Sharding: TypeAlias = Literal["ddp", "zero2", "zero3", "fsdp2"]
SHARDINGS: Sequence[Sharding] = ("ddp", "zero2", "zero3", "fsdp2")
"""Configurations of `examples/accelerate_configs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Parameters with one fate: their number, bytes each, and whether they have gradients and optimizer states.

    Args:
        is_reference: Whether they are a frozen copy for a KL term.
    """

    parameters: int
    width: int
    is_trained: bool
    is_reference: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """Bytes on each GPU that stay for the whole run.

    Args:
        weights: Of all policies, frozen ones and references included.
        optimizer: Moments, and under DeepSpeed the float32 copies of the weights that it updates.
        buckets: Buffers in which DDP sends gradients.
    """

    weights: float
    gradients: float
    optimizer: float
    buckets: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.buckets


def training_state(held: Sequence[Weights], sharding: Sharding, num_gpus: int, *, moments: int = 2) -> TrainingState:
    """Bytes on each GPU for weights, gradients and optimizer states.

    Gradients and moments have the width of their weights: a float32 parameter under AdamW takes 4 + 4 + 8 = 16 bytes,
    a bfloat16 one 2 + 2 + 4 = 8, a frozen one its own width. DeepSpeed trains in bfloat16 with float32 weights and
    moments in its optimizer, so 2 + 2 + 4 + 8 = 16 whatever the width. ZeRO-2 leaves the bfloat16 weights whole.

    Args:
        moments: Numbers that the optimizer keeps for each parameter, 2 of AdamW.
    """
    weights = gradients = optimizer = buckets = 0.0
    for part in held:
        if not part.is_trained:
            weights += part.parameters * part.width / (num_gpus if sharding in ("zero3", "fsdp2") else 1)
        elif sharding in ("ddp", "fsdp2"):
            share = part.parameters / (num_gpus if sharding == "fsdp2" else 1)
            weights += share * part.width
            gradients += share * part.width
            optimizer += share * part.width * moments
            if sharding == "ddp" and num_gpus > 1:
                buckets += share * part.width
        else:
            share = part.parameters / num_gpus
            weights += 2 * (part.parameters if sharding == "zero2" else share)
            gradients += 2 * share
            optimizer += share * (4 + 4 * moments)
    return TrainingState(weights=weights, gradients=gradients, optimizer=optimizer, buckets=buckets)


def whole_weights(held: Sequence[Weights], sharding: Sharding, *, width: int) -> float:
    """Bytes of weights that a GPU gathers to sample by itself, beyond its own share; 0 where they are whole anyway.

    `width` is the bytes of a number in a pass, which FSDP2 gathers weights in.
    """
    if sharding in ("ddp", "zero2"):
        return 0.0
    return float(
        sum(w.parameters * (2 if sharding == "zero3" and w.is_trained else min(w.width, width)) for w in held)
    )


def all_reduced(trained: float, num_gpus: int, *, width: int = 4) -> float:
    """Bytes that each GPU sends in a ring that averages gradients (DDP): once for each update."""
    return 2 * (num_gpus - 1) / num_gpus * width * trained


def gathered_in_a_pass(parameters: float, trained: float, num_gpus: int) -> float:
    """Bytes that each GPU sends or receives in one pass of one policy with ZeRO-3 or FSDP2: all weights are gathered,
    forward and backward, and the gradients of what is trained are scattered, in bfloat16."""
    return (num_gpus - 1) / num_gpus * 2 * (2 * parameters + trained)


def blocks_of_cache(num_bytes: float, token_bytes: int, *, block: int = 16) -> int:
    """Tokens that a paged KV cache of that size holds: whole blocks, as vLLM allocates them."""
    return max(int(num_bytes // (block * token_bytes)), 0) * block
