"""An environment in the middle of an episode: it waits for an agent's completions, plays each, and goes on."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from pettingzoo import AECEnv

from pettingllms_trl.branches import Branch, Weigh, add_rewards, check_rewards, play_branches, state_hash, weighed
from pettingllms_trl.conversation import Memory
from pettingllms_trl.crashes import Crashes, play_carefully
from pettingllms_trl.engine import Request, Sampled
from pettingllms_trl.records import Completion, Decision, Episode, Message
from pettingllms_trl.stock import ONLY, Row, Setup


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

    Lone surrogates, which a partner's reply or a data set may have brought in, and which no tokenizer takes, are
    U+FFFD in them.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(observation, str):
        return [{"role": "user", "content": _encodable(observation)}]
    if isinstance(observation, Mapping) and isinstance(observation.get("text"), str):
        system = observation.get("system")
        lead = [{"role": "system", "content": system}] if system else []
        return [*lead, {"role": "user", "content": _encodable(observation["text"])}]
    given = type(observation).__name__
    if isinstance(observation, Mapping):
        given = f"a mapping with the keys {sorted(observation)}"
    raise TypeError(
        f"agent {agent!r} observes {given}, expected text: a str, or a dict with a str under 'text' and, if you like, "
        "one under 'system'. Wrap the environment so that observe() returns what the model shall read."
    )


def followup_of(observation: Any) -> str | None:
    """What an agent that remembers is shown in place of an observation's text, where it offers a `"followup"`."""
    followup = observation.get("followup") if isinstance(observation, Mapping) else None
    return _encodable(followup) if isinstance(followup, str) else None


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class EnvironmentFailure(Exception):
    """The environment raised; never a model's fault, for every string is a legal action."""


