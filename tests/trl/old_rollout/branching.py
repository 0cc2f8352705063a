"""Branches of a decision: each candidate stepped from the same state, with its rewards and the state it reaches.

A candidate's branch may be continued: played to the end of the episode by a run of its own, to estimate what the
candidate is worth. `ContinuationResults` collects what those runs return.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from pettingzoo import AECEnv

from pettingllms_envs.branching import SavedState, save_state
from pettingllms_envs.copying import copy_env
from pettingllms_trl.records import Candidate, Completion, ContinuationPlace, Decision


class RewardWeigher(Protocol):
    """Computes a step's reward from its parts by name; `team` names those that all agents share, if known."""

    def __call__(
        self, reward: float, parts: Mapping[str, float], /, *, team: Collection[str] | None = None
    ) -> float: ...


@dataclass(frozen=True, slots=True)
class Branch:
    """The result of stepping one candidate: every agent's reward, the outcome so far, and the state it reached.

    The state is saved if the environment is restored or replayed; otherwise the branch has its own copy of the
    environment. If the candidate `crashed` the environment, it is the state before the step.

    Args:
        candidate: What was played, with the reward of the agent that acted.
        rewards: Rewards of the step, by agent.
        outcome: The environment's `infos[agent]["outcome"]`.
        over: Whether the episode has ended.
        saved: The state, if the environment is restored or replayed.
        copy: The environment, if it is copied.
        parts: The rewards' named parts, by agent (`infos[agent]["rewards"]`), as the environment gave them.
        team: Names of the parts that all agents share (`infos[agent]["team_rewards"]`), if the environment says so.
        crashed: Whether the candidate caused a crash, see `stepping.py`.
    """

    candidate: Candidate
    rewards: Mapping[str, float]
    outcome: Mapping[str, Any]
    over: bool
    saved: SavedState | None
    copy: AECEnv | None
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    team: Collection[str] | None = None
    crashed: bool = False

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


class ContinuationResults:
    """What the continuations of an episode's candidates returned."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._returns: dict[ContinuationPlace, float | None] = {}
        self._decisions: dict[ContinuationPlace, Sequence[Decision]] = {}

    def begin_decision(self, number: int) -> None:
        """The next decision's candidates are continued `number` times each."""
        self._numbers.append(number)

    def expect(self, place: ContinuationPlace) -> None:
        """This continuation will be played."""
        self._returns[place] = None

    def report(self, place: ContinuationPlace, value: float, decisions: Sequence[Decision]) -> None:
        """This continuation is over: the return of the agent that acted, and the decisions to keep."""
        self._returns[place] = value
        self._decisions[place] = decisions

    def are_over(self, decision: int) -> bool:
        """Whether no continuation of a decision's candidates is still to be played."""
        return all(value is not None for place, value in self._returns.items() if place.decision == decision)

    def added_to(self, candidates: Sequence[Candidate], decision: int) -> tuple[Candidate, ...]:
        """The candidates of a decision with the returns of their continuations: 0 where a step ended the episode."""
        number = self._numbers[decision]
        if not number:
            return tuple(candidates)
        return tuple(
            replace(candidate, continuations=self._returns_of(decision, k, number))
            for k, candidate in enumerate(candidates)
        )

    def _returns_of(self, decision: int, candidate: int, number: int) -> tuple[float, ...]:
        values = []
        for repeat in range(number):
            value = self._returns.get(ContinuationPlace(decision, candidate, repeat), 0.0)
            assert value is not None, f"decision {decision}, candidate {candidate}: its continuation is not over"
            values.append(value)
        return tuple(values)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All decisions that were kept, in the order of their places."""
        return tuple(decision for place in sorted(self._decisions) for decision in self._decisions[place])


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


def check_rewards(branch: Branch, agent: str) -> None:
    """Raise `ValueError` if a reward of the environment is not a finite number."""
    if not all(map(math.isfinite, branch.rewards.values())):
        said = branch.candidate.completion.text[:200]
        raise ValueError(
            f"the environment gave {dict(branch.rewards)} after {agent!r} said {said!r}; rewards must be finite"
        )


def add_rewards(branch: Branch, agent: str, more: Mapping[str, float]) -> Branch:
    """The branch with further rewards for the agent that acted.

    Raises:
        ValueError: The environment has given a part of such a name.
    """
    check_part_names(branch, more)
    candidate, extra = branch.candidate, sum(more.values())
    return replace(
        branch,
        candidate=replace(candidate, reward=candidate.reward + extra, parts={**candidate.parts, **more}),
        rewards={**branch.rewards, agent: branch.rewards[agent] + extra},
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
    )
