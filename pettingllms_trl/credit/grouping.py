"""Computes advantages from rewards: the number of each candidate, its peers, a baseline and a scale.

`numbers_of` gives the number by which a candidate is judged: its step's reward, its return to go, or its whole return.
`compare` puts the numbers of each group of peers into a row and passes the rows to a baseline and a scale function. An
agent is compared only with itself, so that no other agent's reward changes its advantages, unless a role is pooled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, get_args

import torch
from trl.trainer.utils import nanstd

from pettingllms_envs.suggestions import did_you_mean
from pettingllms_trl.records import Decision, role_of


Value = Literal["reward", "return_to_go", "outcome", "value"]
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
    - `"value"`: the reward plus the mean of the candidate's continuations (`Candidate.value`).

    Args:
        decisions: Decisions of whole episodes; with `gamma` below 1, none of an agent's decisions may be missing.
        gamma: Discount, 0 to 1, of `"return_to_go"` alone: `G_t = u_t + gamma G_{t+1}`, where `u_t` is all that the
            agent was paid from its decision t up to its next one, t + 1.

    Raises:
        ValueError: `value` is none of these; `gamma` is out of range, or given for another value; the returns are
            unknown, because the rewards were reweighed after the decisions had been played; or there are no
            continuations.

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
    if value == "value":
        for i, decision in enumerate(decisions):
            if not all(candidate.continuations for candidate in decision.candidates):
                raise ValueError(
                    f"decision {i} ({decision.agent}, turn {decision.turn}) has "
                    f"{[len(candidate.continuations) for candidate in decision.candidates]} continuations of its "
                    "candidates, expected at least 1 of each (zeros where the step ended the episode). Set the number "
                    "of continuations that the rollout plays, or choose another credit."
                )
        return [[candidate.value for candidate in decision.candidates] for decision in decisions]
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


Scale = Literal["group", "batch", "none"]
Advantages = Numbers
EPSILON = 1e-4  # TRL's, so that one agent with one turn gets GRPOTrainer's advantages to the last bit

TIES = 1e-6  # largest difference between numbers that count as equal: a reward is a sum of parts


def are_equal(numbers: Collection[float]) -> bool:
    """Whether numbers, such as the rewards of a group, differ by rounding errors at most."""
    return max(numbers) - min(numbers) <= TIES


ROUNDING = 1e-4  # largest error of advantages in single precision, relative above 1; beyond it double is used


class Place(NamedTuple):
    """The group of a candidate's peers, and which member of it the candidate is. Equal members are counted once. The
    agents of a `role` have their groups together; if it is empty, the agent has its own."""

    group: Hashable
    member: Hashable
    role: str = ""


Peers = Callable[[int, Decision, int], Place]
"""Returns the place of candidate k of the i-th decision, among those of the same agent or role."""
Rows = Callable[[torch.Tensor], torch.Tensor]
"""A function of an agent's groups, (num_groups, size) padded with NaN; its result broadcasts with them."""


def siblings(i: int, decision: Decision, k: int) -> Place:
    """The candidates of one decision."""
    return Place(i, k)


def same_turn(i: int, decision: Decision, k: int) -> Place:
    """The candidates of an instance's decisions at one turn: in a tree the siblings, else those of K episodes."""
    return Place((decision.instance, decision.turn), (i, k))


def same_prompt(i: int, decision: Decision, k: int) -> Place:
    """The candidates of an instance's decisions at one turn with one prompt: in a tree the siblings."""
    return Place((decision.instance, decision.turn, decision.prompt.key), (i, k))


KEYS = ("prompt", "turn", "role", "phase")
"""What the decisions that are compared may have in common; see [`at_grpo`]."""


