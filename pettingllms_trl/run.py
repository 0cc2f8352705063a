"""An environment in the middle of an episode: it waits for an agent's completions, plays each, and goes on."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pettingzoo import AECEnv

from pettingllms_trl.engine import Sampled
from pettingllms_trl.records import Candidate, Completion, Decision, Episode, Message


Row = Mapping[str, Any]
"""A row of the data set: `seed` and whatever the environment's `reset(options=...)` takes."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a reward function of the user's may look at: a decision whose candidates are sampled but not yet judged."""

    row: Row
    agent: str
    turn: int
    prompt: Sequence[Message]
    completions: Sequence[Completion]


Judge = Callable[[Choice], Sequence[Mapping[str, float]]]
"""For each completion of a choice, named rewards to be added to the environment's."""


def prompt_of(observation: Any, *, agent: str) -> list[Message]:
    """An observation as chat messages: `{"text": ..., "system": ...}` (system optional), or a plain string.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(observation, str):
        return [{"role": "user", "content": observation}]
    if isinstance(observation, Mapping) and isinstance(observation.get("text"), str):
        system = observation.get("system")
        lead = [{"role": "system", "content": system}] if system else []
        return [*lead, {"role": "user", "content": observation["text"]}]
    given = type(observation).__name__
    if isinstance(observation, Mapping):
        given = f"a mapping with the keys {sorted(observation)}"
    raise TypeError(
        f"agent {agent!r} observes {given}, expected text: a str, or a dict with a str under 'text' and, if you like, "
        "one under 'system'. Wrap the environment so that observe() returns what the model shall read."
    )


class EnvironmentFailure(Exception):
    """The environment raised; never a model's fault, for every string is a legal action."""


