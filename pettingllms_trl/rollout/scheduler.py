"""All that is in play in a rollout: who waits to begin, whose environment is at work, who waits for tokens."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, itemgetter

from pettingllms_trl.records import Engine, Judge, Row, Sampled
from pettingllms_trl.rollout.branching import RewardWeigher
from pettingllms_trl.rollout.env_pool import EnvPool
from pettingllms_trl.rollout.episode import EpisodeRunner
from pettingllms_trl.rollout.prompts import ChatHistory
from pettingllms_trl.rollout.stepping import CrashPolicy
from pettingllms_trl.rollout.timeouts import RETRIES, CallTimer, EnvironmentFailure, TimedPool, check_dropped
from pettingllms_trl.rollout.workers import WorkerPool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Slot:
    """A run with its ticket: a number that follows from its place, and from nothing that happened in the meantime."""

    run: EpisodeRunner
    ticket: int
    attempt: int = 0


@dataclass(slots=True)
class _AtWork:
    """A run whose environment is at work, or several environments on its candidates.

    Args:
        seat: The run's.
        num_jobs: Not done yet.
        failure: How one of them failed.
    """

    seat: _Slot
    num_jobs: int = 0
    failure: EnvironmentFailure | None = None


class RolloutScheduler:
    """See the head of this file; the arguments are those of `rollout.play`.

    Args:
        places: Instance and episode of all episodes, also of those that are played elsewhere.
        width: Candidates of a decision.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        places: Sequence[tuple[int, int]],
        *,
        only: Collection[int],
        stock: EnvPool,
        engine: Engine,
        crew: WorkerPool,
        judge: Judge | None,
        weigh: RewardWeigher | None,
        width: int,
        num_continuations: int,
        seed: str,
        max_envs: int,
        max_turns: int | None,
        env_timeout: float | None,
        crashes: CrashPolicy | None,
        memory: ChatHistory,
        partners: Collection[str],
    ) -> None:
        self._num_rows, self._places, self._only = len(rows), places, only
        self._stock = stock
        self._engine = engine
        self._work, self._at_once = TimedPool(crew, env_timeout), crew.at_once
        self._judge, self._weigh = judge, weigh
        self._width, self._num_continuations = width, num_continuations
        self._max_envs, self._max_turns = max_envs, max_turns
        self._partners = partners
        begin = partial(
            EpisodeRunner,
            seed=seed,
            memory=memory,
            crashes=crashes,
            branches=width > 1 or num_continuations > 0 or crashes is not None,
        )
        self._to_begin = deque(
            _Slot(run=begin(rows[instance], instance, episode), ticket=ticket)
            for ticket, (instance, episode) in enumerate(places)
            if instance in only
        )
        self._to_continue: deque[_Slot] = deque()
        self._at_work: dict[int, _AtWork] = {}
        self._jobs: dict[int, _AtWork] = {}
        self._tickets_of_parts = itertools.count(-1, -1)
        self._slow: set[str] = set()  # environments whose latest decision had a step that was
        self._ready: list[_Slot] = []
        self._asked: dict[int, _Slot] = {}
        self._ended: dict[tuple[int, int], EpisodeRunner] = {}
        self.dropped: dict[int, str] = {}
        self.num_retried = self.num_sampled_tokens = 0

    @property
    def num_timed_out(self) -> int:
        """How often an environment was left alone."""
        return self._work.num_timed_out

    def play(self) -> list[EpisodeRunner]:
        """Until nobody is left. Returns those that were played to their end, in the order of their places."""
        while self._open():
            if self._at_work and self._collect(block=self._engine.is_batched or not (self._ready or self._asked)):
                continue
            self._ask()
            if self._asked:
                for ticket, sampled in self._engine.step():
                    self._answered(self._asked.pop(ticket), sampled)
        own = [place for place in self._places if place[0] in self._only and place[0] not in self.dropped]
        return [self._ended[place] for place in own]

    def _open(self) -> bool:
        """Seat those who wait to begin while there is room: first those who continue candidates, who are soon gone.

        Returns:
            Whether anybody is in play.
        """
        while self._room:
            seat = (self._to_continue or self._to_begin).popleft()
            if self._given_up(seat.run):
                continue
            setup = self._stock.setup(seat.run.row)
            env = None if seat.run.brings_env else self._stock.take(setup.environment, fresh=seat.attempt > 0)
            begin = partial(seat.run.begin, env, setup)
            self._submit(seat, partial(self._go_on, seat.run, begin))
        return self._num_seated > 0

    @property
    def _room(self) -> bool:
        """Whether somebody waits to begin and may."""
        return bool(self._to_continue or self._to_begin) and self._num_seated < self._max_envs

    @property
    def _num_seated(self) -> int:
        return len(self._at_work) + len(self._ready) + len(self._asked)

    def _given_up(self, run: EpisodeRunner) -> bool:
        return run.instance in self.dropped or run.abandoned

    # ---- At work ----

    def _submit(self, seat: _Slot, job: Callable[[CallTimer], None], *, is_part: bool = False) -> None:
        """Have something done with a run's environment, or, as a part of it, with one of its candidates."""
        ticket = next(self._tickets_of_parts) if is_part else seat.ticket
        at_work = self._jobs[ticket] = self._at_work.setdefault(seat.ticket, _AtWork(seat))
        at_work.num_jobs += 1
        self._work.submit(ticket, job, row=seat.run.row, agent=seat.run.agent)

    def _go_on(self, run: EpisodeRunner, step: Callable[[CallTimer], None], calls: CallTimer) -> None:
        """A job: a step of a run, which then goes to the next agent that decides."""
        try:
            step(calls)
            run.await_agent(self._max_turns, calls)
        except EnvironmentFailure:
            run.venue.close(calls)
            raise

    def _play_in_turn(self, seat: _Slot, calls: CallTimer) -> None:
        """A job: the candidates of a run's decision, and on from there."""
        candidates = seat.run.candidates
        assert candidates is not None
        if candidates.play_in_turn(calls, while_quick=self._may_part(seat)):
            self._decide(seat, calls)

    def _play_one(self, seat: _Slot, candidate: int, calls: CallTimer) -> None:
        """A job: one of the candidates, and on from there if the others have been played."""
        candidates = seat.run.candidates
        assert candidates is not None
        if candidates.play(candidate, calls, self._stock):
            self._decide(seat, calls)

    def _decide(self, seat: _Slot, calls: CallTimer) -> None:
        run = seat.run
        number = self._num_continuations if self._has_tree(run) else 0
        self._go_on(run, partial(run.decide, self._judge, number, self._weigh), calls)

    def _play_at_once(self, seat: _Slot, candidates: Sequence[int]) -> None:
        """Have candidates played by a job each."""
        for k in candidates:
            self._submit(seat, partial(self._play_one, seat, k), is_part=True)

    def _may_part(self, seat: _Slot) -> bool:
        """Whether candidates may be played at once. What failed perhaps did so for that: it is played anew in turn."""
        return self._at_once > 1 and seat.attempt == 0 and seat.run.can_part

    def _collect(self, *, block: bool) -> bool:
        """See to those whose work is done. Whether any job was."""
        done = self._work.done(block=block)
        for ticket, error in sorted(done, key=itemgetter(0)):
            at_work = self._jobs.pop(ticket)
            at_work.num_jobs -= 1
            if isinstance(error, EnvironmentFailure):
                at_work.failure = error
                if at_work.seat.run.candidates is not None:  # which do not know yet of one that was left alone
                    at_work.seat.run.candidates.fail()
            elif error is not None:
                raise error
            if not at_work.num_jobs:
                del self._at_work[at_work.seat.ticket]
                self._worked(at_work)
        return bool(done)

    def _worked(self, at_work: _AtWork) -> None:
        """All that was to be done with a run's environment is done."""
        seat, run = at_work.seat, at_work.seat.run
        if at_work.failure is not None:
            if run.candidates is not None and run.candidates.is_free:
                self._leave(run)
            self._failed(seat, at_work.failure)
        elif self._given_up(run):
            self._leave(run)
        elif run.candidates is not None:
            self._play_at_once(seat, run.candidates.unplayed)
        else:
            name = run.venue.setup.environment
            (self._slow.add if run.was_slow else self._slow.discard)(name)
            self._to_continue.extend(self._children(seat))
            if not run.over:
                self._ready.append(seat)
                return
            if run.parent is None:
                self._ended[run.instance, run.episode] = run
            else:
                run.tell_parent()
            self._leave(run)

    def _leave(self, run: EpisodeRunner) -> None:
        if not run.brings_env:
            self._stock.give_back(run.venue.setup.environment, run.venue.env)

    def _children(self, seat: _Slot) -> Iterator[_Slot]:
        """Seats for the runs that continue the candidates of a run's last decision."""
        children, seat.run.children = seat.run.children, []
        for child in children:
            assert child.parent is not None
            decision, k, m = child.parent.place
            number = (decision * self._width + k) * self._num_continuations + m
            yield _Slot(run=child, ticket=seat.ticket + (1 + number) * (1 + RETRIES) * len(self._places))

    def _failed(self, seat: _Slot, failure: EnvironmentFailure) -> None:
        """Begin a run anew on a fresh environment, or drop its instance; the one that failed is not used again."""
        if self._given_up(seat.run):
            return
        if seat.attempt < RETRIES:
            self.num_retried += 1
            again = replace(seat, run=seat.run.anew(), attempt=seat.attempt + 1)
            if again.run.parent is None:
                self._to_begin.append(replace(again, ticket=seat.ticket + len(self._places)))
            else:
                self._to_continue.append(again)
            return
        self.dropped[seat.run.instance] = str(failure)
        check_dropped(self.dropped, self._num_rows, failure.__cause__)

    # ---- Waiting for tokens ----

    def _ask(self) -> None:
        """Ask the engine for what is wanted, in the order of tickets."""
        for seat in sorted(self._ready, key=attrgetter("ticket")):
            run = seat.run
            if self._given_up(run):
                self._leave(run)
                continue
            self._asked[seat.ticket] = seat
            width = self._width if self._has_tree(run) else 1
            self._engine.submit(seat.ticket, run.request(width))
        self._ready.clear()

    def _answered(self, seat: _Slot, sampled: Sampled) -> None:
        run = seat.run
        self.num_sampled_tokens += sum(len(completion.ids) for completion in sampled.completions)
        if self._given_up(run):
            self._leave(run)
            return
        run.answered(sampled)
        if self._may_part(seat) and run.venue.setup.environment in self._slow:
            self._play_at_once(seat, range(len(sampled.completions)))
        else:
            self._submit(seat, partial(self._play_in_turn, seat))

    def _has_tree(self, run: EpisodeRunner) -> bool:
        """Whether a run's decision has several candidates, of which each is continued."""
        return run.parent is None and run.agent not in self._partners
