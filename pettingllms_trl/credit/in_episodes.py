"""Schemes that compare whole episodes of one instance: they need parallel sampling."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms_trl.credit.grouping import Advantages, Scale, compare, episodes, same_instance, same_state
from pettingllms_trl.credit.values import numbers_of
from pettingllms_trl.records import Decision


def grpo(decisions: Sequence[Decision], /, *, scale: Scale = "group") -> Advantages:
    r"""Whole-trajectory GRPO for teams: every decision of an episode gets the episode's advantage.

    `A_e = (R_e - mean_f R_f) / (std_f R_f + 1e-4)` over the K episodes of one instance, where `R_e` is the agent's own
    return over episode e. The baseline that AT-GRPO is compared with (arXiv:2510.11062, "MAS + GRPO").

    Args:
        decisions: With one candidate each, from K >= 2 episodes of each instance.
        scale: As in [`at_grpo`]; the deviation of `"batch"` is over all episodes of the agent.

    Example:
        An agent returns 6, 3, 0 in three episodes, mean 3 and deviation 3: all of its decisions get 1, 0, -1.
    """
    return compare(decisions, _returns(decisions), peers=episodes, scale=scale)


def dr_mas(decisions: Sequence[Decision], /, *, scale: Scale = "group") -> Advantages:
    r"""Dr. MAS: each agent normalised by the statistics of its own decisions (arXiv:2602.08847).

    `A_ke = (R_e - mu_k) / (sigma_k + 1e-4)`, where mean and deviation are over *all decisions* of agent k in an
    instance's episodes, each with its episode's return. What sets it apart from [`grpo`] is the weight of an episode:
    there each counts once, here as often as the agent acted in it. So the advantages of an agent's decisions sum to
    zero even where long episodes are the bad ones. (What the paper moves away from, one mean and deviation for all
    agents, is offered nowhere here.)

    Adapted: the paper's return is one for the whole team; here it is the agent's own, `alpha * team + local`.

    Args:
        decisions: With one candidate each, from K >= 2 episodes of each instance.
        scale: As in [`at_grpo`]; the paper's is `"group"`.

    Example:
        An agent acts once in an episode that returns 3 and twice in one that returns 0: mean (3 + 0 + 0) / 3 = 1, so
        with `scale="none"` its decisions get 2, -1, -1 ([`grpo`]: 1.5, -1.5, -1.5).
    """
    return compare(decisions, _returns(decisions), peers=same_instance, scale=scale)


def gigpo(
    decisions: Sequence[Decision], /, *, scale: Scale = "group", step_weight: float = 1.0, gamma: float = 0.95
) -> Advantages:
    r"""Group-in-group: the episode's advantage plus one among decisions in the same state (arXiv:2505.10978).

    `A = A_E + step_weight * A_S`. `A_E` is [`grpo`]'s. `A_S` is `(G - mean G) / (std G + 1e-4)` over all decisions of
    the agent, in any of the instance's episodes and at any turn, that were taken in the same state, with `G` the
    discounted return to go. A decision in a state that no other one was taken in has `A_S = 0`.

    Adapted: the paper has one agent, so groups are by agent here, and a step of the discount is a decision of the
    agent rather than one of the environment; its groups are of equal observations, here of equal `Decision.state`
    (of equal prompts, where the environment has no `state_hash`); it adds 1e-6 to the deviation, TRL 1e-4.

    Args:
        decisions: With one candidate each, from K >= 2 episodes of each instance.
        scale: As in [`at_grpo`], of both parts. The paper has `"group"` and `"none"`.
        step_weight: The paper's omega, 1 there.
        gamma: Discount, 0 to 1; 0.95 in the authors' runs.

    Example:
        Two episodes return 1 and 0, from one start, and part after it: with `scale="none"`, gamma 1 their first
        decisions get 0.5 + 0.5 = 1 and -1, all later ones 0.5 and -0.5.
    """
    of_episode = grpo(decisions, scale=scale)
    to_go = numbers_of(decisions, "return_to_go", gamma)
    of_step = compare(decisions, to_go, peers=same_state, scale=scale)
    return [
        [episode + step_weight * step for episode, step in zip(of_episode[i], of_step[i], strict=True)]
        for i in range(len(decisions))
    ]


def _returns(decisions: Sequence[Decision]) -> list[list[float]]:
    return [[decision.episode_return] * len(decision.candidates) for decision in decisions]
