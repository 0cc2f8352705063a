"""The number by which a candidate is judged: its step's reward, its return to go, or its whole return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from pettingllms_trl.records import Decision


Value = Literal["reward", "return_to_go", "outcome"]
Numbers = Sequence[Sequence[float]]
"""One sequence per decision, one number per candidate of it."""


def numbers_of(decisions: Sequence[Decision], value: Value, gamma: float = 1.0) -> Numbers:
    r"""The number of each candidate, `r_k` its reward and `G` the return to go of the branch that was played:

    - `"reward"`: `r_k`.
    - `"return_to_go"`: `G` for the played candidate, and `r_k + (G - r_played)` for a sibling whose branch reached the
      same state. What would have followed any other sibling was not played and counts as 0: `r_k`. So if later rewards
      are mostly positive, this favours the played candidate; to avoid that, continue the others, too
      (`credit="counterfactual"`).
    - `"outcome"`: the episode's return if the candidate had been played, with the same limitation: the return to go
      plus what the agent had been paid before.

    Args:
        decisions: Decisions of whole episodes; with `gamma` below 1, none of an agent's decisions may be missing.
        value: Which of the three.
        gamma: Discount, 0 to 1, of `"return_to_go"` alone: `G_t = u_t + gamma G_{t+1}`, where `u_t` is all that the
            agent was paid from its decision t up to its next one, t + 1.

    Raises:
        ValueError: `value` is none of the three; `gamma` is out of range, or given for another value; or the returns
            are unknown, because the rewards were reweighed after the decisions had been played.

    Example:
        An agent is paid 1 at its first decision (the candidates' rewards are 1, 0) and 2 at its second and last one:
        return to go 3 at the first, so its numbers are 3, 0; with gamma 0.5 they are 1 + 0.5 * 2 = 2, 0.
    """
    if value not in get_args(Value):
        raise ValueError(f"value={value!r}, expected one of {', '.join(get_args(Value))}. Set one of them.")
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma={gamma!r}, expected a discount from 0 to 1; 1 is no discount")
    if gamma != 1.0 and value != "return_to_go":
        raise ValueError(f"gamma={gamma!r} with value={value!r}, which has no discount. Set value='return_to_go'.")
    if value == "reward":
        return [[candidate.reward for candidate in decision.candidates] for decision in decisions]
    if any(math.isnan(decision.return_to_go) for decision in decisions):
        raise ValueError(
            "the decisions were re-weighed after they had been played, so their returns are unknown, expected finite "
            "ones. Weigh the rewards while playing (`weigh`), or judge by value='reward'."
        )
    if value == "outcome":
        return [
            [
                d.episode_return if k == d.chosen else number + (d.episode_return - d.return_to_go)
                for k, number in enumerate(_of_branches(d, d.return_to_go))
            ]
            for d in decisions
        ]
    return [_of_branches(d, to_go) for d, to_go in zip(decisions, returns_to_go(decisions, gamma), strict=True)]


def returns_to_go(decisions: Sequence[Decision], gamma: float = 1.0) -> list[float]:
    """Each decision's return to go along the played branch, discounted once for each later decision of its agent."""
    if gamma == 1.0:
        return [decision.return_to_go for decision in decisions]
    result = [0.0] * len(decisions)
    later: dict[tuple[int, int, str], tuple[float, float]] = {}  # of the agent's next decision: plain, discounted
    for i in sorted(range(len(decisions)), key=lambda i: -decisions[i].turn):
        d = decisions[i]
        place = (d.instance, d.episode, d.agent)
        plain, discounted = later.get(place, (0.0, 0.0))
        result[i] = (d.return_to_go - plain) + gamma * discounted
        later[place] = (d.return_to_go, result[i])
    return result


def _of_branches(decision: Decision, to_go: float) -> list[float]:
    """The returns to go of all candidates, given that of the played one."""
    played = decision.played
    return [
        to_go
        if k == decision.chosen
        else candidate.reward + (to_go - played.reward)
        if candidate.state is not None and candidate.state == played.state
        else candidate.reward
        for k, candidate in enumerate(decision.candidates)
    ]
