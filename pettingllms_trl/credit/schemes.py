"""The credit schemes: functions from decisions to advantages; `pettingllms_trl.credit` has a table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import torch

from pettingllms_trl.credit.grouping import (
    TIES,
    Advantages,
    Peers,
    Place,
    Scale,
    Value,
    best_of_peers,
    compare,
    episodes,
    mean_of_others,
    mean_of_peers,
    numbers_of,
    over_groups,
    peers_of,
    same_instance,
    same_state,
    same_turn,
    siblings,
    top_of_peers,
)
from pettingllms_trl.records import Decision


Group = str | Sequence[str]
"""One or several of `prompt`, `turn`, `role` and `phase`."""
Sampling = Literal["tree", "parallel"]
Sums = Literal["siblings", "turn", "episodes", "instance"]
Options = Mapping[str, Any]


class Scheme(NamedTuple):
    """A built-in scheme, and what is known of it besides its options.

    With the option `group` it compares the candidates of one prompt, turn, ...; where its option `scale` is `"group"`
    by default, `scale_rewards` sets it; the others use that of their papers.

    Args:
        function: That computes the advantages, or the class of such objects.
        options: The kinds of sampling that it supports, the best first, with its default options for each.
        compares_episodes: Whether it does with `sampling="parallel"` and `value="outcome"`.
        scale: What it divides by, if that is not an option.
        value: The `value` by which it judges candidates, if that is not an option.
        groups_states: Whether its groups are decisions in one state.
    """

    function: Callable[..., Any]
    options: Mapping[Sampling, Options]
    sums: Mapping[Sampling, Sums] = {}
    peers: Peers | None = None
    compares_episodes: bool = False
    scale: str | None = None
    value: Value | None = None
    groups_states: bool = False
    takes_negative: bool = True
    has_baseline: bool = True


SCHEMES: dict[str, Scheme] = {}
"""The built-in schemes by name: each says beside its function what is known of it."""

Function = TypeVar("Function", bound=Callable[..., Any])


def scheme(name: str, options: Mapping[Sampling, Options], **facts: Any) -> Callable[[Function], Function]:
    """Make a function, or a class of such objects, the built-in scheme of a name; see `Scheme`."""

    def named(function: Function) -> Function:
        SCHEMES[name] = Scheme(function, options, **facts)
        return function

    return named


EITHER: Mapping[Sampling, Options] = {"tree": {}, "parallel": {"value": "outcome"}}
_AT_TURNS: Options = {"value": "return_to_go", "group": "turn"}
_BY_TURN: Mapping[Sampling, Sums] = {"tree": "siblings", "parallel": "turn"}


@scheme("return_to_go", {"parallel": _AT_TURNS, "tree": {"value": "return_to_go"}}, sums=_BY_TURN)
@scheme("at_grpo", {"tree": {}, "parallel": {}}, sums=_BY_TURN)
def at_grpo(
    decisions: Sequence[Decision],
    /,
    *,
    scale: Scale = "group",
    value: Value = "reward",
    gamma: float = 1.0,
    group: Group = "prompt",
) -> Advantages:
    r"""Agent- and turn-wise group-relative advantages, `A_k = (r_k - mean_j r_j) / (std_j r_j + 1e-4)`.

    The group has an agent's candidates at one turn of an instance (arXiv:2510.11062, eq. 4). In a tree these are the
    candidates of one decision, sampled from one prompt. `r_k` is the acting agent's reward for candidate k,
    `alpha * team + local`.

    With `sampling="parallel"` a decision has one candidate, and those of K episodes are compared; `group` must be
    given. The candidates of one instance's decisions are compared that are equal in

    - `"prompt"`: agent, turn and prompt. The prompts of episodes are equal at the first turn, and later seldom, so
      that most later candidates have no peers, and an advantage of 0.
    - `"turn"`: agent and turn. Answers to different prompts are compared, which is what the paper's tree avoids. The
      baseline is unbiased, since other episodes are sampled independently, but has a higher variance.
    - `"phase"`: agent and phase, what `infos[agent]["phase"]` says when it acts, at any turn.
    - `"role"`: the role, whose agents are pooled, at any turn. This biases the gradient: an agent's
      reply changes what the others of its episode are paid, in a team most of all, and what it wins for them is
      subtracted as their baseline. Besides, an agent in a better seat gets positive advantages whatever it replies.
    - several of them, `("role", "turn")`: all that they name. Decisions of one episode may be compared where neither
      turn nor prompt is named, an earlier one with those that it led to: biased in the same way.

    Args:
        decisions: In trees with K >= 2 candidates each, else from K >= 2 episodes of each instance.
        scale: Divide by the standard deviation of the `"group"`, of all of the agent's candidates (`"batch"`), or do
            not divide (`"none"`). `GRPOConfig.scale_rewards` chooses.
        value: The number used as `r_k`; in the paper the step's reward. See `grouping.numbers_of`.
        gamma: Discount of `value="return_to_go"`.
        group: What the decisions that are compared have in common.

    Example:
        Rewards 1, 0, 0, 1 have mean 0.5 and (unbiased) deviation 0.577: advantages 0.866, -0.866, -0.866, 0.866.
    """
    return compare(decisions, numbers_of(decisions, value, gamma), peers=peers_of(group), scale=scale)


@scheme("best", {"tree": {}, "parallel": _AT_TURNS}, scale="none", has_baseline=False)
def best(
    decisions: Sequence[Decision], /, *, value: Value = "reward", gamma: float = 1.0, group: Group = "prompt"
) -> Advantages:
    r"""Best-of-K: `A_k = 1` for the candidates with the highest number of their group, else 0; 0 where all are equal.

    The policy gradient then raises the log-likelihood of the best of what was sampled and lowers nothing, as one round
    of expert iteration does (RAFT, arXiv:2304.06767, with the best of K; STaR, arXiv:2203.14465). Ratios and clips are
    GRPO's. There is no baseline, so the advantages of a group sum to the number of its best candidates. A token with
    an advantage of 0 counts in the loss's denominator as in every scheme.

    By name it uses the step's reward in a tree and the return to go at equal turns with `sampling="parallel"`, which
    is chosen where roles are paid later.

    Args:
        decisions: In trees with K >= 2 candidates each, else from K >= 2 episodes of each instance.
        value: The number that is compared. See `grouping.numbers_of`.
        gamma: Discount of `value="return_to_go"`.
        group: Peers, as in [`at_grpo`].

    Example:
        Rewards 1, 0, 1, 0.5: advantages 1, 0, 1, 0. Numbers within 1e-6 are equal, so 0.1 + 0.2, 0.3, 0 give 1, 1, 0.
    """
    return over_groups(decisions, numbers_of(decisions, value, gamma), peers_of(group), best_of_peers)


@scheme("success", {"parallel": {}, "tree": {}}, scale="none", has_baseline=False)
def success(decisions: Sequence[Decision], /, *, keep_fraction: float | None = None) -> Advantages:
    r"""Success: `A = 1` for all of an agent's replies in an episode that succeeded, else 0.

    What filtered behaviour cloning learns from (STaR, arXiv:2203.14465), and `imitate="success"` keeps. In a tree only
    the candidate that was played on can have 1. There is no baseline.

    Args:
        keep_fraction: Judge by the agent's return instead: 1 in that share, between 0 and 1, of its episodes with the
            highest returns, over all instances of an environment, in none with its lowest return.

    Example:
        Returns 3, 1, 1, 0 in four episodes, `keep_fraction=0.5`: 1, 1, 1, 0, as two are equal; 3, 0, 0, 0: 1, 0, 0, 0.
    """
    if keep_fraction is not None and not 0.0 < keep_fraction < 1.0:
        raise ValueError(
            f"keep_fraction={keep_fraction!r}, expected a share of the episodes between 0 and 1. Set 0.2."
        )
    kept: Advantages = [[float(decision.success == 1)] * len(decision.candidates) for decision in decisions]
    if keep_fraction is not None:
        returns, top = _returns(decisions), partial(top_of_peers, share=keep_fraction)
        kept = over_groups(decisions, returns, lambda i, d, k: Place(d.environment, episodes(i, d, k)), top)
    elif unknown := [decision for decision in decisions if decision.success is None]:
        raise ValueError(
            f"{len(unknown)} of {len(decisions)} decisions are of episodes that do not say if they succeeded; expected"
            " infos[agent]['outcome']['success'] of the environment. Set keep_fraction=0.2, to go by the highest "
            "returns, or imitate='best'."
        )
    pairs = zip(decisions, kept, strict=True)
    return [[value * (k == decision.chosen) for k, value in enumerate(row)] for decision, row in pairs]


@scheme("counterfactual", {"tree": {}}, sums={"tree": "siblings"}, peers=siblings, value="value")
def counterfactual(decisions: Sequence[Decision], /, *, scale: Scale = "group") -> Advantages:
    r"""Advantages from each candidate's sampled action value, `A_k = (Q_k - mean_j Q_j) / (std_j Q_j + 1e-4)`.

    `Q_k = r_k + mean_m C_km`, where `C_km` is the acting agent's return after the step in the m-th of M continuations
    of the candidate's branch, played to the end by the current policies of all agents, one sample a decision. So `Q_k`
    is an unbiased estimate of the candidate's action value, and the mean over siblings one of the state's value: a
    counterfactual baseline, in which only this choice varies and everything before it is fixed. COMA
    (arXiv:1705.08926) learns a critic for it; VinePPO (arXiv:2410.01679) samples it as here, for a single agent and
    without siblings.

    Args:
        decisions: Decisions with K >= 2 candidates each, and M >= 1 continuations for each candidate.

    Example:
        Rewards 1, 0, with continuations 0, 0 and 3, 1: Q is 1, 2, so with `scale="none"` the advantages are -0.5, 0.5:
        the candidate with the higher immediate reward is the worse one.
    """
    return compare(decisions, numbers_of(decisions, "value"), peers=siblings, scale=scale)


@scheme("grpo", {"parallel": {}}, sums={"parallel": "episodes"}, value="outcome")
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


@scheme("dr_mas", {"parallel": {}}, sums={"parallel": "instance"}, value="outcome")
def dr_mas(decisions: Sequence[Decision], /, *, scale: Scale = "group") -> Advantages:
    r"""Dr. MAS: each agent normalised by the statistics of its own decisions (arXiv:2602.08847).

    `A_ke = (R_e - mu_k) / (sigma_k + 1e-4)`, where mean and deviation are over *all decisions* of agent k in an
    instance's episodes, each with its episode's return. It differs from [`grpo`] in the weight of an episode: there
    each counts once, here as often as the agent acted in it. So the advantages of an agent's decisions sum to zero
    even if long episodes are the bad ones. (One mean and deviation for all agents, which the paper replaces, is not
    available here.)

    Adapted: the paper's return is one for the whole team; here it is the agent's own, `alpha * team + local`.

    Args:
        decisions: With one candidate each, from K >= 2 episodes of each instance.
        scale: As in [`at_grpo`]; the paper's is `"group"`.

    Example:
        An agent acts once in an episode that returns 3 and twice in one that returns 0: mean (3 + 0 + 0) / 3 = 1, so
        with `scale="none"` its decisions get 2, -1, -1 ([`grpo`]: 1.5, -1.5, -1.5).
    """
    return compare(decisions, _returns(decisions), peers=same_instance, scale=scale)


@scheme("gigpo", {"parallel": {}}, groups_states=True)
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
        Two episodes start in the same state, diverge, and return 1 and 0: with `scale="none"` and gamma 1 their first
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


@scheme("magrpo", {"tree": {}, "parallel": {}}, sums=_BY_TURN, peers=same_turn, value="return_to_go")
def magrpo(decisions: Sequence[Decision], /, *, scale: Scale = "none", gamma: float = 1.0) -> Advantages:
    r"""MAGRPO: group Monte-Carlo returns, turn by turn, `A_k = G_k - mean_j G_j` (arXiv:2508.04652).

    `G_k` is the return from this turn on, `r_k` plus what followed; the group is the agent's candidates at this turn
    of the instance. With `sampling="parallel"` those are of K episodes, each with its own return to go, as in the
    paper. With `sampling="tree"` they are siblings.

    Adapted: the authors' trees play every candidate on, and what follows one is the mean over all of its children's
    returns (times 0.9, the default discount of their code); ours go on from the best candidate alone. So in a tree the
    played candidate has the return to go of the branch that was played (of the best of K at each later decision, which
    the policy alone does not reach), as has a sibling that reached the very same state; for the others what follows
    counts 0 (`grouping.numbers_of`). Their return is one for the whole team; here it is the agent's own,
    `alpha * team + local`, which for `local = 0` is the same.

    Args:
        decisions: In trees with K >= 2 candidates each, else from K >= 2 episodes of each instance.
        scale: As in [`at_grpo`]; the paper does not divide.
        gamma: Discount, 0 to 1, once for each of the agent's later decisions.

    Example:
        Two siblings are paid 2 and 1; the first is played on and 3 more follow: returns 5, 1, advantages 2, -2.
    """
    return compare(decisions, numbers_of(decisions, "return_to_go", gamma), peers=same_turn, scale=scale)


@scheme("loo", EITHER, sums=_BY_TURN, peers=same_turn, compares_episodes=True)
def loo(
    decisions: Sequence[Decision], /, *, value: Value = "reward", scale: Scale = "none", gamma: float = 1.0
) -> Advantages:
    r"""Leave-one-out, `A_k = r_k - mean_{j != k} r_j`: a baseline without the sample itself (RLOO, arXiv:2402.14740).

    The same as `K / (K - 1) * (r_k - mean_j r_j)`, so that the gradient is unbiased, whereas the mean over all shrinks
    it. By name it uses the step's reward in a tree and the episode's return with `sampling="parallel"`.

    Args:
        decisions: In trees with K >= 2 candidates each, else from K >= 2 episodes of each instance.
        value: The number used as `r_k`. `"outcome"` compares whole episodes, each counted once; the others compare the
            agent's candidates at the same turn of the instance.
        scale: As in [`at_grpo`]; the paper does not divide.
        gamma: Discount of `value="return_to_go"`.

    Example:
        Rewards 3, 0, 0: the others' means are 0, 1.5, 1.5, advantages 3, -1.5, -1.5.
    """
    numbers = numbers_of(decisions, value, gamma)
    peers = episodes if _one_each(decisions, value) else same_turn
    return compare(decisions, numbers, peers=peers, baseline=mean_of_others, scale=scale)


@scheme("max_rl", EITHER, sums=_BY_TURN, peers=same_turn, compares_episodes=True, scale="mean", takes_negative=False)
def max_rl(decisions: Sequence[Decision], /, *, value: Value = "reward", gamma: float = 1.0) -> Advantages:
    r"""Maximum-likelihood RL, `A_k = (r_k - mean_j r_j) / mean_j r_j`, 0 where all are 0 (arXiv:2602.02710).

    For rewards of 0 and 1 the expected update is the gradient of `log p`, p the rate of success, up to its K-th order,
    instead of that of p: a task that is rarely solved weighs about 1 / p. Advantages are -1 to K - 1.

    As in the authors' code, except that they add 1e-6 to the mean instead of treating 0 separately.

    Adapted: the paper's rewards are 0 or 1; here any rewards of at least 0 are accepted. By name it uses the step's
    reward in a tree and the episode's return with `sampling="parallel"`.

    Args:
        decisions: In trees with K >= 2 candidates each, else from K >= 2 episodes of each instance.
        value: The number used as `r_k`, at least 0. Peers are as in [`loo`].
        gamma: Discount of `value="return_to_go"`.

    Example:
        Rewards 1, 0, 0, 0 have mean 0.25: advantages 3, -1, -1, -1. Rewards 1, 1, 1, 0: 1/3, 1/3, 1/3, -1.
    """
    numbers = numbers_of(decisions, value, gamma)
    for decision, row in zip(decisions, numbers, strict=True):
        if min(row) < -TIES:
            raise ValueError(
                f"max_rl got the {value} {min(row)} of {decision.agent!r} at turn {decision.turn}, expected at least "
                "0: it reads a reward as a rate of success. Weigh the negative parts of the reward with 0 (so that, "
                "for instance, success alone is left), or choose another credit."
            )
    peers = episodes if _one_each(decisions, value) else same_turn
    return compare(decisions, numbers, peers=peers, scale=_mean_or_one)


def _one_each(decisions: Sequence[Decision], value: Value) -> bool:
    """Whether the number is the episode's outcome, and the same for all decisions, since each has one candidate."""
    return value == "outcome" and all(len(decision.candidates) == 1 for decision in decisions)


def _mean_or_one(rows: torch.Tensor) -> torch.Tensor:
    mean = mean_of_peers(rows)
    return torch.where(mean > TIES, mean, 1.0)  # a rounding error is not divided by; if the mean is 0, so are all
