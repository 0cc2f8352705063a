"""Branches of a decision: each candidate stepped from the same state, with its rewards and the state it reaches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from pettingzoo import AECEnv

from pettingllms_envs.branching import SavedState, save_state
from pettingllms_envs.copying import copy_env
from pettingllms_trl.records import Candidate, Completion, ContinuationPlace, Decision, Episode, Judge, PendingDecision


class RewardWeigher(Protocol):
    """Computes a step's reward from its parts by name; `team` names those that all agents share, if known."""

    def __call__(
        self, reward: float, parts: Mapping[str, float], /, *, team: Collection[str] | None = None
    ) -> float: ...


@dataclass(frozen=True, slots=True)
class Branch:
    """The result of stepping one candidate: every agent's reward, the outcome so far, and the state it reached.

    The state is saved if the environment is restored or replayed; otherwise the branch has its own copy of the
    environment. If the candidate caused a `crash`, it is the state before the step.

    Args:
        candidate: What was played, with the reward of the agent that acted.
        rewards: Rewards of the step, by agent.
        outcome: The environment's `infos[agent]["outcome"]`.
        over: Whether the episode has ended.
        saved: The state, if the environment is restored or replayed.
        copy: The environment, if it is copied.
        parts: The rewards' named parts, by agent (`infos[agent]["rewards"]`), as the environment gave them.
        team: Names of the parts that all agents share (`infos[agent]["team_rewards"]`), if the environment says so.
        crash: The error that the candidate caused, if it crashed the environment, see `stepping.py`.
        judged: Whether the judge's rewards are for this candidate, and then for all agents; `None`: they are for each,
            and for the agent that acted (`infos[agent]["judged"]`).
    """

    candidate: Candidate
    rewards: Mapping[str, float]
    outcome: Mapping[str, Any]
    over: bool
    saved: SavedState | None
    copy: AECEnv | None
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    team: Collection[str] | None = None
    crash: str | None = None
    judged: bool | None = None

    def resume(self, env: AECEnv, on_call: Callable[[], object]) -> AECEnv:
        """An environment in that state: the given one, restored, or the branch's copy.

        Args:
            env: The environment.
            on_call: Called after each call of an environment that is replayed.
        """
        if self.copy is not None:
            return self.copy
        assert self.saved is not None
        self.saved.restore(env, on_call)
        return env


class StateSnapshot(NamedTuple):
    """The state in which an agent decides."""

    saved: SavedState | None
    """The state to restore; `None` if the environment is copied instead."""
    digest: str | None
    """Digest of the state; `None` if the environment has no `state_hash`."""


def snapshot_of(env: AECEnv, *, branches: bool = True) -> StateSnapshot:
    """Snapshot the current state of an environment.

    Args:
        env: An environment in an episode.
        branches: Whether several replies may be stepped from the state; if not, it need not be saved.
    """
    return StateSnapshot(save_state(env) if branches else None, _state_hash(env))


def play_branches(
    env: AECEnv,
    agent: str,
    completions: Sequence[Completion],
    start: StateSnapshot,
    on_call: Callable[[], object] = lambda: None,
) -> Iterator[Branch]:
    """Step each completion from the environment's current state, which is `start`; branches do not affect each other.

    An environment whose state was saved is restored before each step but the first; any other is copied for all but
    the last.

    Args:
        env: The environment.
        agent: The acting agent.
        completions: Its candidates.
        start: The state that the environment is in.
        on_call: Called after each call of an environment that is replayed.
    """
    if start.saved is not None:
        for k, completion in enumerate(completions):
            if k:
                start.saved.restore(env, on_call)
            yield _step(env, agent, completion, restorable=True)
    else:
        for k, completion in enumerate(completions):
            last = k == len(completions) - 1
            yield _step(env if last else copy_env(env), agent, completion, restorable=False)


def branch_of(
    env: AECEnv, agent: str, completion: Completion, start: StateSnapshot, on_call: Callable[[], object]
) -> Branch:
    """Step a completion from the state `start`, to which the environment is restored, or in a copy of it."""
    if start.saved is None:
        return _step(copy_env(env), agent, completion, restorable=False)
    start.saved.restore(env, on_call)
    return _step(env, agent, completion, restorable=True)


