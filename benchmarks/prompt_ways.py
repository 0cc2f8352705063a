"""Other ways to share a prompt between its candidates than the one that is taken, each checked against rows.

A way takes a model, the rows' tokens and their shape, and returns log-probabilities of the completions, (K, C).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from figures import Figure
from flat_groups import Shape
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from transformers import AttentionInterface, DynamicCache, PreTrainedModel

from pettingllms_trl.update.packed_attention import attending, configs_of
from pettingllms_trl.update.packing import cost as packing_cost
from pettingllms_trl.update.packing.pack import pack


Way = Callable[[PreTrainedModel, torch.Tensor, Shape], torch.Tensor]
FLEX = "benchmark_flex"
"""Under this name transformers finds `attend_by_blocks`."""
DIFFER = {torch.float32: 1e-4, torch.bfloat16: 0.1}
"""Largest difference of a parameter's gradient, relative to it."""


def with_rows(model: PreTrainedModel, ids: torch.Tensor, shape: Shape) -> torch.Tensor:
    """TRL's: a row for each candidate."""
    labels = ids.clone()
    labels[:, : shape.prompt] = -100
    found = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels, fused_lm_head=True)
    return found.log_probs[:, -shape.completion :]


def with_layout(way: packing_cost.Way) -> Way:
    """Ours, attention whole ("rows") or split ("prompts")."""

    def score(model: PreTrainedModel, ids: torch.Tensor, shape: Shape) -> torch.Tensor:
        packed = pack(ids, torch.ones_like(ids), shape.completion, way=way)
        found = model(**packed.inputs)
        return packed.of_completions(found.log_probs)

    return score


def with_cache(model: PreTrainedModel, ids: torch.Tensor, shape: Shape) -> torch.Tensor:
    """The prompt's keys and values, kept in the graph and expanded over the candidates. Not with checkpoints, which
    take no cache; one decision in two passes."""
    cache = DynamicCache(config=model.config)
    model.base_model(input_ids=ids[:1, : shape.prompt - 1], past_key_values=cache, use_cache=True)
    for layer in cache.layers:
        layer.keys = layer.keys.expand(shape.candidates, -1, -1, -1)
        layer.values = layer.values.expand(shape.candidates, -1, -1, -1)
    positions = torch.arange(shape.prompt - 1, ids.size(1) - 1, device=ids.device)[None].expand(shape.candidates, -1)
    labels = ids[:, shape.prompt :].contiguous()
    found = model(
        input_ids=ids[:, shape.prompt - 1 : -1],
        past_key_values=cache,
        position_ids=positions,
        shift_labels=labels,
        fused_lm_head=True,
    )
    return found.log_probs


def with_mask(model: PreTrainedModel, ids: torch.Tensor, shape: Shape) -> torch.Tensor:
    """The packed row under a mask of all its tokens by all its tokens, which any model takes."""
    place = torch.arange(shape.prompt - 1 + shape.candidates * shape.completion, device=ids.device)
    return _with_seen(model, ids, shape, sees(shape, place[:, None], place)[None, None])


def with_flex(model: PreTrainedModel, ids: torch.Tensor, shape: Shape) -> torch.Tensor:
    """The packed row under flex attention, which skips the blocks of it that see nothing of each other."""
    return _with_seen(model, ids, shape, block_mask(shape, ids.device))


def _with_seen(
    model: PreTrainedModel, ids: torch.Tensor, shape: Shape, seen: torch.Tensor | BlockMask
) -> torch.Tensor:
    packed = pack(ids, torch.ones_like(ids), shape.completion)
    found = model(
        input_ids=packed.ids,
        position_ids=packed.positions,
        attention_mask=seen,
        shift_labels=packed.labels,
        fused_lm_head=True,
    )
    return packed.of_completions(found.log_probs)