class Run:
    """An environment in the middle of an episode: it waits for an agent's completions, then goes on.

    Args:
        env: The environment; the run's own until it is over.
        instance: Index of the row within the rollout.
        episode: Index of the episode within its instance.
        row: The instance: `seed` and reset options.
        seed: Names the rollout; breaks ties between equally good candidates.
        parent: Where what follows a candidate is counted, if this run continues one instead of being an episode.
    """

    def __init__(
        self, env: AECEnv, instance: int, episode: int, *, row: Row, seed: str, parent: Continued | None = None
    ) -> None:
        self.env = env
        self.row = row
        self.instance = instance
        self.episode = episode
        self.parent = parent
        self.agent = ""
        self.prompt: list[Message] = []
        self.open_continuations = 0
        self._seed = seed
        self._decisions: list[Decision] = []
        self._rewards: list[Mapping[str, float]] = []
        self._outcome: Mapping[str, Any] = {}
        self._turns: dict[str, int] = {}
        self._continued: dict[tuple[int, int], list[float]] = {}

    def start(self, default_env_seed: int) -> None:
        """Reset the environment to the row's instance."""
        options = {name: value for name, value in self.row.items() if name != "seed"}
        with _environment_at_work(self.row):
            self.env.reset(seed=self.row.get("seed", default_env_seed), options=options or None)

    def await_agent(self, max_turns: int | None) -> bool:
        """Go to the next agent that decides; False where the episode is over."""
        env = self.env
        with _environment_at_work(self.row):
            while env.agents:
                agent = env.agent_selection
                if env.terminations[agent] or env.truncations[agent]:
                    env.step(None)  # PettingZoo's farewell step of an agent that is done
                    continue
                if max_turns is not None and self._turns.get(agent, 0) >= max_turns:
                    return False
                self.agent = agent
                observation = env.observe(agent)
                break
            else:
                return False
        self.prompt = prompt_of(observation, agent=self.agent)
        return True

    def decide(self, sampled: Sampled, judge: Judge | None, num_continuations: int) -> list[Run]:
        """Play every completion on a branch of its own and go on from the best.

        Returns:
            Runs that continue each candidate's branch, `num_continuations` each, for those that did not end it.
        """
        turn = self._turns.get(self.agent, 0)
        with _environment_at_work(self.row):
            state = _state_hash(self.env)
            branches = list(_play_branches(self.env, self.agent, sampled.completions))
        for branch in branches:
            _check_rewards(branch, self.agent)
        if judge is not None:
            choice = Choice(self.row, self.agent, turn, self.prompt, sampled.completions)
            branches = [_add(self.agent, b, more) for b, more in zip(branches, judge(choice), strict=True)]
        rewards = [branch.candidate.reward for branch in branches]
        best = [k for k, reward in enumerate(rewards) if reward == max(rewards)]
        place = f"{self._seed}/{self.instance}/{self.episode}/{self.agent}/{turn}"
        chosen = best[0] if len(best) == 1 else random.Random(place).choice(best)
        children = self._continue(branches, num_continuations)
        with _environment_at_work(self.row):
            self.env = branches[chosen].resume(self.env)
        self._rewards.append(branches[chosen].rewards)
        self._outcome = branches[chosen].outcome
        self._turns[self.agent] = turn + 1
        self._decisions.append(
            Decision(
                instance=self.instance,
                episode=self.episode,
                agent=self.agent,
                turn=turn,
                prompt=self.prompt,
                prompt_ids=sampled.prompt_ids,
                candidates=tuple(branch.candidate for branch in branches),
                chosen=chosen,
                state=state,
            )
        )
        return children

    def take_up(self, env: AECEnv, default_env_seed: int) -> None:
        """Begin a run that continues a candidate: its environment at the state that the candidate's branch reached."""
        assert self.parent is not None
        self.env = env
        self.start(default_env_seed)  # a wrapper may insist on a reset before anything else
        with _environment_at_work(self.row):
            self.env = self.parent.branch.resume(self.env)

    def continued(self, decision: int, candidate: int, value: float) -> None:
        """One of the runs that continue a candidate is over, and was worth so much to the agent that had acted."""
        self._continued.setdefault((decision, candidate), []).append(value)
        self.open_continuations -= 1

    def worth(self, agent: str) -> float:
        """The sum of an agent's rewards so far."""
        return sum(rewards.get(agent, 0.0) for rewards in self._rewards)

    def finish(self, num_continuations: int = 0) -> Episode:
        """The record of the episode, once it is over and all that continued its candidates is."""
        agents = self.env.possible_agents
        returns = {agent: self.worth(agent) for agent in agents}
        to_go = dict.fromkeys(agents, 0.0)
        decisions: list[Decision] = []
        for i in reversed(range(len(self._decisions))):
            decision = self._decisions[i]
            for agent, reward in self._rewards[i].items():
                to_go[agent] = to_go.get(agent, 0.0) + reward
            if num_continuations:
                none = [0.0] * num_continuations  # of a candidate that ended the episode nothing follows
                candidates = tuple(
                    replace(candidate, continuations=tuple(self._continued.get((i, k), none)))
                    for k, candidate in enumerate(decision.candidates)
                )
                decision = replace(decision, candidates=candidates)
            own = decision.agent
            decisions.append(replace(decision, episode_return=returns[own], return_to_go=to_go[own]))
        return Episode(
            instance=self.instance,
            episode=self.episode,
            decisions=tuple(reversed(decisions)),
            returns=returns,
            outcome=self._outcome,
        )

    def _continue(self, branches: Sequence[_Branch], number: int) -> list[Run]:
        decision, children = len(self._decisions), list[Run]()
        for k, branch in enumerate(branches):
            if branch.over:
                continue
            for _ in range(number):
                # A branch that cannot be restored is copied now: this run may go on in the very same environment.
                reached = (
                    branch
                    if _restorable(self.env)
                    else replace(branch, resume=_copier(copy.deepcopy(branch.resume(self.env))))
                )
                parent = Continued(self, reached, decision, k, self.agent)
                child = Run(self.env, self.instance, self.episode, row=self.row, seed=self._seed, parent=parent)
                child._turns = {**self._turns, self.agent: self._turns.get(self.agent, 0) + 1}
                children.append(child)
        self.open_continuations += len(children)
        return children


