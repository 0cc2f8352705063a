"""An environment in the middle of an episode: it waits for an agent's completions, plays each, and goes on."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from pettingzoo import AECEnv

from pettingllms_trl.branches import Branch, add_rewards, check_rewards, play_branches, state_hash
from pettingllms_trl.engine import Sampled
from pettingllms_trl.records import Completion, Decision, Episode, Message


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
        row: The instance: `seed` and reset options.
        instance: Index of the row within the rollout.
        episode: Index of the episode within its instance.
        seed: Names the rollout; breaks ties between equally good candidates.
        parent: Where what follows a candidate is counted, if this run continues one instead of being an episode.
    """

    env: AECEnv  # from `begin` on; the run's own until it is over

    def __init__(self, row: Row, instance: int, episode: int, *, seed: str, parent: Continued | None = None) -> None:
        self.row = row
        self.instance = instance
        self.episode = episode
        self.parent = parent
        self.agent = ""
        self.prompt: list[Message] = []
        self.over = False
        self.children: list[Run] = []
        self._abandoned = False
        self._seed = seed
        self._agents: list[str] = []
        self._decisions: list[Decision] = []
        self._rewards: list[Mapping[str, float]] = []
        self._outcome: Mapping[str, Any] = {}
        self._turns: dict[str, int] = {} if parent is None else dict(parent.turns)
        self._continued: dict[tuple[int, int, int], float | None] = {}
        self._num_continuations: list[int] = []

    @property
    def brings_env(self) -> bool:
        """Whether it copies an environment for itself: one that cannot be restored to the state to be continued."""
        return self.parent is not None and self.parent.branch.copy is not None

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for this run any more, for what it belongs to was begun anew."""
        return self._abandoned or (self.parent is not None and self.parent.run.abandoned)

    def anew(self) -> Run:
        """The same run from its beginning, in place of this one."""
        self._abandoned = True
        return Run(self.row, self.instance, self.episode, seed=self._seed, parent=self.parent)

    def begin(self, env: AECEnv | None, default_env_seed: int) -> None:
        """Reset an environment to the row's instance; to continue a candidate, go where its branch had come.

        Args:
            env: Any of those in the pool. `None`: the run `brings_env`.
            default_env_seed: Seeds the environment where the row has no seed.
        """
        branch = None if self.parent is None else self.parent.branch
        with _environment_at_work(self.row):
            if env is not None:
                self.env = env
                options = {name: value for name, value in self.row.items() if name != "seed"}
                env.reset(seed=self.row.get("seed", default_env_seed), options=options or None)
                if branch is not None:  # after the reset, on which a wrapper may insist
                    branch.resume(env)
            elif branch is not None and branch.copy is not None:
                self.env = branch.copy
                self.env = copy.deepcopy(self.env)
            self._agents = list(self.env.possible_agents)

    def await_agent(self, max_turns: int | None) -> None:
        """Go to the next agent that decides, or be `over`."""
        env = self.env
        with _environment_at_work(self.row):
            while env.agents:
                agent = env.agent_selection
                if env.terminations[agent] or env.truncations[agent]:
                    env.step(None)  # PettingZoo's farewell step of an agent that is done
                    continue
                if max_turns is not None and self._turns.get(agent, 0) >= max_turns:
                    self.over = True
                    return
                self.agent = agent
                observation = env.observe(agent)
                break
            else:
                self.over = True
                return
        self.prompt = prompt_of(observation, agent=self.agent)

    def decide(self, sampled: Sampled, judge: Judge | None, num_continuations: int) -> None:
        """Play every completion on a branch of its own and go on from the best.

        `children` are then the runs that continue the candidates: `num_continuations` of each, candidate after
        candidate, but none of one that ended the episode.
        """
        turn = self._turns.get(self.agent, 0)
        with _environment_at_work(self.row):
            state = state_hash(self.env)
            branches = list(play_branches(self.env, self.agent, sampled.completions))
        for branch in branches:
            check_rewards(branch, self.agent)
        if judge is not None:
            choice = Choice(self.row, self.agent, turn, self.prompt, sampled.completions)
            branches = [add_rewards(b, self.agent, more) for b, more in zip(branches, judge(choice), strict=True)]
        rewards = [branch.candidate.reward for branch in branches]
        most = max(rewards)
        best = [k for k, reward in enumerate(rewards) if reward == most]
        place = f"{self._seed}/{self.instance}/{self.episode}/{self.agent}/{turn}"
        chosen = best[0] if len(best) == 1 else random.Random(place).choice(best)
        self._turns[self.agent] = turn + 1
        with _environment_at_work(self.row):
            self.env = branches[chosen].resume(self.env)
            branch = branches[chosen]
            if num_continuations and branch.copy is not None and not branch.over:  # which this run goes on in
                branches[chosen] = replace(branch, copy=copy.deepcopy(branch.copy))
        self.children = [
            self._continuation(branch, k, m)
            for k, branch in enumerate(branches)
            if not branch.over
            for m in range(num_continuations)
        ]
        self._num_continuations.append(num_continuations)
        self._rewards.append(branches[chosen].rewards)
        self._outcome = branches[chosen].outcome
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

    def _continuation(self, branch: Branch, candidate: int, repeat: int) -> Run:
        """A run that continues a candidate of the decision now taken."""
        place = (len(self._decisions), candidate, repeat)
        self._continued[place] = None
        parent = Continued(self, branch, place, self.agent, dict(self._turns))
        return Run(self.row, self.instance, self.episode, seed=self._seed, parent=parent)

    def tell_parent(self) -> None:
        """Tell the run whose candidate this one continued, now that it is over, what that was worth to its agent."""
        assert self.parent is not None
        self.parent.run._continued[self.parent.place] = self._worth(self.parent.agent)

    def _worth(self, agent: str) -> float:
        """The sum of an agent's rewards so far."""
        return sum(rewards.get(agent, 0.0) for rewards in self._rewards)

    def close(self) -> None:
        """Close an environment that has failed."""
        with suppress(Exception):  # it may fail in this, too
            self.env.close()

    def finish(self) -> Episode:
        """The record of the episode, once it is over and all that continued its candidates is."""
        returns = {agent: self._worth(agent) for agent in self._agents}
        to_go = dict.fromkeys(self._agents, 0.0)
        decisions: list[Decision] = []
        for i in reversed(range(len(self._decisions))):
            decision = self._decisions[i]
            for agent, reward in self._rewards[i].items():
                to_go[agent] = to_go.get(agent, 0.0) + reward
            candidates = decision.candidates
            if number := self._num_continuations[i]:
                candidates = tuple(
                    replace(candidate, continuations=self._followed(i, k, number))
                    for k, candidate in enumerate(candidates)
                )
            own = decision.agent
            decisions.append(
                replace(decision, candidates=candidates, episode_return=returns[own], return_to_go=to_go[own])
            )
        return Episode(
            instance=self.instance,
            episode=self.episode,
            decisions=tuple(reversed(decisions)),
            returns=returns,
            outcome=self._outcome,
        )

    def _followed(self, decision: int, candidate: int, number: int) -> tuple[float, ...]:
        values = []
        for repeat in range(number):
            value = self._continued.get((decision, candidate, repeat), 0.0)  # nothing follows the end of an episode
            assert value is not None, f"decision {decision}, candidate {candidate}: still being continued"
            values.append(value)
        return tuple(values)


@dataclass(frozen=True, slots=True)
class Continued:
    """What a run continues.

    Args:
        run: In which the candidate was sampled.
        branch: How far the candidate has come.
        place: Index of the decision, of the candidate, and which of its continuations this is.
        agent: Who had acted.
        turns: How many decisions each agent has taken by then.
    """

    run: Run
    branch: Branch
    place: tuple[int, int, int]
    agent: str
    turns: Mapping[str, int]


@contextmanager
def _environment_at_work(row: Row) -> Iterator[None]:
    """What is raised inside is the environment's failure."""
    try:
        yield
    except Exception as error:  # a stranger's code may raise anything; it is retried, then counted
        raise EnvironmentFailure(f"{type(error).__name__} at the instance {dict(row)}: {error}") from error
