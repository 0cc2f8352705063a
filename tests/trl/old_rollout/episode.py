"""Runs one episode: prompts the acting agent, steps its candidates, and goes on from the best one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pettingzoo import AECEnv

from old_rollout.branching import (
    Branch,
    ContinuationResults,
    RewardWeigher,
    StateSnapshot,
    add_rewards,
    check_rewards,
    snapshot_of,
    weighed,
)
from old_rollout.env_pool import EnvHandle, EnvPool, ResetArgs
from old_rollout.prompts import ChatHistory
from old_rollout.stepping import CandidateStepper, CrashPolicy
from old_rollout.timeouts import CallTimer
from pettingllms_envs.copying import copy_env
from pettingllms_envs.observations import followup_of, text_prompt
from pettingllms_trl.records import (
    Choose,
    ContinuationPlace,
    Decision,
    Episode,
    Judge,
    Message,
    PendingDecision,
    Request,
    Row,
    Sampled,
    Tools,
)


class EpisodeRunner:
    """One episode in progress, or a continuation of one of its candidates.

    Methods that take `calls` run as jobs, one after the other, except those that step `candidates`.

    Args:
        row: The instance: `seed` and reset options.
        instance: Index of the row within the rollout.
        episode: Index of the episode within its instance.
        seed: Names the rollout; breaks ties between equally good candidates.
        env_pool: Where its environments come from.
        history: The conversations that its agents start with.
        crashes: How a reply that crashes the environment is treated; `None`: as a failure of the environment.
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
        env_pool: EnvPool,
        history: ChatHistory = ChatHistory(),  # noqa: B008  # frozen
        crashes: CrashPolicy | None = None,
        parent: ContinuedCandidate | None = None,
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
        self._env_pool = env_pool
        self._agents: list[str] = []
        self._decisions: list[Decision] = []
        self._rewards: list[Mapping[str, float]] = []
        self._outcome: Mapping[str, Any] = {}
        self._turns: dict[str, int] = {} if parent is None else dict(parent.turns)
        self._rewarded: _RewardedDecision | None = None  # the current decision, until a candidate is chosen
        self._results = ContinuationResults()

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

    def _sibling(self, history: ChatHistory, parent: ContinuedCandidate | None) -> EpisodeRunner:
        """Another run of the same episode."""
        return EpisodeRunner(
            self.row,
            self.instance,
            self.episode,
            seed=self._seed,
            env_pool=self._env_pool,
            history=history,
            crashes=self._crashes,
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
        self.handle = EnvHandle(given, reset_args, self._env_pool)
        with calls.timed():
            if branch is not None and branch.copy is not None:
                self.handle.env = copy_env(branch.copy)
            else:
                self.handle.reset()
                if branch is not None:  # after the reset, which some wrappers require
                    branch.resume(self.handle.env, calls.restart)
            self._agents = list(self.handle.env.agents)

    def await_agent(self, max_turns: int | None, calls: CallTimer) -> None:
        """Advance to the next agent that decides, or set `over` if there is none. Nothing happens while suspended."""
        if self.over or self.is_suspended:
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
                self._start = snapshot_of(env, branches=self._env_pool.branches)
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
        self,
        judge: Judge | None,
        num_continuations: int,
        weigh: RewardWeigher | None,
        calls: CallTimer,
        *,
        choose: Choose = "reward",
    ) -> None:
        """Reward the candidates, once all are stepped, and go on from the best one.

        `weigh` may change the rewards first. `children` are then the runs that continue the candidates:
        `num_continuations` of each, candidate after candidate, but none of a candidate that ended the episode. If the
        best one is chosen by its value, and there are children, the run is suspended until they are over.
        """
        self._rewarded = self._reward(judge, num_continuations, weigh)
        if choose == "reward" or not self.children:
            self._go_on(choose if num_continuations else "reward", calls)

    @property
    def is_suspended(self) -> bool:
        """Whether it cannot choose a candidate before their continuations are over."""
        return self._rewarded is not None

    @property
    def can_resume(self) -> bool:
        """Whether it is suspended no longer than until an environment is free."""
        return self.is_suspended and self._results.are_over(len(self._decisions))

    @property
    def keeps_env(self) -> bool:
        """Whether it keeps its environment while it is suspended: the states that it compares are copies of it."""
        return self._start.saved is None

    def resume(self, env: AECEnv | None, reset_args: ResetArgs, calls: CallTimer) -> None:
        """Choose the candidate with the highest value, once their continuations are over, and go on from there.

        Args:
            env: An environment for the row; `None` if the run `keeps_env`.
            reset_args: How the row's instance is reset.
            calls: Timer of the job.
        """
        if env is not None:
            self.handle = EnvHandle(env, reset_args, self._env_pool)
            with calls.timed():
                self.handle.reset()
        self._go_on("value", calls)

    def _reward(self, judge: Judge | None, num_continuations: int, weigh: RewardWeigher | None) -> _RewardedDecision:
        """The candidates that were stepped, with their rewards; `children` continue them."""
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
        self._turns[self.agent] = turn + 1
        histories = [
            self._history.replied(self.agent, self.prompt, sampled.prompt_ids, c) for c in sampled.completions
        ]
        self._results.begin_decision(num_continuations)
        self.children = [
            self._continuation(branch, k, m, histories[k])
            for k, branch in enumerate(branches)
            if not branch.over
            for m in range(num_continuations)
        ]
        return _RewardedDecision(branches=branches, histories=histories, turn=turn)

    def _go_on(self, choose: Choose, calls: CallTimer) -> None:
        """Choose the best of the rewarded candidates, record the decision, and continue its branch."""
        assert self._rewarded is not None, "no candidates were rewarded"
        rewarded, self._rewarded = self._rewarded, None
        at, turn = len(self._decisions), rewarded.turn
        candidates = tuple(branch.candidate for branch in rewarded.branches)
        if choose == "value":
            candidates = self._results.added_to(candidates, at)
        worth = [candidate.value if choose == "value" else candidate.reward for candidate in candidates]
        best = [k for k, each in enumerate(worth) if each == max(worth)]
        place = f"{self._seed}/{self.instance}/{self.episode}/{self.agent}/{turn}"
        chosen = best[0] if len(best) == 1 else random.Random(place).choice(best)
        branch = rewarded.branches[chosen]
        self.over = branch.crashed
        with calls.timed():
            env = branch.resume(self.handle.env, calls.restart)
            is_continued = branch.copy is not None and not branch.over and not self._results.are_over(at)
            self.handle.env = copy_env(env) if is_continued else env  # continuations start from the copy
        self._history = rewarded.histories[chosen]
        self._rewards.append(branch.rewards)
        self._outcome = branch.outcome
        self._decisions.append(
            Decision(
                instance=self.instance,
                episode=self.episode,
                agent=self.agent,
                turn=turn,
                prompt=self.prompt,
                prompt_ids=self._sampled.prompt_ids,
                tools=self.tools,
                candidates=candidates,
                chosen=chosen,
                state=self._start.digest,
                environment=self.handle.reset_args.environment,
                policy_version=self._sampled.policy_version,
                continuation=None if self.parent is None else self.parent.place,
            )
        )

    def _continuation(self, branch: Branch, candidate: int, repeat: int, history: ChatHistory) -> EpisodeRunner:
        """A run that continues a candidate of the current decision."""
        place = ContinuationPlace(len(self._decisions), candidate, repeat)
        self._results.expect(place)
        parent = ContinuedCandidate(run=self, branch=branch, place=place, agent=self.agent, turns=dict(self._turns))
        return self._sibling(history, parent)

    def report_return(self, *, keep_decisions: bool) -> None:
        """Report the agent's return of this continuation to the run whose candidate it continued."""
        assert self.parent is not None
        run, place = self.parent.run, self.parent.place
        decisions: Sequence[Decision] = ()
        if keep_decisions:
            before = [*run._rewards[: place.decision], self.parent.branch.rewards]
            decisions = with_returns(self._decisions, self._rewards, before)
        run._results.report(place, self._return_of(self.parent.agent), decisions)

    def _return_of(self, agent: str) -> float:
        """The sum of an agent's rewards so far."""
        return sum(rewards.get(agent, 0.0) for rewards in self._rewards)

    def finish(self) -> Episode:
        """The record of the episode, once it and all continuations of its candidates are over."""
        agents = dict.fromkeys([*self._agents, *(agent for rewards in self._rewards for agent in rewards)])
        return Episode(
            instance=self.instance,
            episode=self.episode,
            decisions=with_returns(self._with_results(), self._rewards),
            returns={agent: self._return_of(agent) for agent in agents},
            outcome=self._outcome,
            environment=self.handle.reset_args.environment,
            continuations=self._results.decisions,
        )

    def _with_results(self) -> list[Decision]:
        """The decisions with the returns of their candidates' continuations."""
        return [
            replace(decision, candidates=self._results.added_to(decision.candidates, i))
            for i, decision in enumerate(self._decisions)
        ]


def with_returns(
    decisions: Sequence[Decision],
    rewards: Sequence[Mapping[str, float]],
    before: Sequence[Mapping[str, float]] = (),
) -> tuple[Decision, ...]:
    """The decisions of a run with `rewards`, and `episode_return` and `return_to_go` of the agents that took them.

    Args:
        decisions: In the order in which they were taken.
        rewards: The rewards of each decision's step, by agent.
        before: The rewards of the steps before the run began.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _RewardedDecision:
    """A decision whose candidates have rewards, before one is chosen.

    Args:
        branches: Of the candidates.
        histories: The conversations after each candidate.
        turn: How many decisions the agent had taken before.
    """

    branches: Sequence[Branch]
    histories: Sequence[ChatHistory]
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuedCandidate:
    """The candidate that a run continues.

    Args:
        run: The run in which the candidate was sampled.
        branch: The state that the candidate reached, and its rewards.
        place: Which continuation it is.
        agent: The agent that acted.
        turns: How many decisions each agent had taken by then.
    """

    run: EpisodeRunner
    branch: Branch
    place: ContinuationPlace
    agent: str
    turns: Mapping[str, int]