def scored(
    branches: Sequence[Branch], pending: PendingDecision, judge: Judge | None, weigh: RewardWeigher | None
) -> Sequence[Branch]:
    """The branches of a decision with the rewards of `judge` added, and then recomputed by `weigh`.

    Raises:
        ValueError: A reward of the environment is not a finite number.
    """
    agent = pending.agent
    for branch in branches:
        if not all(map(math.isfinite, branch.rewards.values())):
            said = branch.candidate.completion.text[:200]
            raise ValueError(
                f"the environment gave {dict(branch.rewards)} after {agent!r} said {said!r}; rewards must be finite"
            )
    judged = [branch for branch in branches if branch.judged is not False]
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
    """The branch with further rewards for the agent that acted, or where the environment says so for the team.

    Raises:
        ValueError: The environment has given a part of such a name.
    """
    check_part_names(branch, more)
    candidate, extra = branch.candidate, sum(more.values())
    paid = branch.rewards if branch.judged else [agent]
    team = [*more] if branch.judged else []
    return replace(
        branch,
        candidate=replace(
            candidate,
            reward=candidate.reward + extra,
            parts={**candidate.parts, **more},
            team=(*candidate.team, *team),
        ),
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
    """The branch with every agent's reward recomputed by `weigh`; the parts stay as they are.

    Args:
        branch: A branch with the rewards of all reward functions.
        agent: The agent that acted; the parts of its reward are the candidate's.
        weigh: Computes one agent's reward.

    Raises:
        ValueError: The parts of an agent's reward do not add up to it. The message names the agent.
    """
    parts = {**branch.parts, agent: branch.candidate.parts}
    rewards = {}
    for name, reward in branch.rewards.items():
        try:
            rewards[name] = weigh(reward, parts.get(name, {}), team=branch.team)
        except ValueError as error:
            raise ValueError(f"of {name!r}, after {agent!r} acted: {error}") from None
    return replace(branch, candidate=replace(branch.candidate, reward=rewards[agent]), rewards=rewards)


def _state_hash(env: AECEnv) -> str | None:
    game = env.unwrapped
    return game.state_hash() if hasattr(game, "state_hash") else None


def _step(env: AECEnv, agent: str, completion: Completion, *, restorable: bool) -> Branch:
    env.step(completion.text)
    rewards = {name: float(reward) for name, reward in env.rewards.items()}
    infos = env.infos  # read now: the info of a terminated agent is removed after its dead step
    info = infos.get(agent, {})
    candidate = Candidate(
        completion=completion,
        reward=rewards[agent],
        parts=dict(info.get("rewards", {})),
        team=tuple(info.get("team_rewards", ())),
        state=_state_hash(env),
    )
    terminations, truncations = env.terminations, env.truncations  # once: these may be computed properties
    return Branch(
        candidate,
        rewards,
        outcome=dict(info.get("outcome", {})),
        over=all(terminations[name] or truncations[name] for name in env.agents),
        saved=SavedState.of(env) if restorable else None,
        copy=None if restorable else env,
        parts={name: infos.get(name, {}).get("rewards", {}) for name in rewards},
        team=info.get("team_rewards"),
        judged=info.get("judged"),
    )


def with_continuations(
    candidates: Sequence[Candidate], results: Mapping[ContinuationPlace, Episode], at: int, agent: str, repeats: int
) -> tuple[Candidate, ...]:
    """A decision's candidates with the agent's returns of their continuations: 0 where a step ended the episode.

    Args:
        candidates: The candidates.
        results: What was played of the episode's continuations.
        at: Index of the decision.
        agent: The agent that acted.
        repeats: Continuations of each candidate.
    """

    def value(k: int, m: int) -> float:
        result = results.get(ContinuationPlace(at, k, m))
        return 0.0 if result is None else result.returns.get(agent, 0.0)

    return tuple(
        replace(candidate, continuations=tuple(value(k, m) for m in range(repeats)))
        for k, candidate in enumerate(candidates)
    )


def with_returns(
    decisions: Sequence[Decision],
    rewards: Sequence[Mapping[str, float]],
    before: Sequence[Mapping[str, float]] = (),
) -> tuple[Decision, ...]:
    """The decisions with `rewards`, and with `episode_return` and `return_to_go` of the agents that took them.

    Args:
        decisions: In the order in which they were taken.
        rewards: The rewards of each decision's step, by agent.
        before: The rewards of the steps before the first.
    """
    totals: Counter[str] = Counter()
    for step in (*before, *rewards):
        totals.update(step)
    to_go: Counter[str] = Counter()
    found: list[Decision] = []
    for decision, step in zip(reversed(decisions), reversed(rewards), strict=True):
        to_go.update(step)
        own = decision.agent
        found.append(replace(decision, rewards=step, episode_return=totals[own], return_to_go=to_go[own]))
    return tuple(reversed(found))