def peers_of(group: str | Sequence[str]) -> Peers:
    """The peers with which one or several `KEYS` are equal. Raises `ValueError` if there is none, or another."""
    given = [group] if isinstance(group, str) else group if isinstance(group, Iterable) else []
    keys = frozenset(map(str, given))
    if not keys or not keys <= {*KEYS}:
        hint = "".join(did_you_mean(each, KEYS) for each in sorted(keys - {*KEYS}))
        raise ValueError(f"group={group!r}, expected one or several of {', '.join(KEYS)}.{hint} Set one of them.")
    if keys <= {"prompt", "turn"}:
        return same_prompt if "prompt" in keys else same_turn
    return partial(same_keys, keys)


def same_keys(keys: frozenset[str], i: int, decision: Decision, k: int) -> Place:
    """The candidates of an instance's decisions with equal keys; with equal prompts, at one turn."""
    if "phase" in keys and decision.phase is None:
        found = f"{decision.agent} decided at turn {decision.turn} in no phase"
        raise ValueError(f"{found}, expected infos[agent]['phase'] of its environment. Set it at every decision.")
    own = {"prompt": (decision.turn, decision.prompt.key), "turn": decision.turn, "phase": decision.phase}
    group = (decision.instance, *(own[key] for key in sorted(keys - {"role"})))
    return Place(group, (i, k), role_of(decision.agent) if "role" in keys else "")


def same_continued(i: int, decision: Decision, k: int) -> Place:
    """Decisions at one turn of the continuations of one decision's candidates."""
    assert decision.continuation is not None, "not a decision of a continuation"
    return Place((decision.instance, decision.episode, decision.continuation.decision, decision.turn), (i, k))


def same_branch(i: int, decision: Decision, k: int) -> Place:
    """Decisions at one turn of the continuations of one candidate."""
    assert decision.continuation is not None, "not a decision of a continuation"
    at, candidate, _ = decision.continuation
    return Place((decision.instance, decision.episode, at, candidate, decision.turn), (i, k))


def same_state(i: int, decision: Decision, k: int) -> Place:
    """The candidates of an instance's decisions in one state or, without a `state_hash`, with one prompt."""
    return Place((decision.instance, decision.prompt.key if decision.state is None else decision.state), (i, k))


def same_instance(i: int, decision: Decision, k: int) -> Place:
    """The candidates of all of an instance's decisions."""
    return Place(decision.instance, (i, k))


def episodes(i: int, decision: Decision, k: int) -> Place:
    """The episodes of an instance, each counted once, however often the agent acted in it."""
    return Place(decision.instance, decision.episode)


@dataclass(frozen=True, slots=True)
class GroupExactness:
    """Whether the candidates that are compared answer the same prompt.

    Args:
        frac_exact: The share of an agent's groups of two or more whose members have one prompt; `None`: there is none.
    """

    frac_exact: float | None
    frac_without_peers: float


def group_exactness(decisions: Sequence[Decision], peers: Peers) -> dict[str, GroupExactness]:
    """The exactness of each agent's groups, those with other agents included."""
    members: dict[str, dict[Hashable, list[Hashable]]] = {}
    owners: dict[str, str] = {}
    for i, decision in enumerate(decisions):
        for k in range(len(decision.candidates)):
            place = peers(i, decision, k)
            owner = owners.setdefault(decision.agent, place.role or decision.agent)
            members.setdefault(owner, {}).setdefault(place.group, []).append(decision.prompt.key)
    found = {}
    for agent, owner in owners.items():
        groups = members[owner]
        exact = [len(set(prompts)) == 1 for prompts in groups.values() if len(prompts) > 1]
        sizes = [len(prompts) for prompts in groups.values()]
        found[agent] = GroupExactness(sum(exact) / len(exact) if exact else None, sizes.count(1) / sum(sizes))
    return found


def mean_of_peers(rows: torch.Tensor) -> torch.Tensor:
    """Each row's mean. (G, n) -> (G, 1)."""
    return torch.nanmean(rows, dim=1, keepdim=True)


