"""Runs one episode: prompts the acting agent, steps its candidates, and goes on from the best one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pettingzoo import AECEnv

from pettingllms_envs.copying import copy_env
from pettingllms_envs.observations import followup_of, text_prompt
from pettingllms_trl.records import Decision, Episode, Judge, Message, PendingDecision, Request, Row, Sampled, Tools
from pettingllms_trl.rollout.branching import (
    Branch,
    RewardWeigher,
    StateSnapshot,
    add_rewards,
    check_rewards,
    snapshot_of,
    weighed,
)
from pettingllms_trl.rollout.env_pool import EnvHandle, ResetArgs
from pettingllms_trl.rollout.prompts import ChatHistory
from pettingllms_trl.rollout.stepping import CandidateStepper, CrashPolicy
from pettingllms_trl.rollout.timeouts import CallTimer


class EpisodeRunner:
    """One episode in progress, or a continuation of one of its candidates.

    Methods that take `calls` run as jobs, one after the other, except those that step `candidates`.

    Args:
        row: The instance: `seed` and reset options.
        instance: Index of the row within the rollout.
        episode: Index of the episode within its instance.
        seed: Names the rollout; breaks ties between equally good candidates.
        history: The conversations that its agents start with.
        crashes: How a reply that crashes the environment is treated; `None`: as a failure of the environment.
        branches: Whether several replies may be stepped from one state. If not, states need not be saved.
        parent: What this run continues, if it is not an episode of its own.
    """

    handle: EnvHandle  # from `begin` until the run is over
    candidates: CandidateStepper | None  # of the current decision, while they are stepped
    _start: StateSnapshot  # the state in which that decision is taken
    _sampled: Sampled

    def __init__(
        self,
        row: Row,
        instance: int,
        episode: int,
        *,
        seed: str,
        history: ChatHistory = ChatHistory(),  # noqa: B008  # frozen
        crashes: CrashPolicy | None = None,
        branches: bool = True,
        parent: Continuation | None = None,
    ) -> None:
        self.row = row
        self.instance = instance
        self.episode = episode
        self.parent = parent
        self.candidates = None
        self.was_slow = False  # in its latest decision, so that candidates are better stepped concurrently
        self.agent = ""
        self.prompt: Sequence[Message] = []
        self.tools: Tools = ()
        self.over = False
        self.children: list[EpisodeRunner] = []
        self.crashed: list[str] = []  # errors of replies that crashed the environment
        self._abandoned = False
        self._seed = seed
        self._initial_history = self._history = history
        self._followup: str | None = None
        self._shown_text = False
        self._crashes = crashes
        self._branches = branches
        self._agents: list[str] = []
        self._decisions: list[Decision] = []
        self._rewards: list[Mapping[str, float]] = []
        self._outcome: Mapping[str, Any] = {}
        self._turns: dict[str, int] = {} if parent is None else dict(parent.turns)
        self._continuation_values: dict[tuple[int, int, int], float | None] = {}
        self._num_continuations: list[int] = []

    @property
    def owns_env(self) -> bool:
        """Whether it copies an environment instead of taking one from the pool, since its state can only be copied."""
        return self.parent is not None and self.parent.branch.copy is not None

    @property
    def abandoned(self) -> bool:
        """Whether the run is obsolete because it, or its parent, was restarted."""
        return self._abandoned or (self.parent is not None and self.parent.run.abandoned)

    def restart(self) -> EpisodeRunner:
        """A new run from the beginning that replaces this one."""
        self._abandoned = True
        return self._sibling(self._initial_history, self.parent)

    def _sibling(self, history: ChatHistory, parent: Continuation | None) -> EpisodeRunner:
        """Another run of the same episode."""
        return EpisodeRunner(
            self.row,
            self.instance,
            self.episode,
            seed=self._seed,
            history=history,
            crashes=self._crashes,
            branches=self._branches,
            parent=parent,
        )

    def begin(self, env: AECEnv | None, reset_args: ResetArgs, calls: CallTimer) -> None:
        """Reset an environment to the row's instance; a continuation then restores its candidate's state.

        Args:
            env: An environment for the row; `None` if the run `owns_env`.
            reset_args: How the row's instance is reset.
            calls: Timer of the job.
        """
        branch = None if self.parent is None else self.parent.branch
        given = env if branch is None or branch.copy is None else branch.copy
        assert given is not None, "no environment for a run that owns none"
        self.handle = EnvHandle(given, reset_args)
        with calls.timed():
            if branch is not None and branch.copy is not None:
                self.handle.env = copy_env(branch.copy)
            else:
                self.handle.reset()
                if branch is not None:  # after the reset, which some wrappers require
                    branch.resume(self.handle.env, calls.restart)
            self._agents = list(self.handle.env.agents)

    def await_agent(self, max_turns: int | None, calls: CallTimer) -> None:
        """Advance to the next agent that decides, or set `over` if there is none."""
        if self.over:
            return
        env = self.handle.env
        with calls.timed():
            while env.agents:
                agent = env.agent_selection
                if env.terminations[agent] or env.truncations[agent]:
                    env.step(None)  # PettingZoo's dead step of a terminated or truncated agent
                    calls.restart()
                    continue
                if max_turns is not None and self._turns.get(agent, 0) >= max_turns:
                    self.over = True
                    return
                self.agent = calls.agent = agent
                observation = env.observe(agent)
                self._start = snapshot_of(env, branches=self._branches)
                break
            else:
                self.over = True
                return
        self.prompt, self.tools = text_prompt(observation, agent=self.agent)
        self._followup = followup_of(observation)
        self._shown_text = isinstance(observation, str)

    def request(self, num_candidates: int) -> Request:
        """The request for the acting agent's completions, from its observation and history. Call it once."""
        self.prompt, prompt_ids = self._history.prompt(self.agent, self.prompt, self._followup, self.tools)
        return Request(self.agent, self.prompt, num_candidates, prompt_ids, tools=self.tools)

    @property
    def can_fan_out(self) -> bool:
        """Whether there are several candidates that can be stepped in other environments than the run's own."""
        return self._start.saved is not None and len(self._sampled.completions) > 1

    def receive(self, sampled: Sampled) -> CandidateStepper:
        """Take the agent's completions. Returns the stepper that plays them."""
        self._sampled = sampled
        self.candidates = CandidateStepper(self.handle, self._start, self.agent, sampled.completions, self._crashes)
        return self.candidates

    def decide(
        self, judge: Judge | None, num_continuations: int, weigh: RewardWeigher | None, calls: CallTimer
    ) -> None:
        """Choose the best candidate, once all are stepped, record the decision, and go on from there.

        `weigh` may change the rewards first. `children` are then the runs that continue the candidates:
        `num_continuations` of each, candidate after candidate, but none of a candidate that ended the episode.
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
        with calls.timed():
            self.handle.env = branches[chosen].resume(self.handle.env, calls.restart)
            branch = branches[chosen]
            if num_continuations and branch.copy is not None and not branch.over:  # this run goes on in it
                branches[chosen] = replace(branch, copy=copy_env(branch.copy))
        histories = [
            self._history.replied(self.agent, self.prompt, sampled.prompt_ids, c) for c in sampled.completions
        ]
        self._history = histories[chosen]
        self.children = [
            self._continuation(branch, k, m, histories[k])
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
                tools=self.tools,
                candidates=tuple(branch.candidate for branch in branches),
                chosen=chosen,
                state=self._start.digest,
                environment=self.handle.reset_args.environment,
                policy_version=sampled.policy_version,
            )
        )

    def _continuation(self, branch: Branch, candidate: int, repeat: int, history: ChatHistory) -> EpisodeRunner:
        """A run that continues a candidate of the current decision."""
        place = (len(self._decisions), candidate, repeat)
        self._continuation_values[place] = None
        parent = Continuation(self, branch, place, self.agent, dict(self._turns))
        return self._sibling(history, parent)

    def report_return(self) -> None:
        """Report the agent's return of this continuation to the run whose candidate it continued."""
        assert self.parent is not None
        self.parent.run._continuation_values[self.parent.place] = self._return_of(self.parent.agent)

    def _return_of(self, agent: str) -> float:
        """The sum of an agent's rewards so far."""
        return sum(rewards.get(agent, 0.0) for rewards in self._rewards)

    def finish(self) -> Episode:
        """The record of the episode, once it and all continuations of its candidates are over."""
        agents = dict.fromkeys([*self._agents, *(agent for rewards in self._rewards for agent in rewards)])
        returns = {agent: self._return_of(agent) for agent in agents}  # absent ones have none, and others may join
        to_go = dict.fromkeys(agents, 0.0)
        decisions: list[Decision] = []
        for i in reversed(range(len(self._decisions))):
            decision = self._decisions[i]
            for agent, reward in self._rewards[i].items():
                to_go[agent] = to_go.get(agent, 0.0) + reward
            candidates = decision.candidates
            if number := self._num_continuations[i]:
                candidates = tuple(
                    replace(candidate, continuations=self._continuation_returns(i, k, number))
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
            environment=self.handle.reset_args.environment,
        )

    def _continuation_returns(self, decision: int, candidate: int, number: int) -> tuple[float, ...]:
        values = []
        for repeat in range(number):
            value = self._continuation_values.get(
                (decision, candidate, repeat), 0.0
            )  # nothing follows the end of an episode
            assert value is not None, f"decision {decision}, candidate {candidate}: its continuation is not over"
            values.append(value)
        return tuple(values)


@dataclass(frozen=True, slots=True)
class Continuation:
    """The candidate that a run continues.

    Args:
        run: The run in which the candidate was sampled.
        branch: The state that the candidate reached, and its rewards.
        place: Indices of the decision, of the candidate, and of this continuation.
        agent: The agent that acted.
        turns: How many decisions each agent had taken by then.
    """

    run: EpisodeRunner
    branch: Branch
    place: tuple[int, int, int]
    agent: str
    turns: Mapping[str, int]
