"""`TrainingLog`: TRL's log of a training, as a single forward pass for each micro-step would have written it.

TRL logs each forward pass, and each scored batch with its padding rows; here a micro-step has several passes, and
processes have padding rows.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import mul
from typing import Any

import torch
from accelerate import Accelerator
from trl.trainer.utils import nanmax, nanmin, nanstd

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.update.assignment import Assignment
from pettingllms_trl.update.micro_batches import Batch


ROW_METRICS = ("vespo/phi_seq_mean", "aux_loss")
RATIOS = ("clip_ratio/", "cispo_clip_ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardMetrics:
    """The metrics of one forward pass.

    Args:
        num_tokens: Number of completion tokens in the loss.
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
    of_rows = key in ROW_METRICS or (ratios_of_rows and key.startswith(RATIOS))
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


def over_policies(metrics: Mapping[str, Sequence[float]], num_rows: Sequence[int]) -> dict[str, float]:
    """TRL's metrics of completions and rewards over the rows of all policies, from those of each policy's rows.

    Args:
        metrics: For each name a value of each policy: the names of `of_completions`, and others that are means.
        num_rows: Of each policy.
    """
    ended = [n * (1 - cut) for n, cut in zip(num_rows, metrics["completions/clipped_ratio"], strict=True)]
    joined = {}
    for name, values in metrics.items():
        pairs = zip(values, ended if "terminated" in name else num_rows, strict=True)
        kept, weights = zip(*([pair for pair in pairs if pair[1]] or [(0.0, 1)]), strict=True)
        kind = name.rpartition("/")[2].partition("_")[0]
        if kind in ("min", "max"):
            joined[name] = min(kept) if kind == "min" else max(kept)
        else:
            joined[name] = sum(map(mul, kept, weights)) / sum(weights)
    return joined


def pooled_std(means: Sequence[float], stds: Sequence[float], num_rows: Sequence[int]) -> float:
    """The standard deviation of all values, from each group's mean, deviation and number; the divisor is n - 1, so a
    group of one has none."""
    mean = sum(map(mul, means, num_rows)) / sum(num_rows)
    within = sum((n - 1) * std**2 for std, n in zip(stds, num_rows, strict=True) if n > 1)
    between = sum(n * (own - mean) ** 2 for own, n in zip(means, num_rows, strict=True))
    return math.sqrt((within + between) / (sum(num_rows) - 1))


