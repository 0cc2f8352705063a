"""Computes advantages from numbers by comparing peers: groups of candidates, a baseline and a scale.

`compare` puts the numbers of each group of peers into a row and passes the rows to a baseline and a scale function. An
agent is compared only with itself: no other agent's reward changes its advantages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Literal, NamedTuple, get_args

import torch
from trl.trainer.utils import nanstd

from pettingllms_trl.credit.values import Numbers
from pettingllms_trl.records import Decision


Scale = Literal["group", "batch", "none"]
Advantages = Sequence[Sequence[float]]
"""One sequence per decision, one number per candidate of it."""

EPSILON = 1e-4  # TRL's, so that one agent with one turn gets GRPOTrainer's advantages to the last bit


ROUNDING = 1e-4  # largest error of advantages in single precision, relative above 1; beyond it double is used


class Place(NamedTuple):
    """The group of a candidate's peers, and which member of it the candidate is. Equal members are counted once."""

    group: Hashable
    member: Hashable


Peers = Callable[[int, Decision, int], Place]
"""Returns the place of candidate k of the i-th decision, among those of the same agent."""
Rows = Callable[[torch.Tensor], torch.Tensor]
"""A function of an agent's groups, (num_groups, size) padded with NaN; its result broadcasts with them."""


def siblings(i: int, decision: Decision, k: int) -> Place:
    """The candidates of one decision."""
    return Place(i, k)


def same_turn(i: int, decision: Decision, k: int) -> Place:
    """The candidates of an instance's decisions at one turn: in a tree the siblings, else those of K episodes."""
    return Place((decision.instance, decision.turn), (i, k))


def same_state(i: int, decision: Decision, k: int) -> Place:
    """The candidates of an instance's decisions in one state or, without a `state_hash`, with one prompt."""
    return Place((decision.instance, decision.prompt_ids if decision.state is None else decision.state), (i, k))


def same_instance(i: int, decision: Decision, k: int) -> Place:
    """The candidates of all of an instance's decisions."""
    return Place(decision.instance, (i, k))


def episodes(i: int, decision: Decision, k: int) -> Place:
    """The episodes of an instance, each counted once, however often the agent acted in it."""
    return Place(decision.instance, decision.episode)


def mean_of_peers(rows: torch.Tensor) -> torch.Tensor:
    """Each row's mean. (G, n) -> (G, 1)."""
    return torch.nanmean(rows, dim=1, keepdim=True)


def mean_of_others(rows: torch.Tensor) -> torch.Tensor:
    """For each number the mean of the others in its row, or itself if there are none. (G, n) -> (G, n)."""
    size = (~rows.isnan()).sum(dim=1, keepdim=True)
    others = (rows.nansum(dim=1, keepdim=True) - rows) / (size - 1).clamp(min=1)
    return torch.where(size > 1, others, rows)


def deviation(rows: torch.Tensor, scale: Scale) -> torch.Tensor:
    """TRL's `scale_rewards`: unbiased deviation of the row or of all of the agent's rows, plus 1e-4; or 1.

    Raises:
        ValueError: `scale` is not one of TRL's.
    """
    if scale not in get_args(Scale):
        raise ValueError(f"scale={scale!r}, expected one of {', '.join(get_args(Scale))}. Set one of them.")
    if scale == "none":
        return torch.ones(())
    spread = nanstd(rows, dim=1, keepdim=True) if scale == "group" else nanstd(rows)
    return torch.nan_to_num(spread) + EPSILON


def compare(
    decisions: Sequence[Decision],
    numbers: Numbers,
    *,
    peers: Peers,
    baseline: Rows = mean_of_peers,
    scale: Scale | Rows,
) -> Advantages:
    """`(number - baseline) / scale` among the peers, agent by agent.

    Computed in single precision, as in TRL, where that is accurate to 1e-4; groups whose numbers are too large or too
    close for it, such as 1,000,000.04 and 1,000,000.06, in double precision.

    Args:
        decisions: Decisions of any agents, in any order.
        numbers: The number by which each candidate is judged.
        peers: Defines the groups.
        baseline: A function of the rows of peers.
        scale: TRL's name of a deviation, or a function of the rows.

    Returns:
        One number for each candidate; 0 if it has no peers and the baseline is a mean.
    """
    divisor: Rows = partial(deviation, scale=scale) if isinstance(scale, str) else scale
    advantages: list[Sequence[float]] = [()] * len(decisions)
    for agent in dict.fromkeys(decision.agent for decision in decisions):
        own = [i for i, decision in enumerate(decisions) if decision.agent == agent]
        places = [[peers(i, decisions[i], k) for k in range(len(numbers[i]))] for i in own]
        groups: dict[Hashable, dict[Hashable, float]] = {}
        for i, row in zip(own, places, strict=True):
            for place, number in zip(row, numbers[i], strict=True):
                groups.setdefault(place.group, {})[place.member] = number
        width = max(map(len, groups.values()))
        padded = [[*members.values(), *[math.nan] * (width - len(members))] for members in groups.values()]
        result = _advantages(torch.tensor(padded, dtype=torch.float64), baseline, divisor).tolist()
        found = {
            (group, member): value
            for (group, members), values in zip(groups.items(), result, strict=True)
            for member, value in zip(members, values, strict=False)
        }
        for i, row in zip(own, places, strict=True):
            advantages[i] = [found[place] for place in row]
    return advantages


def _advantages(rows: torch.Tensor, baseline: Rows, divisor: Rows) -> torch.Tensor:
    """The advantages of each row, see `compare`. (G, n) -> (G, n)."""
    exact = (rows - baseline(rows)) / divisor(rows)
    single = rows.float()
    as_trl = ((single - baseline(single)) / divisor(single)).double()
    off = (as_trl - exact).abs().nan_to_num(math.inf) > ROUNDING * exact.abs().clamp(min=1.0)
    return torch.where((off & ~rows.isnan()).any(dim=1, keepdim=True), exact, as_trl)
