"""Decisions by their rewards alone, for credit."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms_trl.records import Candidate, Completion, Decision, Prompt


def decision(
    agent: str, rewards: Sequence[float], *, instance: int = 0, episode: int = 0, turn: int = 0, total: float = 0.0
) -> Decision:
    return Decision(
        instance=instance,
        episode=episode,
        agent=agent,
        turn=turn,
        prompt=Prompt([{"role": "user", "content": "?"}], (0,)),
        candidates=tuple(Candidate(completion=Completion(ids=(0,), text=""), reward=r) for r in rewards),
        chosen=0,
        episode_return=total,
    )
