"""Runs all episodes of a rollout concurrently: admits them, steps their environments and collects completions."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, itemgetter

from old_rollout.branching import RewardWeigher
from old_rollout.env_pool import EnvPool
from old_rollout.episode import EpisodeRunner
from old_rollout.prompts import ChatHistory
from old_rollout.stepping import CrashPolicy
from old_rollout.timeouts import RETRIES, CallTimer, EnvironmentFailure, TimedPool, check_dropped
from old_rollout.workers import WorkerPool
from pettingllms_trl.records import Choose, Engine, Judge, Row, Sampled


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Slot:
    """A run with its ticket: a number that depends on the run's place alone, not on the order of events."""

    run: EpisodeRunner
    ticket: int
    attempt: int = 0


@dataclass(slots=True)
class _Stepping:
    """A run with jobs in progress on its environment, or on several environments for its candidates.

    Args:
        slot: The run's.
        num_jobs: Jobs that are not done yet.
        failure: How one of them failed.
    """

    slot: _Slot
    num_jobs: int = 0
    failure: EnvironmentFailure | None = None


class RolloutScheduler:
    """Moves every run between three states: being stepped, ready to ask for tokens, and waiting for them.

    The arguments are those of `rollout.play`.

    Args:
        num_episodes: Episodes of each row.
        only: Indices of the rows that are played here; the next is taken when there is room for it.
        num_candidates: Candidates of a decision.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        num_episodes: int,
        only: Iterable[int],
        env_pool: EnvPool,
        engine: Engine,
        workers: WorkerPool,
        judge: Judge | None,
        weigh: RewardWeigher | None,
        num_candidates: int,
        num_continuations: int,
        choose: Choose,
        keep_continuations: bool,
        seed: str,
        max_envs: int,
        max_turns: int | None,
        env_timeout: float | None,
        crashes: CrashPolicy | None,
        history: ChatHistory,
        partners: Collection[str],
    ) -> None:
        self._rows, self._num_episodes = rows, num_episodes
        self._untaken, self._taken = iter(only), list[int]()
        self._env_pool = env_pool
        self._engine = engine
        self._workers, self._num_workers = TimedPool(workers, env_timeout), workers.num_workers
        self._judge, self._weigh = judge, weigh
        self._num_candidates, self._num_continuations = num_candidates, num_continuations
        self._choose, self._keep_continuations = choose, keep_continuations
        self._max_envs, self._max_turns = max_envs, max_turns
        self._partners = partners
        self._create = partial(
            EpisodeRunner,
            seed=seed,
            env_pool=env_pool,
            history=history,
            crashes=crashes,
        )
        self._waiting: deque[_Slot] = deque()  # episodes of rows that are taken
        self._waiting_retries: deque[_Slot] = deque()
        self._waiting_continuations: deque[_Slot] = deque()  # and runs whose continuations are over
        self._suspended: dict[EpisodeRunner, _Slot] = {}
        self._stepping: dict[int, _Stepping] = {}
        self._jobs: dict[int, _Stepping] = {}
        self._candidate_tickets = itertools.count(-1, -1)
        self._slow: set[str] = set()  # environments with a slow step in their latest decision
        self._ready: list[_Slot] = []
        self._requested: dict[int, _Slot] = {}
        self._finished: dict[tuple[int, int], EpisodeRunner] = {}
        self.dropped: dict[int, str] = {}
        self.num_retried = self.num_sampled_tokens = 0

    @property
    def num_timed_out(self) -> int:
        """How often an environment was abandoned because a call took too long."""
        return self._workers.num_timed_out

    def play(self) -> list[EpisodeRunner]:
        """Run all episodes to completion; returns the finished ones in row order."""
        while self._admit():
            block = self._engine.is_batched or not (self._ready or self._requested)
            if self._stepping and self._collect(block=block):
                continue
            self._submit_requests()
            if self._requested:
                for ticket, sampled in self._engine.step():
                    self._on_sampled(self._requested.pop(ticket), sampled)
        kept = [instance for instance in sorted(self._taken) if instance not in self.dropped]
        return [self._finished[instance, episode] for instance in kept for episode in range(self._num_episodes)]

    def _admit(self) -> bool:
        """Start waiting runs while capacity allows; continuations first, since they are short.

        Returns:
            Whether any run is active.
        """
        while self._num_active < self._max_envs and (slot := self._next_waiting()) is not None:
            run = slot.run
            if self._is_obsolete(run):
                self._discard_suspended(run)
                continue
            reset_args = self._env_pool.reset_args(run.row)
            has_env = run.keeps_env if run.is_suspended else run.owns_env
            fresh = slot.attempt > 0 and not run.is_suspended  # a run that resumes has given its own back
            env = None if has_env else self._env_pool.acquire(reset_args.environment, fresh=fresh)
            start = run.resume if run.is_suspended else run.begin
            self._submit(slot, partial(self._advance, run, partial(start, env, reset_args)))
        return self._num_active > 0

    def _next_waiting(self) -> _Slot | None:
        """The run to start next; `None` if none waits and no row is left.

        An episode starts when no continuation waits. Then each suspended run has one that is active, so that there are
        at most `max_envs` episodes in play, suspended ones included.
        """
        if not (self._waiting_continuations or self._waiting):
            self._take_row()
        waiting = self._waiting_continuations or self._waiting or self._waiting_retries
        return waiting.popleft() if waiting else None

    def _take_row(self) -> None:
        """Take the next row that is played here, if there is one."""
        for instance in itertools.islice(self._untaken, 1):
            self._taken.append(instance)
            for episode in range(self._num_episodes):
                ticket = instance * self._num_episodes + episode
                run = self._create(self._rows[instance], instance, episode)
                self._waiting.append(_Slot(run=run, ticket=ticket))

    @property
    def _num_places(self) -> int:
        """Episodes of all rows, including those that other processes play."""
        return len(self._rows) * self._num_episodes

    @property
    def _num_active(self) -> int:
        return len(self._stepping) + len(self._ready) + len(self._requested)

    def _is_obsolete(self, run: EpisodeRunner) -> bool:
        return run.instance in self.dropped or run.abandoned

    # ---- Stepping environments ----

    def _submit(self, slot: _Slot, job: Callable[[CallTimer], None], *, is_candidate: bool = False) -> None:
        """Queue a job on a run's environment or, with `is_candidate`, on another one for one of its candidates."""
        ticket = next(self._candidate_tickets) if is_candidate else slot.ticket
        stepping = self._jobs[ticket] = self._stepping.setdefault(slot.ticket, _Stepping(slot))
        stepping.num_jobs += 1
        self._workers.submit(ticket, job, row=slot.run.row, agent=slot.run.agent)

    def _advance(self, run: EpisodeRunner, step: Callable[[CallTimer], None], calls: CallTimer) -> None:
        """A job: step a run, then go on to the next agent that decides."""
        try:
            step(calls)
            run.await_agent(self._max_turns, calls)
        except EnvironmentFailure:
            run.handle.close(calls)
            raise

    def _step_sequentially(self, slot: _Slot, calls: CallTimer) -> None:
        """A job: step the candidates of a run's decision one after the other, then take the decision."""
        candidates = slot.run.candidates
        assert candidates is not None
        if candidates.step_sequentially(calls, while_quick=self._may_fan_out(slot)):
            self._decide(slot, calls)

    def _step_one(self, slot: _Slot, candidate: int, calls: CallTimer) -> None:
        """A job: step one candidate, and take the decision if it was the last."""
        candidates = slot.run.candidates
        assert candidates is not None
        if candidates.step_one(candidate, calls, self._env_pool):
            self._decide(slot, calls)

    def _decide(self, slot: _Slot, calls: CallTimer) -> None:
        run = slot.run
        number = self._num_continuations if self._is_branched(run) else 0
        self._advance(run, partial(run.decide, self._judge, number, self._weigh, choose=self._choose), calls)

    def _step_concurrently(self, slot: _Slot, candidates: Sequence[int]) -> None:
        """Queue a job for each of these candidates."""
        for k in candidates:
            self._submit(slot, partial(self._step_one, slot, k), is_candidate=True)

    def _may_fan_out(self, slot: _Slot) -> bool:
        """Whether candidates may be stepped concurrently.

        A retry is stepped sequentially, since concurrency may have caused the failure.
        """
        return self._num_workers > 1 and slot.attempt == 0 and slot.run.can_fan_out

    def _collect(self, *, block: bool) -> bool:
        """Handle the jobs that are done. Returns whether there were any."""
        done = self._workers.done(block=block)
        for ticket, error in sorted(done, key=itemgetter(0)):
            stepping = self._jobs.pop(ticket)
            stepping.num_jobs -= 1
            if isinstance(error, EnvironmentFailure):
                stepping.failure = error
                if stepping.slot.run.candidates is not None:  # an abandoned job could not tell them
                    stepping.slot.run.candidates.fail()
            elif error is not None:
                raise error
            if not stepping.num_jobs:
                del self._stepping[stepping.slot.ticket]
                self._on_stepped(stepping)
        return bool(done)

    def _on_stepped(self, stepping: _Stepping) -> None:
        """Decide what is next for a run whose jobs are all done."""
        slot, run = stepping.slot, stepping.slot.run
        if stepping.failure is not None:
            if run.candidates is not None and run.candidates.is_env_free:
                self._release(run)
            self._retry_or_drop(slot, stepping.failure)
        elif self._is_obsolete(run):
            self._release(run)
        elif run.candidates is not None:
            self._step_concurrently(slot, run.candidates.pending)
        else:
            name = run.handle.reset_args.environment
            (self._slow.add if run.was_slow else self._slow.discard)(name)
            self._waiting_continuations.extend(self._continuations_of(slot))
            if run.is_suspended:
                self._suspend(slot)
            elif run.over:
                self._finish(run)
            else:
                self._ready.append(slot)

    def _finish(self, run: EpisodeRunner) -> None:
        """Keep the result of a run that is over; a run that it was suspended for may be resumed."""
        self._release(run)
        if run.parent is None:
            self._finished[run.instance, run.episode] = run
            return
        run.report_return(keep_decisions=self._keep_continuations)
        continued = run.parent.run
        if continued in self._suspended and continued.can_resume:
            self._waiting_continuations.append(self._suspended.pop(continued))

    def _suspend(self, slot: _Slot) -> None:
        self._suspended[slot.run] = slot
        if not slot.run.keeps_env:
            self._release(slot.run)

    def _discard_suspended(self, run: EpisodeRunner) -> None:
        """Give up an obsolete run that may be suspended."""
        if run.is_suspended and run.keeps_env:
            self._release(run)

    def _release(self, run: EpisodeRunner) -> None:
        if not run.owns_env:
            self._env_pool.release(run.handle.reset_args.environment, run.handle.env)

    def _continuations_of(self, slot: _Slot) -> Iterator[_Slot]:
        """Slots for the runs that continue the candidates of a run's last decision."""
        children, slot.run.children = slot.run.children, []
        for child in children:
            assert child.parent is not None
            decision, k, m = child.parent.place
            number = (decision * self._num_candidates + k) * self._num_continuations + m
            yield _Slot(run=child, ticket=slot.ticket + (1 + number) * (1 + RETRIES) * self._num_places)

    def _retry_or_drop(self, slot: _Slot, failure: EnvironmentFailure) -> None:
        """Restart a run in a fresh environment, or drop its instance; the failed environment is not used again."""
        if self._is_obsolete(slot.run):
            return
        if slot.attempt < RETRIES:
            self.num_retried += 1
            retry = replace(slot, run=slot.run.restart(), attempt=slot.attempt + 1)
            if retry.run.parent is None:
                self._waiting_retries.append(replace(retry, ticket=slot.ticket + self._num_places))
            else:
                self._waiting_continuations.append(retry)
            return
        self.dropped[slot.run.instance] = str(failure)
        for run in [run for run in self._suspended if self._is_obsolete(run)]:
            del self._suspended[run]
            self._discard_suspended(run)
        check_dropped(self.dropped, len(self._rows), failure.__cause__)

    # ---- Asking the engine for completions ----

    def _submit_requests(self) -> None:
        """Send the requests of all ready runs to the engine, in the order of their tickets."""
        for slot in sorted(self._ready, key=attrgetter("ticket")):
            run = slot.run
            if self._is_obsolete(run):
                self._release(run)
                continue
            self._requested[slot.ticket] = slot
            number = self._num_candidates if self._is_branched(run) else 1
            self._engine.submit(slot.ticket, run.request(number))
        self._ready.clear()

    def _on_sampled(self, slot: _Slot, sampled: Sampled) -> None:
        """Step the candidates that the engine has sampled."""
        run = slot.run
        self.num_sampled_tokens += sum(len(completion.ids) for completion in sampled.completions)
        if self._is_obsolete(run):
            self._release(run)
            return
        run.receive(sampled)
        if self._may_fan_out(slot) and run.handle.reset_args.environment in self._slow:
            self._step_concurrently(slot, range(len(sampled.completions)))
        else:
            self._submit(slot, partial(self._step_sequentially, slot))

    def _is_branched(self, run: EpisodeRunner) -> bool:
        """Whether a run's decision has several candidates, each of which is continued."""
        return run.parent is None and run.agent not in self._partners
