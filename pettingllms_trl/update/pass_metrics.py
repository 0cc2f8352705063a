"""What is logged of a micro-step that went through the model in several passes: what one pass would have logged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


OF_ROWS = ("vespo/phi_seq_mean", "aux_loss")
RATIOS = ("clip_ratio/", "cispo_clip_ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardMetrics:
    """One forward pass.

    Args:
        policy: Whose rows went through.
        metrics: What TRL logged of it.
        num_rows: How many.
        num_tokens: Of their completions, those in the loss.
        loss_scale: What its loss was multiplied by.
    """

    policy: str
    metrics: Mapping[str, float]
    num_rows: int
    num_tokens: int
    loss_scale: float


def merge_passes(passes: Sequence[ForwardMetrics], *, ratios_of_rows: bool) -> dict[str, float]:
    """The metrics of one policy's passes as those of a single one.

    Most are means over tokens, some over rows, `*_min` and `*_max` are extremes over rows, and the loss was scaled so
    that its parts add up. What is not a number in a pass, as a mean over no tokens, does not count.

    Args:
        passes: At least one.
        ratios_of_rows: A row has one probability ratio (`importance_sampling_level="sequence"`).
    """
    if len(passes) == 1:
        return dict(passes[0].metrics)
    return {
        key: _joined(key, [p for p in passes if not math.isnan(p.metrics.get(key, math.nan))], ratios_of_rows)
        for key in dict.fromkeys(key for p in passes for key in p.metrics)
    }


def _joined(key: str, passes: Sequence[ForwardMetrics], ratios_of_rows: bool) -> float:
    if not passes:
        return math.nan
    values = [p.metrics[key] for p in passes]
    if key == "policy_loss":
        return sum(p.loss_scale * value for p, value in zip(passes, values, strict=True))
    if key.endswith("_min"):
        return min(values)
    if key.endswith("_max"):
        return max(values)
    of_rows = key in OF_ROWS or (ratios_of_rows and key.startswith(RATIOS))
    weights = [p.num_rows if of_rows else p.num_tokens for p in passes]
    if not any(weights):  # nothing but masked rows: of such a pass TRL logs 0
        return sum(values) / len(values)
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
