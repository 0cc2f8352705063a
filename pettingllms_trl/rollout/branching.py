"""Branches of a decision: each candidate stepped from the same state, with its rewards and the state it reaches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pettingzoo import AECEnv

from pettingllms_envs.branching import SavedState
from pettingllms_envs.copying import copy_env
from pettingllms_envs.episodes.observing import reading_of, success_of
from pettingllms_trl.records import Candidate, Completion, ContinuationPlace, Decision, Episode, Judge, PendingDecision


class RewardWeigher(Protocol):
    """Computes a step's reward from its parts by name; `team` names those that all agents share, if known."""

    def __call__(
        self, reward: float, parts: Mapping[str, float], /, *, team: Collection[str] | None = None
    ) -> float: ...


@dataclass(frozen=True, slots=True)
class Branch:
    """The result of stepping one candidate, and the state that it reached, or, if it caused a `crash`, started in."""

    candidate: Candidate  # with the reward of the agent that acted
    rewards: Mapping[str, float]  # of the step, by agent
    outcome: Mapping[str, Any]  # `infos[agent]["outcome"]`
    over: bool  # the episode has ended
    saved: SavedState | None  # the state, if the environment is restored or replayed; else `None`
    copy: AECEnv | None  # the environment in that state, if it is copied; else `None`
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # `infos[agent]["rewards"]`, by agent
    team: Collection[str] | None = None  # `infos[agent]["team_rewards"]`: names of the parts that all agents share
    crash: str | None = None  # the error, if the candidate crashed the environment, see `stepping.py`
    judged: bool | None = None  # `infos[agent]["judged"]`: whether the judge's rewards are for it, and then for all


def branch_of(
    env: AECEnv,
    agent: str,
    completion: Completion,
    start: SavedState | None,
    on_call: Callable[[], object] = lambda: None,
    *,
    in_place: bool = False,
) -> Branch:
    """Step a completion in an environment that is restored to the state `start` before; if it is `None`, in a copy.

    With `in_place` it is stepped as it is. `on_call` is called after each call of an environment that is replayed.
    """
    if not in_place and start is not None:
        start.restore(env, on_call)
    elif not in_place:
        env = copy_env(env)
    env.step(completion.text)
    rewards = {name: float(reward) for name, reward in env.rewards.items()}
    infos = env.infos  # read now: the info of a terminated agent is removed after its dead step
    info = infos.get(agent, {})
    candidate = Candidate(
        completion=completion,
        reward=rewards[agent],
        parts=dict(info.get("rewards", {})),
        team=tuple(info.get("team_rewards", ())),
        state=state_hash(env),
        reading=reading_of(env),
    )
    terminations, truncations = env.terminations, env.truncations  # once: these may be computed properties
    return Branch(
        candidate,
        rewards,
        outcome=dict(info.get("outcome", {})),
        over=all(terminations[name] or truncations[name] for name in env.agents),
        saved=None if start is None else SavedState.of(env),
        copy=env if start is None else None,
        parts={name: infos.get(name, {}).get("rewards", {}) for name in rewards},
        team=info.get("team_rewards"),
        judged=info.get("judged"),
    )


def state_hash(env: AECEnv) -> str | None:
    """The digest of an environment's state; `None` if it has no `state_hash`."""
    game = env.unwrapped
    return game.state_hash() if hasattr(game, "state_hash") else None


def scored(
    branches: Sequence[Branch], pending: PendingDecision, judge: Judge | None, weigh: RewardWeigher | None
) -> Sequence[Branch]:
    """The branches of a decision with the rewards of `judge` added, and then recomputed by `weigh`."""
    agent = pending.agent
    for branch in branches:
        if not all(map(math.isfinite, branch.rewards.values())):
            said = branch.candidate.completion.text[:200]
            raise ValueError(
                f"the environment gave {dict(branch.rewards)} after {agent!r} said {said!r}; rewards must be finite"
            )
    judged = [] if judge is None else [branch for branch in branches if branch.judged is not False]
    if judge is not None and judged:
        asked = replace(
            pending,
            completions=[branch.candidate.completion for branch in judged],
            is_of_team=any(branch.judged for branch in judged),
        )
        given = iter(judge(asked))
        branches = [b if b.judged is False else add_rewards(b, agent, next(given)) for b in branches]
    return branches if weigh is None else [weighed(branch, agent, weigh) for branch in branches]


