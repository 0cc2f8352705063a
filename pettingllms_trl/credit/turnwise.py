"""Schemes for both kinds of sampling: siblings in a tree, what K episodes did otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pettingllms_trl.credit.grouping import (
    Advantages,
    Scale,
    compare,
    episodes,
    mean_of_others,
    mean_of_peers,
    same_turn,
)
from pettingllms_trl.credit.values import Value, numbers_of
from pettingllms_trl.records import Decision


_ZERO = 1e-6  # a return is a sum, and one that should be 0 may be a rounding error, which must not be divided by


def magrpo(decisions: Sequence[Decision], /, *, scale: Scale = "none", gamma: float = 1.0) -> Advantages:
    r"""MAGRPO: group Monte-Carlo returns, turn by turn, `A_k = G_k - mean_j G_j` (arXiv:2508.04652).

    `G_k` is the return from this turn on, `r_k` plus what followed; the group is the agent's candidates at this turn
    of the instance. With `sampling="parallel"` those are of K episodes, each with its own return to go, as in the
    paper. With `sampling="tree"` they are siblings.

    Adapted: the authors' trees play every candidate on, and what follows one is the mean over all of its children's
    returns (times 0.9, the default discount of their code); ours go on from the best candidate alone. So in a tree the
    played candidate has the return to go of the branch that was played (of the best of K at each later decision, which
    the policy alone does not reach), as has a sibling that reached the very same state; for the others what follows
    counts 0 (`values.numbers_of`). Their return is one for the whole team; here it is the agent's own, `alpha * team +
    local`, which for `local = 0` is the same.

    Args:
        decisions: In trees with K >= 2 candidates each, else from K >= 2 episodes of each instance.
        scale: As in [`at_grpo`]; the paper does not divide.
        gamma: Discount, 0 to 1, once for each of the agent's later decisions.

    Example:
        Two siblings are paid 2 and 1; the first is played on and 3 more follow: returns 5, 1, advantages 2, -2.
    """
    return compare(decisions, numbers_of(decisions, "return_to_go", gamma), peers=same_turn, scale=scale)


def loo(
    decisions: Sequence[Decision], /, *, value: Value = "reward", scale: Scale = "none", gamma: float = 1.0
) -> Advantages:
    r"""Leave-one-out, `A_k = r_k - mean_{j != k} r_j`: a baseline without the sample itself (RLOO, arXiv:2402.14740).

    The same as `K / (K - 1) * (r_k - mean_j r_j)`, so that the gradient is unbiased, where the mean over all shrinks
    it. By name it is judged by the step's reward in a tree and by the episode's return with `sampling="parallel"`.

    Args:
        decisions: In trees with K >= 2 candidates each, else from K >= 2 episodes of each instance.
        value: What stands for `r_k`. `"outcome"` compares whole episodes, each counted once; the others the agent's
            candidates at the same turn of the instance.
        scale: As in [`at_grpo`]; the paper does not divide.
        gamma: Discount of `value="return_to_go"`.

    Example:
        Rewards 3, 0, 0: the others' means are 0, 1.5, 1.5, advantages 3, -1.5, -1.5.
    """
    numbers = numbers_of(decisions, value, gamma)
    peers = episodes if _one_each(decisions, value) else same_turn
    return compare(decisions, numbers, peers=peers, baseline=mean_of_others, scale=scale)


def max_rl(decisions: Sequence[Decision], /, *, value: Value = "reward", gamma: float = 1.0) -> Advantages:
    r"""Maximum-likelihood RL, `A_k = (r_k - mean_j r_j) / mean_j r_j`, 0 where all are 0 (arXiv:2602.02710).

    For rewards of 0 and 1 the expected update is the gradient of `log p`, p the rate of success, up to its K-th order,
    instead of that of p: a task that is rarely solved weighs about 1 / p. Advantages are -1 to K - 1.

    As in the authors' code, but that they add 1e-6 to the mean instead of telling 0 apart.

    Adapted: the paper's rewards are 0 or 1; here any of at least 0 are taken. By name it is judged by the step's
    reward in a tree and by the episode's return with `sampling="parallel"`.

    Args:
        decisions: In trees with K >= 2 candidates each, else from K >= 2 episodes of each instance.
        value: What stands for `r_k`, at least 0. Peers are as in [`loo`].
        gamma: Discount of `value="return_to_go"`.

    Raises:
        ValueError: A number is negative.

    Example:
        Rewards 1, 0, 0, 0 have mean 0.25: advantages 3, -1, -1, -1. Rewards 1, 1, 1, 0: 1/3, 1/3, 1/3, -1.
    """
    numbers = numbers_of(decisions, value, gamma)
    for decision, row in zip(decisions, numbers, strict=True):
        if min(row) < -_ZERO:
            raise ValueError(
                f"max_rl got the {value} {min(row)} of {decision.agent!r} at turn {decision.turn}, expected at least "
                "0: it reads a reward as a rate of success. Weigh the negative parts of the reward with 0 (so that, "
                "for instance, success alone is left), or choose another credit."
            )
    peers = episodes if _one_each(decisions, value) else same_turn
    return compare(decisions, numbers, peers=peers, scale=_mean_or_one)


def _one_each(decisions: Sequence[Decision], value: Value) -> bool:
    """Whether the number is one of the episode's: its outcome, where no decision had a choice of candidates."""
    return value == "outcome" and all(len(decision.candidates) == 1 for decision in decisions)


def _mean_or_one(rows: torch.Tensor) -> torch.Tensor:
    mean = mean_of_peers(rows)
    return torch.where(mean > _ZERO, mean, 1.0)  # a mean of 0 is one of zeros: nothing to divide