def sees(shape: Shape, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Whether a position of a packed row sees another: one before it, of the prompt or of the same candidate."""
    of_query, of_key = (
        (place - (shape.prompt - 1)).div(shape.completion, rounding_mode="floor") for place in (query, key)
    )
    return (key <= query) & ((of_key < 0) | (of_key == of_query))


# ---- Flex attention -------------------------------------------------------------------------------------------------


def block_mask(shape: Shape, device: torch.device) -> BlockMask:
    """Which blocks of a packed row see which."""
    num_tokens = shape.prompt - 1 + shape.candidates * shape.completion
    return create_block_mask(
        lambda batch, head, query, key: sees(shape, query, key), None, None, num_tokens, num_tokens, device=str(device)
    )


def attend_by_blocks(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: BlockMask,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Flex attention as transformers calls it: compiled on a GPU, on a CPU as it is, and there without gradients."""
    attend = _compiled() if query.is_cuda else flex_attention
    grouped = query.size(1) != key.size(1)
    found = attend(query, key, value, block_mask=attention_mask, scale=scaling, enable_gqa=grouped)
    return found.transpose(1, 2), None


@cache
def _compiled() -> Callable[..., torch.Tensor]:
    return torch.compile(flex_attention, fullgraph=True)


@contextmanager
def attending_by_blocks(model: nn.Module) -> Iterator[None]:
    """Use `attend_by_blocks` in a model's layers inside the block."""
    with attending(model):  # puts back what was there
        for config in configs_of(model):
            config._attn_implementation_internal = FLEX
        yield


AttentionInterface.register(FLEX, attend_by_blocks)


# ---- The comparison -------------------------------------------------------------------------------------------------


def ways(*, checkpointing: bool, has_flex: bool) -> dict[str, Way]:
    """By name, rows first."""
    found = {"rows": with_rows, "whole": with_layout("rows"), "split": with_layout("prompts"), "mask": with_mask}
    if not checkpointing:
        found["cache"] = with_cache
    if has_flex:
        found["flex"] = with_flex
    return found


def compare_ways(
    model: PreTrainedModel,
    ids: torch.Tensor,
    shape: Shape,
    *,
    rounds: int,
    now: Callable[[], float],
    compared: Mapping[str, Way],
) -> dict[str, tuple[float, ...]]:
    """Seconds of each way, round by round: of log-probabilities, forward and backward. What a GPU has no room for has
    none.

    Args:
        model: Shares prompts.
        ids: (K, P + C) the rows' tokens.
        shape: P, C and K.
        rounds: That are counted, after one that is not.
        now: The clock.
        compared: The first says what the gradients are.

    Raises:
        RuntimeError: A way gives other gradients.
    """
    seconds: dict[str, list[float]] = {name: [] for name in compared}
    without_room: set[str] = set()
    expected: list[torch.Tensor] = []
    for _ in range(rounds + 1):
        for name, score in compared.items():
            if name in without_room:
                continue
            model.zero_grad(set_to_none=False)
            began = now()
            # The backward pass of checkpoints recomputes layers under the same attention.
            with attention_of(name, model):
                if not _has_room(score, model, ids, shape):
                    without_room.add(name)
                    seconds[name].clear()
                    continue
            seconds[name].append(now() - began)
            found = [parameter.grad.clone() for parameter in model.parameters()]
            expected = expected or found
            limit = DIFFER[found[0].dtype]
            if any((a - b).norm() > limit * b.norm() for a, b in zip(found, expected, strict=True)):
                raise RuntimeError(f"{name} gives other gradients than rows; expected the same, or speed says nothing")
    return {name: tuple(own[1:]) for name, own in seconds.items()}


def attention_of(name: str, model: nn.Module) -> AbstractContextManager[None]:
    """The attention that a way needs until its backward pass is over."""
    if name in ("whole", "split"):
        return attending(model)
    return attending_by_blocks(model) if name == "flex" else nullcontext()


def _has_room(score: Way, model: PreTrainedModel, ids: torch.Tensor, shape: Shape) -> bool:
    try:
        score(model, ids, shape).sum().backward()
    except torch.OutOfMemoryError:
        return False
    return True


def speeds(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """How many times the speed of rows each way has; not a number where one of them has no seconds."""
    return {
        name: statistics.median([a / b for a, b in zip(seconds["rows"], own, strict=False)] or [math.nan])
        for name, own in seconds.items()
    }


def figures_of(seconds: Mapping[str, Sequence[float]], name: str) -> list[Figure]:
    """What is saved: each way beside rows."""
    rows = tuple(seconds["rows"])
    return [
        Figure(
            name=f"prompts shared by {way}, {name}",
            unit="s",
            ours=tuple(own),
            peer_name="rows",
            peer=rows if own and rows else (),
            better="neither",
            absent="" if own and rows else f"the GPU has no room for {'rows' if own else way}",
        )
        for way, own in seconds.items()
        if way != "rows"
    ]
