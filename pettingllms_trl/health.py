"""Whether a run is sound: steps that are not finite, whose they were, and rollouts that teach nothing. Pure."""

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


def teaches_nothing(decisions: Sequence[Decision], advantages: Advantages) -> bool:
    """Whether every group's rewards are equal and the credit made nothing of them.

    A group is a decision's candidates; of decisions with a single one, the agent's episodes of an instance.
    """
    groups: dict[Any, set[float]] = {}
    for i, decision in enumerate(decisions):
        if len(decision.candidates) > 1:
            groups[i] = {candidate.reward for candidate in decision.candidates}
        else:
            groups.setdefault((decision.agent, decision.instance), set()).add(decision.episode_return)
    # Equal rewards less their rounded mean, divided by a deviation of 1e-4, are not quite zero.
    small = all(abs(value) < 0.01 for values in advantages for value in values)
    return small and all(len(values) == 1 for values in groups.values())
