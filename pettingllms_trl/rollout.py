"""Plays many environments at once, as trees or in parallel, and returns episodes. Needs no torch.

`play` asks for tokens through an `Engine`, and knows neither models nor policies. No instance waits for another: as
soon as one's tokens are there it is stepped (on a thread, beside the engine), and as soon as it knows what to ask next
the engine is asked. Only an engine that works in waves is given all instances' requests together.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import Literal

from pettingzoo import AECEnv

from pettingllms_trl.crew import Caller, Crew, Threads
from pettingllms_trl.engine import Engine, Request, Sampled
from pettingllms_trl.records import Episode
from pettingllms_trl.run import Choice, EnvironmentFailure, Judge, Row, Run


MakeEnv = Callable[[], AECEnv]
RETRIES = 2
MOST_DROPPED = 0.2


@dataclass(frozen=True, slots=True)
class Rollout:
    """What playing the rows gave.

    Args:
        episodes: In the order of rows, then of episodes; none of an instance that was dropped.
        dropped: Why an instance was dropped, by its index: its environment failed again and again.
        retried: How often an instance was begun anew on a fresh environment, because one had failed.
    """

    episodes: list[Episode]
    dropped: Mapping[int, str] = field(default_factory=dict)
    retried: int = 0


def play(
    rows: Sequence[Row],
    *,
    only: Collection[int] | None = None,
    make_env: MakeEnv,
    pool: list[AECEnv] | None = None,
    engine: Engine,
    judge: Judge | None = None,
    sampling: Literal["tree", "parallel"],
    num_candidates: int,
    num_continuations: int = 0,
    seed: str,
    default_env_seed: int = 0,
    max_envs: int | None = None,
    max_turns: int | None = None,
    num_threads: int = 0,
    crew: Crew | None = None,
) -> Rollout:
    """Play every row: one tree each, or `num_candidates` independent episodes each.

    An environment that raises is thrown away, and its instance played anew on a fresh one, twice at most; then the
    instance is dropped with all its episodes, never scored.

    Args:
        rows: Instances. `row["seed"]` seeds the environment, the other fields are its reset options.
        only: Indices of the rows that are played here, where others play the rest. What follows from a row's place,
            in tickets, ties and records, is as if all were. `None`: all.
        make_env: Called as many times as environments are in play at once; they are reset and used again.
        pool: Environments made before, used first; all that were in play are left in it.
        engine: Samples the completions.
        judge: Rewards beside the environment's, added before the best candidate is chosen. Called one at a time.
        sampling: `"tree"`: K candidates for each decision, the best is played on, ties broken by chance.
            `"parallel"`: K episodes of each row, one candidate for each decision.
        num_candidates: K.
        num_continuations: How often each candidate's branch is played to its end, for `Candidate.continuations`.
        seed: Names the rollout. Ties are broken by it and the decision's place alone, whatever else is in play.
        default_env_seed: Seeds the environment where a row has no seed.
        max_envs: Bound on the environments in play at once, and so on those left in the pool. `None`: all episodes;
            with continuations K times as many, so that the engine has as much to do with them as with candidates.
        max_turns: An episode ends when an agent would decide more often.
        num_threads: Environments are stepped on so many threads beside the engine. 0: on the caller's, in a fixed
            order, so that an engine which samples by one stream of random numbers repeats itself.
        crew: Steps the environments in place of those threads, and is closed at the end; for a clock of its own.

    Raises:
        TypeError: An agent is shown something that is not text.
        ValueError: The environment gave a reward that is not a finite number.
        EnvironmentFailure: More than a fifth of the instances had to be dropped, and more than one or the only one.
    """
    num_episodes, width = (1, num_candidates) if sampling == "tree" else (num_candidates, 1)
    places = [(i, e) for i in range(len(rows)) for e in range(num_episodes)]
    own = range(len(rows)) if only is None else only
    with closing(crew or (Threads(num_threads) if num_threads else Caller())) as crew:
        table = _Table(
            rows,
            places,
            only=own,
            make_env=make_env,
            idle=[] if pool is None else pool,
            engine=engine,
            crew=crew,
            judge=None if judge is None else _one_at_a_time(judge),
            width=width,
            num_continuations=num_continuations,
            seed=seed,
            default_env_seed=default_env_seed,
            max_envs=max_envs or sum(i in own for i, _ in places) * (width if num_continuations else 1),
            max_turns=max_turns,
        )
        return table.play()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Seat:
    """A run with its ticket: a number that follows from its place, and from nothing that happened in the meantime."""

    run: Run
    ticket: int
    attempt: int = 0


class _Table:
    """All that is in play: who waits to begin, whose environment is at work, who waits for tokens."""

    def __init__(
        self,
        rows: Sequence[Row],
        places: Sequence[tuple[int, int]],
        *,
        only: Collection[int],
        make_env: MakeEnv,
        idle: list[AECEnv],
        engine: Engine,
        crew: Crew,
        judge: Judge | None,
        width: int,
        num_continuations: int,
        seed: str,
        default_env_seed: int,
        max_envs: int,
        max_turns: int | None,
    ) -> None:
        self._num_rows, self._places, self._only = len(rows), places, only
        self._make_env, self._idle = make_env, idle
        self._engine, self._crew = engine, crew
        self._judge, self._width, self._num_continuations = judge, width, num_continuations
        self._default_env_seed = default_env_seed
        self._max_envs, self._max_turns = max_envs, max_turns
        self._to_begin = deque(
            _Seat(run=Run(rows[instance], instance, episode, seed=seed), ticket=ticket)
            for ticket, (instance, episode) in enumerate(places)
            if instance in only
        )
        self._to_continue: deque[_Seat] = deque()
        self._at_work: dict[int, _Seat] = {}
        self._ready: list[_Seat] = []
        self._asked: dict[int, _Seat] = {}
        self._ended: dict[tuple[int, int], Run] = {}
        self._dropped: dict[int, str] = {}
        self._retried = 0

    def play(self) -> Rollout:
        """Until nobody is left."""
        in_waves = self._engine.in_waves
        while self._open():
            if self._at_work and self._collect(block=in_waves or not (self._ready or self._asked)):
                continue
            self._ask()
            if self._asked:
                for ticket, sampled in self._engine.step():
                    self._answered(self._asked.pop(ticket), sampled)
        episodes = [
            self._ended[place].finish(self._num_continuations)
            for place in self._places
            if place[0] in self._only and place[0] not in self._dropped
        ]
        return Rollout(episodes, self._dropped, self._retried)

    def _open(self) -> bool:
        """Seat those who wait to begin while there is room: first those who continue candidates, who are soon gone.

        Returns:
            Whether anybody is in play.
        """
        while self._room:
            seat = (self._to_continue or self._to_begin).popleft()
            if self._given_up(seat.run):
                continue
            if seat.run.brings_env:
                env = None
            elif self._idle and not seat.attempt:
                env = self._idle.pop()
            else:
                env = self._make_env()
            self._work(seat, partial(seat.run.begin, env, self._default_env_seed))
        return self._num_seated > 0

    @property
    def _room(self) -> bool:
        """Whether somebody waits to begin and may."""
        return bool(self._to_continue or self._to_begin) and self._num_seated < self._max_envs

    @property
    def _num_seated(self) -> int:
        return len(self._at_work) + len(self._ready) + len(self._asked)

    def _given_up(self, run: Run) -> bool:
        return run.instance in self._dropped or run.abandoned

    # ---- At work ----

    def _work(self, seat: _Seat, work: Callable[[], None]) -> None:
        """Have something done with a run's environment, which then goes to the next agent that decides."""

        def job() -> None:
            try:
                work()
                seat.run.await_agent(self._max_turns)
            except EnvironmentFailure:
                seat.run.close()
                raise

        self._at_work[seat.ticket] = seat
        self._crew.submit(seat.ticket, job)

    def _collect(self, *, block: bool) -> bool:
        """See to those whose work is done. Whether anybody's was."""
        done = self._crew.done(block=block)
        for ticket, error in sorted(done, key=itemgetter(0)):
            seat = self._at_work.pop(ticket)
            run = seat.run
            if isinstance(error, EnvironmentFailure):
                self._failed(seat, error)
            elif error is not None:
                raise error
            elif self._given_up(run):
                self._leave(run)
            else:
                self._to_continue.extend(self._children(seat))
                if not run.over:
                    self._ready.append(seat)
                    continue
                if run.parent is None:
                    self._ended[run.instance, run.episode] = run
                else:
                    run.tell_parent()
                self._leave(run)
        return bool(done)

    def _leave(self, run: Run) -> None:
        if not run.brings_env:
            self._idle.append(run.env)

    def _children(self, seat: _Seat) -> Iterator[_Seat]:
        """Seats for the runs that continue the candidates of a run's last decision."""
        children, seat.run.children = seat.run.children, []
        for child in children:
            assert child.parent is not None
            decision, k, m = child.parent.place
            number = (decision * self._width + k) * self._num_continuations + m
            yield _Seat(run=child, ticket=seat.ticket + (1 + number) * (1 + RETRIES) * len(self._places))

    def _failed(self, seat: _Seat, failure: EnvironmentFailure) -> None:
        """Begin a run anew on a fresh environment, or drop its instance; the one that failed is not used again."""
        if self._given_up(seat.run):
            return
        if seat.attempt < RETRIES:
            self._retried += 1
            again = replace(seat, run=seat.run.anew(), attempt=seat.attempt + 1)
            if again.run.parent is None:
                self._to_begin.append(replace(again, ticket=seat.ticket + len(self._places)))
            else:
                self._to_continue.append(again)
            return
        self._dropped[seat.run.instance] = str(failure)
        if too_many_dropped(len(self._dropped), self._num_rows):
            raise failure

    # ---- Waiting for tokens ----

    def _ask(self) -> None:
        """Ask the engine for what is wanted, in the order of tickets."""
        for seat in sorted(self._ready, key=attrgetter("ticket")):
            run = seat.run
            if self._given_up(run):
                self._leave(run)
                continue
            self._asked[seat.ticket] = seat
            width = self._width if run.parent is None else 1
            self._engine.submit(seat.ticket, Request(run.agent, run.prompt, width))
        self._ready.clear()

    def _answered(self, seat: _Seat, sampled: Sampled) -> None:
        run = seat.run
        if self._given_up(run):
            self._leave(run)
            return
        number = self._num_continuations if run.parent is None else 0
        self._work(seat, partial(run.decide, sampled, self._judge, number))


def merge(parts: Sequence[Rollout], *, num_rows: int) -> Rollout:
    """What several processes have played of the same rows, each its own share of them, in the order of the shares.

    Raises:
        EnvironmentFailure: Too many instances had to be dropped, of all of them together.
    """
    whole = Rollout(
        [episode for part in parts for episode in part.episodes],
        {instance: reason for part in parts for instance, reason in part.dropped.items()},
        sum(part.retried for part in parts),
    )
    if too_many_dropped(len(whole.dropped), num_rows):
        raise EnvironmentFailure(next(iter(whole.dropped.values())))
    return whole


def too_many_dropped(num_dropped: int, num_rows: int) -> bool:
    """Whether so many of the instances had to be dropped that the environment itself is at fault."""
    return num_dropped > 0 and (num_rows == 1 or num_dropped > max(1, MOST_DROPPED * num_rows))


def _one_at_a_time(judge: Judge) -> Judge:
    """A user's function that never runs on two threads at once."""
    lock = threading.Lock()

    def locked(choice: Choice) -> Sequence[Mapping[str, float]]:
        with lock:
            return judge(choice)

    return locked
