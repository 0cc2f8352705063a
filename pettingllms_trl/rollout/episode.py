"""An environment in the middle of an episode: it waits for an agent's completions, plays each, and goes on."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pettingzoo import AECEnv

from pettingllms_envs.copying import copy_env
from pettingllms_envs.observations import followup_of, prompt_of
from pettingllms_trl.records import Decision, Episode, Judge, Message, PendingDecision, Request, Row, Sampled
from pettingllms_trl.rollout.branching import (
    Branch,
    RewardWeigher,
    StateSnapshot,
    add_rewards,
    check_rewards,
    start_of,
    weighed,
)
from pettingllms_trl.rollout.env_pool import EnvHandle, ResetArgs
from pettingllms_trl.rollout.prompts import ChatHistory
from pettingllms_trl.rollout.stepping import CandidateStepper, CrashPolicy
from pettingllms_trl.rollout.timeouts import CallTimer


class EpisodeRunner:
    """An environment in the middle of an episode: it waits for an agent's completions, then goes on.

    Its methods that take `calls` are done by jobs, one after the other but for those that play `candidates`.

    Args:
        row: The instance: `seed` and reset options.
        instance: Index of the row within the rollout.
        episode: Index of the episode within its instance.
        seed: Names the rollout; breaks ties between equally good candidates.
        memory: With which its agents begin.
        crashes: What is done about a reply that crashes the environment; `None`: it counts as a failure of it.
        branches: Whether more than one reply may be played from a state. If not, states need not be saved.
        parent: Where what follows a candidate is counted, if this run continues one instead of being an episode.
    """

    venue: EnvHandle  # from `begin` on; the run's own until it is over
    candidates: CandidateStepper | None  # of the decision that is being taken, while they are played
    _start: StateSnapshot  # where that decision begins
    _sampled: Sampled

    def __init__(
        self,
        row: Row,
        instance: int,
        episode: int,
        *,
        seed: str,
        memory: ChatHistory = ChatHistory(),  # noqa: B008  # frozen
        crashes: CrashPolicy | None = None,
        branches: bool = True,
        parent: Continued | None = None,
    ) -> None:
        self.row = row
        self.instance = instance
        self.episode = episode
        self.parent = parent
        self.candidates = None
        self.was_slow = False  # in its latest decision, so that candidates are better played at once
        self.agent = ""
        self.prompt: Sequence[Message] = []
        self.over = False
        self.children: list[EpisodeRunner] = []
        self.crashed: list[str] = []  # what replies did that crashed the environment
        self._abandoned = False
        self._seed = seed
        self._begins_with = self._memory = memory
        self._followup: str | None = None
        self._shown_text = False
        self._crashes = crashes
        self._branches = branches
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

    def anew(self) -> EpisodeRunner:
        """The same run from its beginning, in place of this one."""
        self._abandoned = True
        return self._another(self._begins_with, self.parent)

    def _another(self, memory: ChatHistory, parent: Continued | None) -> EpisodeRunner:
        """Another run of the same instance."""
        return EpisodeRunner(
            self.row,
            self.instance,
            self.episode,
            seed=self._seed,
            memory=memory,
            crashes=self._crashes,
            branches=self._branches,
            parent=parent,
        )

    def begin(self, env: AECEnv | None, setup: ResetArgs, calls: CallTimer) -> None:
        """Reset an environment to the row's instance; to continue a candidate, go where its branch had come.

        Args:
            env: One of the row's. `None`: the run `brings_env`.
            setup: Of the row.
            calls: Of the job.
        """
        branch = None if self.parent is None else self.parent.branch
        given = env if branch is None or branch.copy is None else branch.copy
        assert given is not None, "no environment for a run that brings none"
        self.venue = EnvHandle(given, setup)
        with calls.at_work():
            if branch is not None and branch.copy is not None:
                self.venue.env = copy_env(branch.copy)
            else:
                self.venue.reset()
                if branch is not None:  # after the reset, on which a wrapper may insist
                    branch.resume(self.venue.env)
            self._agents = list(self.venue.env.possible_agents)

    def await_agent(self, max_turns: int | None, calls: CallTimer) -> None:
        """Go to the next agent that decides, or be `over`."""
        if self.over:
            return
        env = self.venue.env
        with calls.at_work():
            while env.agents:
                agent = env.agent_selection
                if env.terminations[agent] or env.truncations[agent]:
                    env.step(None)  # PettingZoo's farewell step of an agent that is done
                    calls.next()
                    continue
                if max_turns is not None and self._turns.get(agent, 0) >= max_turns:
                    self.over = True
                    return
                self.agent = calls.agent = agent
                observation = env.observe(agent)
                self._start = start_of(env, branches=self._branches)
                break
            else:
                self.over = True
                return
        self.prompt, self._followup = prompt_of(observation, agent=self.agent), followup_of(observation)
        self._shown_text = isinstance(observation, str)

    def request(self, num_candidates: int) -> Request:
        """What to ask for the agent that decides: by what it observes, and by what it remembers. Called once."""
        self.prompt, prompt_ids = self._memory.prompt(self.agent, self.prompt, self._followup)
        return Request(self.agent, self.prompt, num_candidates, prompt_ids)

    @property
    def can_part(self) -> bool:
        """Whether there are several candidates, which may be played in other environments than the run's own."""
        return self._start.saved is not None and len(self._sampled.completions) > 1

    def answered(self, sampled: Sampled) -> CandidateStepper:
        """The agent's completions are there, to be played."""
        self._sampled = sampled
        self.candidates = CandidateStepper(self.venue, self._start, self.agent, sampled.completions, self._crashes)
        return self.candidates

    def decide(
        self, judge: Judge | None, num_continuations: int, weigh: RewardWeigher | None, calls: CallTimer
    ) -> None:
        """Go on from the best of the candidates, all of them played, by rewards that `weigh` may change.

        `children` are then the runs that continue the candidates: `num_continuations` of each, candidate after
        candidate, but none of one that ended the episode.
        """
        assert self.candidates is not None, "nothing was sampled"
        played, self.candidates = self.candidates, None
        branches, sampled, turn = played.branches, self._sampled, self._turns.get(self.agent, 0)
        self.was_slow = played.was_slow
        self.crashed += played.crashed
        for branch in branches:
            check_rewards(branch, self.agent)
        if judge is not None:
            is_text = self._shown_text and len(self.prompt) == 1
            choice = PendingDecision(self.row, self.agent, turn, self.prompt, sampled.completions, is_text)
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
        with calls.at_work():
            self.venue.env = branches[chosen].resume(self.venue.env)
            branch = branches[chosen]
            if num_continuations and branch.copy is not None and not branch.over:  # which this run goes on in
                branches[chosen] = replace(branch, copy=copy_env(branch.copy))
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
                state=self._start.digest,
                environment=self.venue.setup.environment,
            )
        )

    def _continuation(self, branch: Branch, candidate: int, repeat: int, memory: ChatHistory) -> EpisodeRunner:
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
            environment=self.venue.setup.environment,
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

    run: EpisodeRunner
    branch: Branch
    place: tuple[int, int, int]
    agent: str
    turns: Mapping[str, int]