def add_rewards(branch: Branch, agent: str, more: Mapping[str, float]) -> Branch:
    """The branch with further rewards for the agent that acted, or where the environment says so for the team."""
    check_part_names(branch, more)
    candidate, extra = branch.candidate, sum(more.values())
    paid, team = (branch.rewards, [*more]) if branch.judged else ([agent], [])
    reward, parts = candidate.reward + extra, {**candidate.parts, **more}
    candidate = replace(candidate, reward=reward, parts=parts, team=(*candidate.team, *team))
    return replace(
        branch,
        candidate=candidate,
        rewards={name: reward + extra if name in paid else reward for name, reward in branch.rewards.items()},
        parts={name: {**parts, **more} if branch.judged else parts for name, parts in branch.parts.items()},
        team=[*(branch.team or ()), *team] if team else branch.team,
    )


def check_part_names(branch: Branch, functions: Collection[str]) -> None:
    """Raise `ValueError` if a reward function has the name of a part of the environment's reward."""
    given = {name for parts in (*branch.parts.values(), branch.candidate.parts) for name in parts}
    taken = [name for name in functions if name in given]
    if taken:
        raise ValueError(
            f"the reward function {taken[0]!r} has the name of a part of the environment's reward; expected another "
            "name, or the two would count as one. Rename the function, or declare the environment's parts in "
            "metadata['reward_ranges']: then the function is numbered."
        )


def weighed(branch: Branch, agent: str, weigh: RewardWeigher) -> Branch:
    """The branch with every agent's reward recomputed by `weigh`. Raises `ValueError` as it does, naming the agent."""
    parts = {**branch.parts, agent: branch.candidate.parts}
    rewards = {}
    for name, reward in branch.rewards.items():
        try:
            rewards[name] = weigh(reward, parts.get(name, {}), team=branch.team)
        except ValueError as error:
            raise ValueError(f"of {name!r}, after {agent!r} acted: {error}") from None
    return replace(branch, candidate=replace(branch.candidate, reward=rewards[agent]), rewards=rewards)


def with_continuations(
    candidates: Sequence[Candidate], results: Mapping[ContinuationPlace, Episode], at: int, agent: str, repeats: int
) -> tuple[Candidate, ...]:
    """The candidates of decision `at` with the returns of their continuations: 0 where a step ended the episode."""
    found = []
    for k, candidate in enumerate(candidates):
        played = [results.get(ContinuationPlace(at, k, m)) for m in range(repeats)]
        values = tuple([0.0 if each is None else each.returns.get(agent, 0.0) for each in played])
        found.append(replace(candidate, continuations=values))
    return tuple(found)


def with_returns(
    decisions: Sequence[Decision],
    rewards: Sequence[Mapping[str, float]],
    outcome: Mapping[str, Any],
    before: Sequence[Mapping[str, float]] = (),
) -> tuple[Decision, ...]:
    """The decisions with the `rewards` of steps, returns that add those of steps `before`, and the final success."""
    totals = sum_of([*before, *rewards])
    to_go: Counter[str] = Counter()
    found: list[Decision] = []
    success = success_of(outcome)
    for decision, step in zip(reversed(decisions), reversed(rewards), strict=True):
        to_go.update(step)
        total, left = totals[decision.agent], to_go[decision.agent]
        found.append(replace(decision, rewards=step, episode_return=total, return_to_go=left, success=success))
    return tuple(reversed(found))


def sum_of(rewards: Iterable[Mapping[str, float]], agents: Iterable[str] = ()) -> Mapping[str, float]:
    """The sum of each agent's rewards, 0 if it has none: of `agents`, then of all others."""
    totals: dict[str, float] = dict.fromkeys(agents, 0)
    for step in rewards:
        for agent in {**totals, **step}:
            totals[agent] = totals.get(agent, 0) + step.get(agent, 0.0)
    return totals
