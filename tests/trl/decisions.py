"""Candidates, decisions and episodes of which a test names only what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pettingllms_trl.records import Candidate, Completion, Decision, Episode, Finish, Prompt


def candidate(
    reward: float = 0.0, ids: Sequence[int] = (0,), text: str = "", *, finish: Finish | None = None, **more: Any
) -> Candidate:
    return Candidate(completion=Completion(ids=tuple(ids), text=text, finish=finish), reward=reward, **more)


def decision_of(agent: str, candidates: Iterable[Candidate], **more: Any) -> Decision:
    """An agent's first, at a prompt of one token, of which the first candidate is played on: unless `more` differs."""
    prompt = Prompt([{"role": "user", "content": "?"}], (0,))
    first = {"instance": 0, "episode": 0, "turn": 0, "prompt": prompt, "chosen": 0}
    return Decision(agent=agent, candidates=tuple(candidates), **{**first, **more})


def decision(agent: str, rewards: Iterable[float], *, total: float = 0.0, **more: Any) -> Decision:
    """By its rewards alone, for credit; `total` is the episode's return."""
    return decision_of(agent, map(candidate, rewards), episode_return=total, **more)


def episode_of(*decisions: Decision, **more: Any) -> Episode:
    return Episode(decisions=decisions, **{"instance": 0, "episode": 0, "returns": {}, "outcome": {}, **more})
