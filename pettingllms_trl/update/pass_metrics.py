"""Merges the metrics of a micro-step's forward passes into those that a single pass would have logged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


OF_ROWS = ("vespo/phi_seq_mean", "aux_loss")
RATIOS = ("clip_ratio/", "cispo_clip_ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardMetrics:
    """The metrics of one forward pass.

    Args:
        policy: The policy of its rows.
        metrics: What TRL logged.
        num_rows: Number of rows.
        num_tokens: Number of completion tokens in the loss.
        loss_scale: The factor of its loss.
    """

    policy: str
    metrics: Mapping[str, float]
    num_rows: int
    num_tokens: int
    loss_scale: float


def merge_passes(passes: Sequence[ForwardMetrics], *, ratios_of_rows: bool) -> dict[str, float]:
    """Merge the metrics of one policy's passes into those of a single pass.

    Most are means over tokens, some over rows, `*_min` and `*_max` are extremes over rows, and losses were scaled so
    that they add up. NaN values, such as a mean over no tokens, are ignored.

    Args:
        passes: At least one pass.
        ratios_of_rows: Whether a row has one probability ratio (`importance_sampling_level="sequence"`).
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
    if not any(weights):  # all rows are masked: TRL logs 0 for such a pass
        return sum(values) / len(values)
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
