"""Whether a run is sound: steps that are not finite, whose they were, and agents that learn nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pettingllms_trl.credit import Advantages
from pettingllms_trl.records import Decision


MOST_SKIPPED_IN_A_ROW = 2
MOST_SKIPPED_LATELY = 5
LATELY = 100

FLAT_GENERATIONS = 10
"""So many in a row in which an agent learns nothing are reported."""
DELAYED_GENERATIONS, DELAYED_GROUPS = 2, 32
"""After so many generations and groups it is reported that an agent's own steps pay all replies alike."""
SAME_RETURN = 1e-6
"""Returns are sums, and equal ones may differ by a rounding error."""


@dataclass(frozen=True, slots=True)
class Skips:
    """Which of the last steps were skipped.

    Args:
        lately: Of the last 100 steps, oldest first.
        total: Of all steps.
    """

    lately: tuple[bool, ...] = ()
    total: int = 0

    def after(self, *, skipped: bool) -> Skips:
        """The record once another step is over."""
        return Skips((*self.lately, skipped)[-LATELY:], self.total + skipped)

    @property
    def too_many(self) -> str | None:
        """What there is too much of, or `None` while there is hope: now and then a step of a sound run overflows."""
        row = 0
        while row < len(self.lately) and self.lately[-1 - row]:
            row += 1
        if row > MOST_SKIPPED_IN_A_ROW:
            return f"{row} steps in a row"
        if sum(self.lately) > MOST_SKIPPED_LATELY:
            return f"{sum(self.lately)} of the last {len(self.lately)} steps"
        return None


def coordinates(decisions: Sequence[Decision], agents: Sequence[str]) -> dict[str, torch.Tensor]:
    """Where each candidate's decision stood, as columns of a batch, so that a bad loss can be traced. Each (B,)."""
    columns = [(d.instance, d.episode, d.turn, agents.index(d.agent)) for d in decisions for _ in d.candidates]
    values = torch.tensor(columns, dtype=torch.long).reshape(-1, 4)
    return dict(zip(("instance", "episode", "turn", "agent"), values.unbind(1), strict=True))


def named(batch: Mapping[str, Any], agents: Sequence[str]) -> list[str]:
    """The decisions whose candidates are in a batch with `coordinates`, each once, in words."""
    rows = zip(*(batch[name].tolist() for name in ("instance", "episode", "turn", "agent")), strict=True)
    return [
        f"{agents[agent]}, turn {turn} of episode {episode} of instance {instance}"
        for instance, episode, turn, agent in sorted(set(rows))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatistics:
    """What one agent's groups of one generation show.

    A group is a decision's candidates; of decisions with a single one, the agent's episodes of an instance.

    Args:
        num_groups: How many there are.
        is_flat: Whether in each all rewards (of episodes: returns) are equal and the credit made nothing of them.
        is_tree: Whether groups are candidates of a decision.
        rewards: Least and greatest reward of a step.
        returns: Least and greatest return of an episode.
        is_delayed: Whether the agent's own steps all paid the same, however its replies differed, while what it was
            paid after a step differed from episode to episode.
    """

    num_groups: int
    is_flat: bool
    is_tree: bool
    rewards: tuple[float, float]
    returns: tuple[float, float]
    is_delayed: bool


def group_statistics(decisions: Sequence[Decision], advantages: Advantages) -> dict[str, GroupStatistics]:
    """The statistics of each agent, where a run has several environments of each agent in each of them."""
    own: dict[str, list[tuple[Decision, Sequence[float]]]] = {}
    for decision, values in zip(decisions, advantages, strict=True):
        own.setdefault(name_in(decision.agent, decision.environment), []).append((decision, values))
    return {name: _statistics(*zip(*pairs, strict=True)) for name, pairs in own.items()}


def name_in(agent: str, environment: str) -> str:
    """What an agent is called where a run may have several environments."""
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
        is_flat=small and all(len(values) == 1 for values in groups.values()),
        is_tree=is_tree,
        rewards=(min(rewards), max(rewards)),
        returns=(min(returns), max(returns)),
        is_delayed=is_tree
        and min(rewards) == max(rewards)
        and any(len({c.completion.text for c in decision.candidates}) > 1 for decision in decisions)
        and any(max(values) - min(values) > SAME_RETURN for values in after.values()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSignal:
    """Whether an agent has had anything to learn from so far.

    Args:
        num_flat_generations: The last ones in a row in which all its groups were flat.
        num_flat_groups: Of those generations.
        has_learned: Whether any group before was not flat.
        is_constant: Whether all steps of those generations paid the same.
        told: Whether it was said that it is paid later.
    """

    num_flat_generations: int = 0
    num_flat_groups: int = 0
    has_learned: bool = False
    is_constant: bool = True
    told: bool = False

    def after(self, statistics: GroupStatistics) -> RoleSignal:
        """The record once another generation is over."""
        if not statistics.is_flat:
            return RoleSignal(has_learned=True)
        return RoleSignal(
            num_flat_generations=self.num_flat_generations + 1,
            num_flat_groups=self.num_flat_groups + statistics.num_groups,
            has_learned=self.has_learned,
            is_constant=self.is_constant and statistics.rewards[0] == statistics.rewards[1],
            told=self.told,
        )

    def is_delayed(self, latest: GroupStatistics) -> bool:
        """Whether it is to be said now that the agent is paid at later steps.

        One whose own steps once paid differently, or pay differently from instance to instance, may have solved its
        part; of that is spoken only after `FLAT_GENERATIONS`.
        """
        enough = self.num_flat_generations >= DELAYED_GENERATIONS and self.num_flat_groups >= DELAYED_GROUPS
        return latest.is_delayed and self.is_constant and enough and not self.has_learned and not self.told

    @property
    def is_flat(self) -> bool:
        """Whether it is to be said now that the agent has learned nothing for long."""
        return self.num_flat_generations == FLAT_GENERATIONS
