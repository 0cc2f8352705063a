"""Statistics of an agent's groups: whether they are flat, and rewards are delayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pettingllms_trl.credit import Advantages
from pettingllms_trl.credit.grouping import are_equal
from pettingllms_trl.records import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatistics:
    """Statistics of one agent's groups in one generation.

    A group is a decision's candidates or, if decisions have a single one, the agent's episodes of an instance.

    Args:
        is_flat: Whether all rewards (or returns of episodes) are equal in each group and all advantages are 0.
        rewards: Least and greatest reward of a step.
        returns: Least and greatest return of an episode.
        is_delayed: Whether the agent's own steps all paid the same, although its replies differed, while what it was
            paid after a step differed between episodes.
    """

    num_groups: int
    is_flat: bool
    is_tree: bool
    rewards: tuple[float, float]
    returns: tuple[float, float]
    is_delayed: bool


def group_statistics(decisions: Sequence[Decision], advantages: Advantages) -> dict[str, GroupStatistics]:
    """The statistics of each agent; in a run with several environments, of each agent in each environment."""
    own: dict[str, list[tuple[Decision, Sequence[float]]]] = {}
    for decision, values in zip(decisions, advantages, strict=True):
        own.setdefault(name_in(decision.agent, decision.environment), []).append((decision, values))
    return {name: _statistics(*zip(*pairs, strict=True)) for name, pairs in own.items()}


def name_in(agent: str, environment: str) -> str:
    """Name of an agent in a run that may have several environments."""
    return f"{agent} in {environment}" if environment else agent


def _statistics(decisions: Sequence[Decision], advantages: Advantages) -> GroupStatistics:
    groups: dict[Any, set[float]] = {}
    for i, decision in enumerate(decisions):
        if len(decision.candidates) > 1:
            groups[i] = {candidate.reward for candidate in decision.candidates}
        else:
            groups.setdefault(decision.instance, set()).add(decision.episode_return)
    # Equal rewards less their rounded mean, divided by a deviation of 1e-4, are not quite zero.
    small = all(abs(value) < 0.01 for values in advantages for value in values)
    rewards = [candidate.reward for decision in decisions for candidate in decision.candidates]
    returns = [decision.episode_return for decision in decisions]
    is_tree = any(len(decision.candidates) > 1 for decision in decisions)
    after: dict[int, list[float]] = {}
    for decision in decisions:
        after.setdefault(decision.turn, []).append(decision.return_to_go - decision.played.reward)
    return GroupStatistics(
        num_groups=len(groups),
        is_flat=small and all(map(are_equal, groups.values())),
        is_tree=is_tree,
        rewards=(min(rewards), max(rewards)),
        returns=(min(returns), max(returns)),
        is_delayed=is_tree
        and are_equal(rewards)
        and any(len({c.completion.text for c in decision.candidates}) > 1 for decision in decisions)
        and not all(map(are_equal, after.values())),
    )
