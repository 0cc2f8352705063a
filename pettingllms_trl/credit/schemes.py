"""Schemes that compare the candidates of one decision: they need a tree."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms_trl.credit.grouping import Advantages, Scale, compare, siblings
from pettingllms_trl.credit.values import Value, numbers_of
from pettingllms_trl.records import Decision


def at_grpo(
    decisions: Sequence[Decision], /, *, scale: Scale = "group", value: Value = "reward", gamma: float = 1.0
) -> Advantages:
    r"""Agent- and turn-wise group-relative advantages, `A_k = (r_k - mean_j r_j) / (std_j r_j + 1e-4)`.

    The group is the decision: K candidates of one agent at one turn from one state (arXiv:2510.11062, eq. 4).
    `r_k` is the acting agent's reward for candidate k, `alpha * team + local`.

    Args:
        decisions: With K >= 2 candidates each.
        scale: Divide by the standard deviation of the `"group"`, of all of the agent's candidates (`"batch"`), or do
            not divide (`"none"`). `GRPOConfig.scale_rewards` chooses.
        value: What stands for `r_k`; the paper's is the step's reward. See `values.numbers_of`.
        gamma: Discount of `value="return_to_go"`.

    Example:
        Rewards 1, 0, 0, 1 have mean 0.5 and (unbiased) deviation 0.577: advantages 0.866, -0.866, -0.866, 0.866.
    """
    return compare(decisions, numbers_of(decisions, value, gamma), peers=siblings, scale=scale)


def counterfactual(decisions: Sequence[Decision], /, *, scale: Scale = "group") -> Advantages:
    r"""Each candidate judged by what it leads to, `A_k = (Q_k - mean_j Q_j) / (std_j Q_j + 1e-4)`.

    `Q_k = r_k + mean_m C_km`, where `C_km` is the acting agent's return after the step in the m-th of M continuations
    of the candidate's branch, played to the end by the current policies of all agents, one sample a decision. So `Q_k`
    is an unbiased estimate of the candidate's action value, and the mean over siblings one of the state's value: a
    counterfactual baseline, in which this one choice is taken anew and all that came before is kept. COMA
    (arXiv:1705.08926) learns a critic for it; VinePPO (arXiv:2410.01679) samples it as here, for a single agent and
    without siblings.

    Args:
        decisions: With K >= 2 candidates each, and M >= 1 continuations for each candidate.
        scale: As in [`at_grpo`].

    Raises:
        ValueError: A candidate was not continued.

    Example:
        Rewards 1, 0, continued for 0, 0 and 3, 1: Q is 1, 2, so with `scale="none"` the advantages are -0.5, 0.5: what
        pays at once turns out to be the worse.
    """
    for i, decision in enumerate(decisions):
        if not all(candidate.continuations for candidate in decision.candidates):
            raise ValueError(
                f"decision {i} ({decision.agent}, turn {decision.turn}) has "
                f"{[len(candidate.continuations) for candidate in decision.candidates]} continuations of its "
                "candidates, expected at least 1 of each (zeros where the step ended the episode). Set the number of "
                "continuations that the rollout plays, or choose another credit."
            )
    numbers = [
        [c.reward + sum(c.continuations) / len(c.continuations) for c in decision.candidates] for decision in decisions
    ]
    return compare(decisions, numbers, peers=siblings, scale=scale)
