"""Credit: decisions to advantages. A scheme is one pure function, and the trainer is blind to which.

A scheme says which number a candidate is judged by, against which peers, from which baseline, on which scale:

| scheme    | number                     | peers                             | baseline | needs      |
|-----------|----------------------------|-----------------------------------|----------|------------|
| `at_grpo` | the step's reward          | the decision's other candidates   | mean     | tree       |
| `grpo`    | the agent's episode return | the instance's other episodes     | mean     | parallel   |

To add one, write a function of a sequence of `Decision` that returns, for each, one number per candidate, and give it
to the trainer as `credit=`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Protocol

import torch
from trl.trainer.utils import nanstd

from pettingllms_trl.records import Candidate, Completion, Decision


Scale = Literal["group", "batch", "none"]
Sampling = Literal["tree", "parallel"]
Advantages = Sequence[Sequence[float]]
"""One sequence per decision, one number per candidate of it."""

_EPSILON = 1e-4  # TRL's, so that one agent with one turn gets GRPOTrainer's advantages to the last bit


class Credit(Protocol):
    """A credit scheme: advantages in the order of the decisions, one for each candidate."""

    def __call__(self, decisions: Sequence[Decision], /) -> Advantages: ...


def at_grpo(decisions: Sequence[Decision], /, *, scale: Scale = "group") -> Advantages:
    r"""Agent- and turn-wise group-relative advantages, `A_k = (r_k - mean_j r_j) / (std_j r_j + 1e-4)`.

    The group is the decision: K candidates of one agent at one turn from one state (arXiv:2510.11062, eq. 4).
    `r_k` is the acting agent's reward for candidate k, `alpha * team + local`.

    Args:
        decisions: With K >= 2 candidates each, the same K for all.
        scale: Divide by the standard deviation of the `"group"`, of all of the agent's candidates (`"batch"`), or do
            not divide (`"none"`). `GRPOConfig.scale_rewards` chooses.

    Example:
        Rewards 1, 0, 0, 1 have mean 0.5 and (unbiased) deviation 0.577: advantages 0.866, -0.866, -0.866, 0.866.
    """
    advantages: list[Sequence[float]] = [()] * len(decisions)
    for agent in dict.fromkeys(decision.agent for decision in decisions):
        own = [i for i, decision in enumerate(decisions) if decision.agent == agent]
        rewards = torch.tensor([[c.reward for c in decisions[i].candidates] for i in own], dtype=torch.float32)
        for i, row in zip(own, _normalise(rewards, scale).tolist(), strict=True):
            advantages[i] = row
    return advantages


def grpo(decisions: Sequence[Decision], /, *, scale: Scale = "group") -> Advantages:
    r"""Whole-trajectory GRPO for teams: every decision of an episode gets the episode's advantage.

    `A_e = (R_e - mean_f R_f) / (std_f R_f + 1e-4)` over the K episodes of one instance, where `R_e` is the agent's own
    return over episode e. The baseline that AT-GRPO is compared with (arXiv:2510.11062, "MAS + GRPO").

    Args:
        decisions: With one candidate each, from K >= 2 episodes of each instance.
        scale: As in [`at_grpo`]; the deviation of `"batch"` is over all episodes of the agent.
    """
    returns: dict[str, dict[int, dict[int, float]]] = {}  # agent -> instance -> episode -> return
    for decision in decisions:
        of_agent = returns.setdefault(decision.agent, {}).setdefault(decision.instance, {})
        of_agent[decision.episode] = decision.episode_return
    advantage: dict[tuple[str, int, int], float] = {}
    for agent, instances in returns.items():
        width = max(len(episodes) for episodes in instances.values())
        # An agent that never acted in an episode has no return there: NaN keeps it out of mean and deviation.
        rows = [[*episodes.values(), *[math.nan] * (width - len(episodes))] for episodes in instances.values()]
        normalised = torch.nan_to_num(_normalise(torch.tensor(rows, dtype=torch.float32), scale)).tolist()
        for (instance, episodes), row in zip(instances.items(), normalised, strict=True):
            for episode, value in zip(episodes, row, strict=False):
                advantage[agent, instance, episode] = value
    return [[advantage[d.agent, d.instance, d.episode]] * len(d.candidates) for d in decisions]


def _normalise(rewards: torch.Tensor, scale: Scale) -> torch.Tensor:
    """Subtract each row's mean and divide by the scale. NaN marks an absent peer. (N, K) -> (N, K)."""
    advantages = rewards - torch.nanmean(rewards, dim=1, keepdim=True)
    if scale == "none":
        return advantages
    deviation = nanstd(rewards, dim=1, keepdim=True) if scale == "group" else nanstd(rewards)
    return advantages / (torch.nan_to_num(deviation) + _EPSILON)