@dataclass(frozen=True, slots=True)
class Continued:
    """What a run continues: the branch of one candidate of one decision of another run, taken by an agent."""

    run: Run
    branch: _Branch
    decision: int
    candidate: int
    agent: str


@dataclass(frozen=True, slots=True)
class _Branch:
    """What a candidate led to: every agent's reward, the outcome so far, and the way back to the state it reached."""

    candidate: Candidate
    rewards: Mapping[str, float]
    outcome: Mapping[str, Any]
    over: bool
    resume: Callable[[AECEnv], AECEnv]


def _play_branches(env: AECEnv, agent: str, completions: Sequence[Completion]) -> Iterator[_Branch]:
    """Step each completion from the environment's present state; no branch sees another's.

    An environment with `snapshot()` and `restore()` goes back and forth; any other is deep-copied.
    """
    game = env.unwrapped
    if _restorable(env):
        before = game.snapshot() if len(completions) > 1 else None
        for k, completion in enumerate(completions):
            if k:
                game.restore(before)
            branch = _step(env, agent, completion)
            yield replace(branch, resume=_restorer(game.snapshot()))
    else:
        for k, completion in enumerate(completions):
            last = k == len(completions) - 1
            branch_env = env if last else copy.deepcopy(env)
            branch = _step(branch_env, agent, completion)
            yield replace(branch, resume=_copier(branch_env))


def _add(agent: str, branch: _Branch, more: Mapping[str, float]) -> _Branch:
    """The branch with further rewards for the agent that acted."""
    candidate, extra = branch.candidate, sum(more.values())
    return replace(
        branch,
        candidate=replace(candidate, reward=candidate.reward + extra, parts={**candidate.parts, **more}),
        rewards={**branch.rewards, agent: branch.rewards[agent] + extra},
    )


def _restorable(env: AECEnv) -> bool:
    game = env.unwrapped
    return hasattr(game, "snapshot") and hasattr(game, "restore")


def _restorer(snapshot: Any) -> Callable[[AECEnv], AECEnv]:
    def resume(env: AECEnv) -> AECEnv:
        env.unwrapped.restore(snapshot)
        return env

    return resume


def _copier(reached: AECEnv) -> Callable[[AECEnv], AECEnv]:
    return lambda env: reached


def _step(env: AECEnv, agent: str, completion: Completion) -> _Branch:
    env.step(completion.text)
    rewards = {name: float(reward) for name, reward in env.rewards.items()}
    info = env.infos.get(agent, {})  # read now: an agent that is done takes its info along when it leaves
    candidate = Candidate(
        completion=completion,
        reward=rewards[agent],
        parts=dict(info.get("rewards", {})),
        state=_state_hash(env),
    )
    over = all(env.terminations[name] or env.truncations[name] for name in env.agents)
    return _Branch(candidate, rewards, dict(info.get("outcome", {})), over, resume=lambda env: env)


def _check_rewards(branch: _Branch, agent: str) -> None:
    if not all(map(math.isfinite, branch.rewards.values())):
        said = branch.candidate.completion.text[:200]
        raise ValueError(
            f"the environment gave {dict(branch.rewards)} after {agent!r} said {said!r}; rewards must be finite"
        )


def _state_hash(env: AECEnv) -> str | None:
    game = env.unwrapped
    return game.state_hash() if hasattr(game, "state_hash") else None


@contextmanager
def _environment_at_work(row: Row) -> Iterator[None]:
    """What is raised inside is the environment's failure."""
    try:
        yield
    except Exception as error:  # a stranger's code may raise anything; it is retried, then counted
        raise EnvironmentFailure(f"{type(error).__name__} at the instance {dict(row)}: {error}") from error