class Run:
    """An environment in the middle of an episode: it waits for an agent's completions, then goes on.

    Args:
        row: The instance: `seed` and reset options.
        instance: Index of the row within the rollout.
        episode: Index of the episode within its instance.
        seed: Names the rollout; breaks ties between equally good candidates.
        memory: With which its agents begin.
        crashes: What is done about a reply that crashes the environment; `None`: it counts as a failure of it.
        parent: Where what follows a candidate is counted, if this run continues one instead of being an episode.
    """

    env: AECEnv  # from `begin` on; the run's own until it is over
    _setup: Setup

    def __init__(
        self,
        row: Row,
        instance: int,
        episode: int,
        *,
        seed: str,
        memory: Memory = Memory(),  # noqa: B008  # frozen
        crashes: Crashes | None = None,
        parent: Continued | None = None,
    ) -> None:
        self.row = row
        self.instance = instance
        self.episode = episode
        self.parent = parent
        self.environment = ONLY
        self.agent = ""
        self.prompt: Sequence[Message] = []
        self.over = False
        self.children: list[Run] = []
        self.crashed: list[str] = []  # what replies did that crashed the environment
        self.calling_since: float | None = None  # by `time.monotonic`, while the environment is at work
        self.left_alone = False  # on a thread that nobody waits for
        self._abandoned = False
        self._seed = seed
        self._begins_with = self._memory = memory
        self._followup: str | None = None
        self._crashes = crashes
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
        return self._another(self._begins_with, self.parent)

    def _another(self, memory: Memory, parent: Continued | None) -> Run:
        """Another run of the same instance."""
        return Run(
            self.row,
            self.instance,
            self.episode,
            seed=self._seed,
            memory=memory,
            crashes=self._crashes,
            parent=parent,
        )

    def begin(self, env: AECEnv | None, setup: Setup) -> None:
        """Reset an environment to the row's instance; to continue a candidate, go where its branch had come.

        Args:
            env: One of the row's. `None`: the run `brings_env`.
            setup: Of the row.
        """
        self.environment = setup.environment
        branch = None if self.parent is None else self.parent.branch
        self._setup = setup
        with self._environment_at_work():
            if env is not None:
                self._reset(env)
                if branch is not None:  # after the reset, on which a wrapper may insist
                    branch.resume(env)
            elif branch is not None and branch.copy is not None:
                self.env = branch.copy
                self.env = copy.deepcopy(self.env)
            self._agents = list(self.env.possible_agents)

    def _reset(self, env: AECEnv) -> None:
        """Go on in this environment, at the beginning of the instance."""
        self.env = env
        env.reset(seed=self._setup.seed, options=self._setup.options)

    def await_agent(self, max_turns: int | None) -> None:
        """Go to the next agent that decides, or be `over`."""
        if self.over:
            return
        env = self.env
        with self._environment_at_work():
            while env.agents:
                agent = env.agent_selection
                if env.terminations[agent] or env.truncations[agent]:
                    env.step(None)  # PettingZoo's farewell step of an agent that is done
                    self.calling_since = time.monotonic()
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
        self.prompt, self._followup = prompt_of(observation, agent=self.agent), followup_of(observation)

    def request(self, num_candidates: int) -> Request:
        """What to ask for the agent that decides: by what it observes, and by what it remembers. Called once."""
        self.prompt, prompt_ids = self._memory.prompt(self.agent, self.prompt, self._followup)
        return Request(self.agent, self.prompt, num_candidates, prompt_ids)

    def decide(
        self, sampled: Sampled, judge: Judge | None, num_continuations: int, weigh: Weigh | None = None
    ) -> None:
        """Play every completion on a branch of its own and go on from the best, by rewards that `weigh` may change.

        `children` are then the runs that continue the candidates: `num_continuations` of each, candidate after
        candidate, but none of one that ended the episode.
        """
        turn = self._turns.get(self.agent, 0)
        with self._environment_at_work():
            state = state_hash(self.env)
            branches = []
            for branch in self._play(sampled.completions):
                branches.append(branch)
                self.calling_since = time.monotonic()  # the next candidate has as long as this one had
        for branch in branches:
            check_rewards(branch, self.agent)
        if judge is not None:
            choice = Choice(self.row, self.agent, turn, self.prompt, sampled.completions)
            branches = [add_rewards(b, self.agent, more) for b, more in zip(branches, judge(choice), strict=True)]
        if weigh is not None:
            branches = [weighed(branch, self.agent, weigh) for branch in branches]
        rewards = [branch.candidate.reward for branch in branches]
        most = max(rewards)
        best = [k for k, reward in enumerate(rewards) if reward == most]
        place = f"{self._seed}/{self.instance}/{self.episode}/{self.agent}/{turn}"
        chosen = best[0] if len(best) == 1 else random.Random(place).choice(best)
        self._turns[self.agent] = turn + 1
        self.over = branches[chosen].crashed
        with self._environment_at_work():
            self.env = branches[chosen].resume(self.env)
            branch = branches[chosen]
            if num_continuations and branch.copy is not None and not branch.over:  # which this run goes on in
                branches[chosen] = replace(branch, copy=copy.deepcopy(branch.copy))
        memories = [self._memory.replied(self.agent, self.prompt, sampled.prompt_ids, c) for c in sampled.completions]
        self._memory = memories[chosen]
        self.children = [
            self._continuation(branch, k, m, memories[k])
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
                environment=self.environment,
            )
        )

    def _play(self, completions: Sequence[Completion]) -> Iterator[Branch]:
        if self._crashes is None:
            return play_branches(self.env, self.agent, completions)
        return play_carefully(self.env, self.agent, completions, self._crashes, renew=self._renew, note=self._note)

    def _renew(self) -> AECEnv:
        """A fresh environment in the place of the one that has failed, at the beginning of the instance."""
        assert self._crashes is not None
        self.close()
        self._reset(self._crashes.make_env(self.environment))
        self.calling_since = time.monotonic()
        return self.env

    def _note(self, error: Exception, completion: Completion) -> None:
        said = completion.text[:200]
        self.crashed.append(f"{type(error).__name__} at the instance {dict(self.row)} after {said!r}: {error}")

    def _continuation(self, branch: Branch, candidate: int, repeat: int, memory: Memory) -> Run:
        """A run that continues a candidate of the decision now taken."""
        place = (len(self._decisions), candidate, repeat)
        self._continued[place] = None
        parent = Continued(self, branch, place, self.agent, dict(self._turns))
        return self._another(memory, parent)

    def tell_parent(self) -> None:
        """Tell the run whose candidate this one continued, now that it is over, what that was worth to its agent."""
        assert self.parent is not None
        self.parent.run._continued[self.parent.place] = self._worth(self.parent.agent)

    def _worth(self, agent: str) -> float:
        """The sum of an agent's rewards so far."""
        return sum(rewards.get(agent, 0.0) for rewards in self._rewards)

    @contextmanager
    def _environment_at_work(self) -> Iterator[None]:
        """What is raised inside is the environment's failure."""
        self.calling_since = time.monotonic()
        try:
            yield
        except Exception as error:  # a stranger's code may raise anything; it is retried, then counted
            raise EnvironmentFailure(f"{type(error).__name__} at the instance {dict(self.row)}: {error}") from error
        finally:
            self.calling_since = None
        if self.left_alone:
            raise EnvironmentFailure("came back when nobody waited for it any more")

    def close(self) -> None:
        """Close an environment that has failed."""
        self.calling_since = time.monotonic()
        with suppress(Exception):  # it may fail in this, too
            self.env.close()
        self.calling_since = None

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
            environment=self.environment,
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
