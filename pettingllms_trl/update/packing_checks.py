"""Checks, when a trainer is created, that packed rows have the log-probabilities of rows read one at a time.

What its structure does not rule out (`structure/properties.py`) is tried in float32 on a miniature of the model, where
rounding hides nothing. `PackedScorer` then tries the model itself, in its own precision, which can only refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jinja2 import TemplateError
from torch import nn
from transformers import PreTrainedTokenizerBase
from trl.trainer.utils import add_fused_lm_head, pad

from pettingllms_trl.structure.miniature import EXACT, FAILURES, NoMiniature, miniature, quiet
from pettingllms_trl.structure.properties import base_of
from pettingllms_trl.update.packed_attention import NotPackable, attending
from pettingllms_trl.update.packing.cost import Way
from pettingllms_trl.update.packing.pack import pack


QUESTIONS = ("Say yes.", "How many legs do two dogs and a hen have? Answer with a number.")
REPLY = "They have ten legs, and I am sure that this is right."
LONGEST, LONGEST_REPLY = 96, 12
"""Tokens of a row, and of a completion in it. Of a longer prompt, its beginning and its end are read."""


@dataclass(frozen=True, slots=True)
class Differences:
    """Of the log-probabilities of a miniature from those of its logits, one row at a time; `None` where there is none.

    Args:
        head: Of TRL's fused head; or why it does not run.
    """

    head: str | None
    packed: str | None


def template_rows(
    tokenizer: PreTrainedTokenizerBase, context: int | None = None
) -> tuple[list[list[int]], list[list[int]]]:
    """Two prompts of a policy's template, one of them three times, and completions of them, within a context."""
    half = (min(LONGEST, context or LONGEST) - LONGEST_REPLY) // 2
    prompts: list[list[int]] = []
    for question in QUESTIONS:
        messages = [{"role": "user", "content": question}]
        try:
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        except (TemplateError, TypeError, ValueError):  # it wants another conversation
            ids = tokenizer(question)["input_ids"]
        prompts.append(ids if len(ids) <= 2 * half else [*ids[:half], *ids[-half:]])
    reply = tokenizer(REPLY, add_special_tokens=False)["input_ids"] or prompts[0]
    reply = (reply * LONGEST_REPLY)[:LONGEST_REPLY]  # a tokenizer of few words may make one token of it
    completions = [reply, reply[2:6], reply[1:], reply[:1], reply[3:8]]
    return [prompts[number] for number in (0, 1, 0, 0, 1)], completions


def compare(model: Any, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> Differences:
    """Compare packed rows, and TRL's fused head, with the logits of a miniature that reads one row at a time.

    Args:
        model: A causal model of transformers, or PEFT's around one, that is to be packed.

    Raises:
        NoMiniature: There is none of the model.
    """
    rows = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
    with quiet(), torch.no_grad(), torch.autocast("cpu", enabled=False):
        small, flat = miniature(model, [token for row in rows for token in row])
        ids = torch.split(flat, [len(row) for row in rows])
        widths = [len(completion) for completion in completions]
        try:
            expected = [_of_logits(small, row, width) for row, width in zip(ids, widths, strict=True)]
        except FAILURES as error:
            raise NoMiniature from error
        add_fused_lm_head(base_of(small), outputs=("log_probs", "entropy"))
        try:
            heads = [_of_head(small, row, width) for row, width in zip(ids, widths, strict=True)]
        except FAILURES as error:
            return Differences(f"{type(error).__name__}: {error}", None)
        off = _largest(heads, expected)
        head = f"off by {off:.2g} nats a token in float32, on a miniature" if off > EXACT else None
        pairs = [(row[:-width], row[-width:]) for row, width in zip(ids, widths, strict=True)]
        return Differences(head, _why_not_packed(small, pairs, expected))


def padded(rows: Sequence[Sequence[Any]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Prompts padded on the left and completions on the right, with their mask and the longest completion."""
    parts = [[torch.as_tensor(ids) for ids in part] for part in zip(*rows, strict=True)]
    sides = list(zip(parts, ("left", "right"), strict=True))
    ids = torch.cat([pad(part, padding_side=side) for part, side in sides], dim=1)
    masks = [pad([torch.ones_like(each) for each in part], padding_side=side) for part, side in sides]
    mask = torch.cat(masks, dim=1).to(device, non_blocking=True)
    return ids.to(device, non_blocking=True), mask, masks[1].size(1)


def _why_not_packed(
    small: nn.Module, pairs: Sequence[Sequence[torch.Tensor]], expected: Sequence[torch.Tensor]
) -> str | None:
    ids, mask, width = padded(pairs, torch.device("cpu"))
    ways: tuple[Way, ...] = ("rows", "prompts")
    try:
        with attending(small):
            for way in ways:
                packed = pack(ids, mask, width, way=way)
                found = packed.of_completions(small(**packed.inputs).log_probs)
                error = _largest([row[: len(own)] for row, own in zip(found, expected, strict=True)], expected)
                if not error <= EXACT:
                    return f"would give other log-probabilities, by {error:.2g} nats in float32"
    except FAILURES as failure:
        return why_failed(failure)
    return None


def why_failed(failure: Exception) -> str:
    """What a warning says of an error in a packed pass."""
    if isinstance(failure, NotPackable):
        return str(failure)
    return f"does not compute attention by transformers' interface alone (a {type(failure).__name__} without its mask)"


def _of_logits(model: nn.Module, row: torch.Tensor, width: int) -> torch.Tensor:
    logits = model(input_ids=row[None]).logits[0, -width - 1 : -1]
    found: torch.Tensor = logits.log_softmax(dim=-1).gather(1, row[-width:, None])[:, 0]
    return found


def _of_head(model: nn.Module, row: torch.Tensor, width: int) -> torch.Tensor:
    labels = row.clone()
    labels[:-width] = -100
    found: torch.Tensor = model(
        input_ids=row[None], attention_mask=torch.ones_like(row)[None], labels=labels[None], fused_lm_head=True
    ).log_probs[0, -width:]
    return found


def _largest(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    return float((torch.cat([*found]) - torch.cat([*expected])).abs().max())
