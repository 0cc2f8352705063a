"""Merges the metrics of a micro-step's forward passes into those that a single pass would have logged."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
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


def means_of_padding_rows(keys: Collection[str], *, ratios_of_rows: bool) -> dict[str, float]:
    """What a padding row has contributed to those metrics that are means over rows: it is unclipped, its weight 1.

    Args:
        keys: Of the metrics of a forward pass.
        ratios_of_rows: Importance ratios are of rows (`importance_sampling_level="sequence"`).
    """
    clipped = {f"clip_ratio/{kind}_mean": 0.0 for kind in ("low", "high", "region")} | {"cispo_clip_ratio": 0.0}
    means = {**(clipped if ratios_of_rows else {}), "vespo/phi_seq_mean": 1.0}
    return {key: value for key, value in means.items() if key in keys}


def without_padding(mean: float, of_padding: float, *, num_rows: int, num_padding: int) -> float:
    """A mean over rows, without padding rows; NaN where there are no others.

    Args:
        mean: Over all rows.
        of_padding: The value of each padding row.
        num_rows: All of them.
        num_padding: Of these, padding rows.
    """
    real = num_rows - num_padding
    return (mean * num_rows - of_padding * num_padding) / real if real else math.nan


def of_completions(lengths: Sequence[int], terminated: Sequence[bool]) -> dict[str, float]:
    """TRL's metrics of completions, from their lengths and whether each came to its end; at least one completion.

    TRL takes them over all rows of all processes, also over those that only fill up.
    """
    whole = [length for length, ended in zip(lengths, terminated, strict=True) if ended] or [0]
    return {
        "completions/mean_length": sum(lengths) / len(lengths),
        "completions/min_length": float(min(lengths)),
        "completions/max_length": float(max(lengths)),
        "completions/clipped_ratio": 1 - sum(terminated) / len(terminated),
        "completions/mean_terminated_length": sum(whole) / len(whole),
        "completions/min_terminated_length": float(min(whole)),
        "completions/max_terminated_length": float(max(whole)),
    }