def best_of_peers(rows: torch.Tensor) -> torch.Tensor:
    """1 for the highest number of each row and those within 1e-6 of it, else 0; all 0 if all are. (G, n) -> (G, n)."""
    highest = rows.nan_to_num(-math.inf).amax(dim=1, keepdim=True)
    is_best = rows >= highest - TIES
    return (is_best & (rows < highest - TIES).any(dim=1, keepdim=True)).double()


def top_of_peers(rows: torch.Tensor, share: float) -> torch.Tensor:
    """1 for the highest `share` of the numbers of each row, rounded up, and those within 1e-6 of them; else 0, as for
    the lowest whatever the share. (G, n) -> (G, n)."""
    sizes = (~rows.isnan()).sum(dim=1, keepdim=True)
    descending = rows.nan_to_num(-math.inf).sort(dim=1, descending=True).values
    least = descending.gather(1, (sizes * share - 1e-9).ceil().long() - 1)  # 0.2 * 15 is above 3
    lowest = rows.nan_to_num(math.inf).amin(dim=1, keepdim=True)
    return ((rows >= least - TIES) & (rows > lowest + TIES)).double()


def mean_of_others(rows: torch.Tensor) -> torch.Tensor:
    """For each number the mean of the others in its row, or itself if there are none. (G, n) -> (G, n)."""
    size = (~rows.isnan()).sum(dim=1, keepdim=True)
    others = (rows.nansum(dim=1, keepdim=True) - rows) / (size - 1).clamp(min=1)
    return torch.where(size > 1, others, rows)


def deviation(rows: torch.Tensor, scale: Scale) -> torch.Tensor:
    """TRL's `scale_rewards`: unbiased deviation of the row or of all of the agent's rows, plus 1e-4; or 1."""
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
        scale: TRL's name of a deviation, or a function of the rows.

    Returns:
        One number for each candidate; 0 if it has no peers and the baseline is a mean.
    """
    divisor: Rows = partial(deviation, scale=scale) if isinstance(scale, str) else scale
    return over_groups(decisions, numbers, peers, partial(_advantages, baseline=baseline, divisor=divisor))


def over_groups(decisions: Sequence[Decision], numbers: Numbers, peers: Peers, function: Rows) -> Advantages:
    """Apply a function to each agent's or role's groups, (G, n) -> (G, n) in double precision; one per candidate."""
    advantages: list[Sequence[float]] = [()] * len(decisions)
    owners = [peers(i, decision, 0).role or decision.agent for i, decision in enumerate(decisions)]
    for owner in dict.fromkeys(owners):
        own = [i for i in range(len(decisions)) if owners[i] == owner]
        places = [[peers(i, decisions[i], k) for k in range(len(numbers[i]))] for i in own]
        groups: dict[Hashable, dict[Hashable, float]] = {}
        for i, row in zip(own, places, strict=True):
            for place, number in zip(row, numbers[i], strict=True):
                groups.setdefault(place.group, {})[place.member] = number
        width = max(map(len, groups.values()))
        padded = [[*members.values(), *[math.nan] * (width - len(members))] for members in groups.values()]
        result = function(torch.tensor(padded, dtype=torch.float64)).tolist()
        found: dict[tuple[Hashable, ...], float] = {
            (group, member): value
            for (group, members), values in zip(groups.items(), result, strict=True)
            for member, value in zip(members, values, strict=False)
        }
        for i, row in zip(own, places, strict=True):
            advantages[i] = [found[place[:2]] for place in row]
    return advantages


def _advantages(rows: torch.Tensor, baseline: Rows, divisor: Rows) -> torch.Tensor:
    exact = (rows - baseline(rows)) / divisor(rows)
    single = rows.float()
    as_trl = ((single - baseline(single)) / divisor(single)).double()
    off = (as_trl - exact).abs().nan_to_num(math.inf) > ROUNDING * exact.abs().clamp(min=1.0)
    return torch.where((off & ~rows.isnan()).any(dim=1, keepdim=True), exact, as_trl)