_SCHEMES: dict[str, tuple[Callable[..., Advantages], Sampling]] = {
    "at_grpo": (at_grpo, "tree"),
    "grpo": (grpo, "parallel"),
}


def resolve(credit: str | Credit, *, sampling: Sampling, scale: Scale, num_candidates: int) -> Credit:
    """The scheme that a user named or gave, tried once on a made-up rollout before any training starts.

    Raises:
        ValueError: The name is unknown, the scheme needs the other kind of sampling, or what it returned on the
            made-up rollout is not one finite number per candidate.
    """
    if isinstance(credit, str):
        if credit not in _SCHEMES:
            near = difflib.get_close_matches(credit, _SCHEMES, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"no credit scheme {credit!r}.{hint} Known: {', '.join(_SCHEMES)}; or give a function of decisions."
            )
        scheme, needs = _SCHEMES[credit]
        if sampling != needs:
            raise ValueError(
                f"credit={credit!r} with sampling={sampling!r}: it compares "
                f"{'the candidates of a decision' if needs == 'tree' else 'whole episodes of an instance'}, which "
                f"sampling={needs!r} gives. Set sampling={needs!r} or choose another credit."
            )
        return partial(scheme, scale=scale)
    if not callable(credit):
        raise TypeError(
            f"credit is {credit!r}, expected a name ({', '.join(_SCHEMES)}) or a function of the decisions"
        )
    probe = _probe(sampling, num_candidates)
    check_advantages(credit(probe), probe)
    return credit


def check_advantages(advantages: Advantages, decisions: Sequence[Decision]) -> None:
    """Refuse anything but one finite number for each candidate of each decision.

    Raises:
        ValueError: Saying which decision got what.
    """
    if len(advantages) != len(decisions):
        raise ValueError(
            f"the credit function returned advantages for {len(advantages)} decisions, expected {len(decisions)}: "
            "return one sequence per decision, in their order"
        )
    for i, (values, decision) in enumerate(zip(advantages, decisions, strict=True)):
        if not hasattr(values, "__len__") or len(values) != len(decision.candidates):
            raise ValueError(
                f"the credit function returned {values!r} for decision {i} ({decision.agent}, turn {decision.turn}), "
                f"expected {len(decision.candidates)} numbers, one per candidate"
            )
        if not all(math.isfinite(value) for value in values):
            raise ValueError(
                f"the credit function returned {values!r} for decision {i} ({decision.agent}, turn {decision.turn}): "
                "advantages must be finite. A group whose rewards are all equal has deviation 0; guard the division"
            )


def _probe(sampling: Sampling, num_candidates: int) -> list[Decision]:
    """Two instances, two agents, two turns; one group of the four is constant, as happens in real rollouts."""
    num_episodes, width = (1, num_candidates) if sampling == "tree" else (num_candidates, 1)
    return [
        Decision(
            instance=instance,
            episode=episode,
            agent=agent,
            turn=turn,
            prompt=[{"role": "user", "content": "?"}],
            prompt_ids=(0,),
            candidates=tuple(
                Candidate(completion=Completion(ids=(0,), text=str(k)), reward=float((k + episode) * instance))
                for k in range(width)
            ),
            chosen=0,
            episode_return=float(instance * episode),
        )
        for instance in range(2)
        for episode in range(num_episodes)
        for turn in range(2)
        for agent in ("first_0", "second_0")
    ]