class TrainingLog:
    """TRL's metrics by name, and its table of completions, corrected for teams and several processes.

    Args:
        metrics: TRL's lists of values by name, of `"train"` and of `"eval"`.
        tables: TRL's columns of the table of completions, and its tables of columns `"rewards"` and `"extra"`.
        by_policy: Whether metrics of passes are also logged of each policy.
    """

    def __init__(
        self,
        metrics: Mapping[str, dict[str, list[float]]],
        tables: dict[str, Any],
        accelerator: Accelerator,
        args: MultiAgentGRPOConfig,
        *,
        by_policy: bool,
    ) -> None:
        self.values, self._tables, self._accelerator = metrics, tables, accelerator
        self._scale, self._by_policy = args.scale_rewards, by_policy
        self._ratios_of_rows = args.importance_sampling_level == "sequence"  # a row has one
        self._passes: list[ForwardMetrics] = []
        # A generation's sequences outnumber `generation_batch_size`, and the table holds all of them.
        tables |= {name: deque() for name in ("prompt", "completion", "advantages")}
        tables |= {name: defaultdict(deque) for name in ("rewards", "extra")}

    def begin_table(self) -> None:
        for table in self._tables.values():
            table.clear()

    def correct_ratios(self, batch: Batch, scored: Sequence[int]) -> None:
        """Log the sampler's importance ratios of the rows with log-probabilities: to TRL the others' are 1."""
        if "importance_sampling_ratio" not in batch:
            return
        ratios = batch["importance_sampling_ratio"]
        rows = torch.tensor(scored, dtype=torch.long).to(ratios.device, non_blocking=True)
        ratios = ratios[rows]  # (B, C), or (B, 1) of sequences
        mask = batch["completion_mask"] * batch.get("tool_mask", 1)
        flat = ratios.flatten() if ratios.size(1) == 1 else ratios[mask[rows].bool()]
        flat = flat if flat.numel() else torch.zeros(1, device=ratios.device)
        own = self._accelerator.gather(torch.stack([flat.min(), flat.mean(), flat.max()])[None])
        found = torch.stack([nanmin(own[:, 0]), own[:, 1].nanmean(), nanmax(own[:, 2])]).tolist()
        for name, value in zip(("min", "mean", "max"), found, strict=True):
            self.values["train"][f"sampling/importance_sampling_ratio/{name}"][-1] = value

    def correct_for_padding(
        self, rows: Sequence[Mapping[str, Any]], assignment: Assignment, *, group_size: int, ends: Collection[int]
    ) -> None:
        """Log scored rows in their own order, without padding rows: TRL has appended them process after process.

        Args:
            group_size: Consecutive rows that are a group.
            ends: Token ids with which a completion comes to its end.
        """
        columns = [self._tables[name] for name in ("prompt", "completion", "advantages")]
        columns += [column for name in ("rewards", "extra") for column in self._tables[name].values()]
        num_dealt = sum(assignment.num_here) * self._accelerator.num_processes
        for column in columns:
            column.extend(assignment.restore_order([column.pop() for _ in range(num_dealt)][::-1]))
        completions = [row["completion"] for row in rows]
        terminated = [each.finish == "stop" or each.ids[-1] in ends for each in completions]
        corrected = of_completions([len(each.ids) for each in completions], terminated)
        if group_size > 1:
            rewards = torch.tensor([row["reward"] for row in rows]).view(-1, group_size)
            std = nanstd(rewards) if self._scale == "batch" else nanstd(rewards, dim=1)
            corrected["frac_reward_zero_std"] = torch.isclose(std, torch.zeros_like(std)).float().mean().item()
        for name, value in corrected.items():
            self.values["train"][name][-1] = value

    def replace_advantages(self, advantages: Sequence[float], *, group_size: int) -> None:
        """Log the credit's advantages in the place of those that TRL computed for the rows scored last."""
        if group_size == 1:  # TRL finds each group of one to be constant
            del self.values["train"]["frac_reward_zero_std"]
        logged = self._tables["advantages"]
        for _ in advantages:
            logged.pop()
        logged.extend(advantages)

    def join_policies(self, num_rows: Sequence[int]) -> None:
        """Log a generation's completions and rewards once, of all policies: TRL has logged each policy's."""
        if len(num_rows) == 1:
            return
        logged, number = self.values["train"], len(num_rows)
        own = {name: logged[name][-number:] for name in logged if name == "reward" or name.startswith("completions/")}
        joined = over_policies(own, num_rows)
        std = pooled_std(own["reward"], logged["reward_std"][-number:], num_rows)
        of_environment = {"rewards/environment/mean": joined["reward"], "rewards/environment/std": std}
        for name, value in {**joined, "reward_std": std, **of_environment}.items():
            logged[name][-number:] = [value]

    @contextmanager
    def forward_pass(self, batch: Batch, mode: str) -> Iterator[None]:
        """Keep what is logged within, of padding rows corrected, until the micro-step's last pass is over."""
        metrics = self.values[mode]
        before = {key: len(values) for key, values in metrics.items()}
        yield
        new = [key for key, values in metrics.items() if len(values) > before.get(key, 0)]
        logged = {key: metrics[key].pop() for key in new}
        num_rows, num_tokens = len(batch["advantages"]), batch["num_tokens"]
        if "is_padding" in batch:
            counts = torch.tensor(
                [num_rows, int(batch["is_padding"].sum()), num_tokens], device=self._accelerator.device
            )
            num_rows, num_padding, num_tokens = self._accelerator.reduce(counts, reduction="sum").tolist()
            for key, value in means_of_padding_rows(new, ratios_of_rows=self._ratios_of_rows).items():
                logged[key] = without_padding(logged[key], value, num_rows=num_rows, num_padding=num_padding)
            num_rows -= num_padding
        self._passes.append(
            ForwardMetrics(
                policy=batch["policy"],
                metrics=logged,
                num_rows=num_rows,
                num_tokens=num_tokens,
                loss_scale=batch["loss_scale"],
            )
        )

    def end_micro_step(self) -> None:
        """Log a micro-step's passes, as one for each policy."""
        passes, self._passes = self._passes, []
        metrics = self.values["train"]
        for name in dict.fromkeys(each.policy for each in passes):
            own = [each for each in passes if each.policy == name]
            for key, value in merge_passes(own, ratios_of_rows=self._ratios_of_rows).items():
                metrics[key].append(value)
                if self._by_policy:
                    metrics[f"policy/{name}/{key}"].append(value)
