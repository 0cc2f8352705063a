"""Plays many environments at once, as trees or in parallel, and returns episodes. Needs no torch.

`play` asks for tokens through an `Engine`, and knows neither models nor policies. No instance waits for another: as
soon as one's tokens are there it is stepped (on a thread, beside the engine), and as soon as it knows what to ask next
the engine is asked. Only an engine that works in waves is given all instances' requests together.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import Literal

from pettingzoo import AECEnv

from pettingllms_trl.branches import Weigh
from pettingllms_trl.conversation import Follow, Memory
from pettingllms_trl.crashes import Crashes
from pettingllms_trl.crew import GLANCE, Caller, Crew, Done, Threads, num_left_alone
from pettingllms_trl.engine import Engine, Sampled
from pettingllms_trl.records import Episode
from pettingllms_trl.run import EnvironmentFailure, Judge, Run
from pettingllms_trl.stock import MakeEnv, Row, Stock


RETRIES = 2
MOST_DROPPED = 0.2
MOST_LEFT_ALONE = 32
"""Threads whose environments never came back, in this process; each keeps its environment and its stack in memory."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """What playing the rows gave.

    Args:
        episodes: In the order of rows, then of episodes; none of an instance that was dropped.
        dropped: Why an instance was dropped, by its index: its environment failed again and again.
        retried: How often an instance was begun anew on a fresh environment, because one had failed.
        timed_out: How often an environment took longer than it may, and was left alone on its thread.
        crashed: For each reply in the episodes that crashed its environment and was charged for it, what was raised.
        num_sampled_tokens: In all completions, also of continuations and of what was begun anew or dropped.
    """

    episodes: list[Episode]
    dropped: Mapping[int, str] = field(default_factory=dict)
    retried: int = 0
    timed_out: int = 0
    crashed: Sequence[str] = ()
    num_sampled_tokens: int = 0


def play(
    rows: Sequence[Row],
    *,
    only: Collection[int] | None = None,
    make_env: MakeEnv | Mapping[str, MakeEnv],
    pool: list[AECEnv] | Mapping[str, list[AECEnv]] | None = None,
    engine: Engine,
    judge: Judge | None = None,
    weigh: Weigh | None = None,
    sampling: Literal["tree", "parallel"],
    num_candidates: int,
    num_continuations: int = 0,
    seed: str,
    default_env_seed: int = 0,
    max_envs: int | None = None,
    max_turns: int | None = None,
    num_threads: int = 0,
    env_timeout: float | None = None,
    crash_reward: float | None = None,
    follow: Mapping[str, Follow | None] | None = None,
    crew: Crew | None = None,
    partners: Collection[str] = (),
) -> Rollout:
    """Play every row: one tree each, or `num_candidates` independent episodes each.

    An environment that raises is thrown away, and its instance played anew on a fresh one, twice at most; then the
    instance is dropped with all its episodes, never scored.

    Args:
        rows: Instances. `row["seed"]` seeds the environment, the other fields are its reset options.
        only: Indices of the rows that are played here, where others play the rest. What follows from a row's place,
            in tickets, ties and records, is as if all were. `None`: all.
        make_env: Called as many times as environments are in play at once; they are reset and used again. Or such a
            function for each name that rows have in their field `environment`.
        pool: Environments made before, used first; all that were in play are left in it. Of several kinds, a pool by
            name for each.
        engine: Samples the completions.
        judge: Rewards beside the environment's, added before the best candidate is chosen. With `num_threads` it is
            called on several threads at once.
        weigh: What every agent is paid for a step, the judge's rewards included, before the best candidate is chosen.
        sampling: `"tree"`: K candidates for each decision, the best is played on, ties broken by chance.
            `"parallel"`: K episodes of each row, one candidate for each decision.
        num_candidates: K.
        num_continuations: How often each candidate's branch is played to its end, for `Candidate.continuations`.
        seed: Names the rollout. Ties are broken by it and the decision's place alone, whatever else is in play.
        default_env_seed: Seeds the environment where a row has no seed.
        max_envs: Bound on the environments in play at once, and so on those left in a pool. `None`: all episodes; with
            continuations K times as many, so that the engine has as much to do with them as with candidates.
        max_turns: An episode ends when an agent would decide more often.
        num_threads: Environments are stepped on so many threads beside the engine. 0: on the caller's, in a fixed
            order, so that an engine which samples by one stream of random numbers repeats itself. Threads are for
            environments that wait (a sandbox, a server): one that computes in Python holds the interpreter's lock
            meanwhile, and with it the engine's loop.
        env_timeout: Seconds that one call of an environment may take, on threads; then it has failed. Its thread
            cannot be ended: it is left alone, and another takes its place. Neither `make_env` nor `judge` has a limit.
        crash_reward: What an agent gets for a reply that crashes its environment again and again, see `crashes.py`.
            `None`: such a crash is a failure of the environment like any other.
        follow: How conversations go on in tokens, for each agent that remembers its own, see `conversation.py`.
        crew: Steps the environments in place of those threads, and is closed at the end; for a clock of its own.
        partners: Agents who do not learn. Candidates are compared so that their policy learns from it; a partner
            answers once, as it would when it is evaluated, instead of having the best of K picked for it.

    Raises:
        TypeError: An agent is shown something that is not text.
        ValueError: The environment gave a reward that is not a finite number, or one that `weigh` refuses.
        EnvironmentFailure: More than a fifth of the instances had to be dropped, and more than one or the only one; or
            more than 32 environments of this process have not come back.
    """
    if env_timeout is not None and not num_threads:
        raise ValueError(
            f"env_timeout={env_timeout} with num_threads=0, expected threads: without them nobody is there to look at "
            "the clock while an environment is at work. Set num_threads, or leave env_timeout out."
        )
    num_episodes, width = (1, num_candidates) if sampling == "tree" else (num_candidates, 1)
    places = [(i, e) for i in range(len(rows)) for e in range(num_episodes)]
    own = range(len(rows)) if only is None else only
    crew = crew or (Threads(num_threads, env_timeout) if num_threads else Caller())
    stock = Stock(make_env, pool, default_seed=default_env_seed)
    with closing(crew):
        table = _Table(
            rows,
            places,
            only=own,
            stock=stock,
            engine=engine,
            crew=crew,
            judge=judge,
            weigh=weigh,
            width=width,
            num_continuations=num_continuations,
            seed=seed,
            max_envs=max_envs or sum(i in own for i, _ in places) * (width if num_continuations else 1),
            max_turns=max_turns,
            env_timeout=env_timeout,
            crashes=None if crash_reward is None else Crashes(partial(stock.take, fresh=True), crash_reward),
            memory=Memory(follow or {}),
            partners=partners,
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
        stock: Stock,
        engine: Engine,
        crew: Crew,
        judge: Judge | None,
        weigh: Weigh | None,
        width: int,
        num_continuations: int,
        seed: str,
        max_envs: int,
        max_turns: int | None,
        env_timeout: float | None,
        crashes: Crashes | None,
        memory: Memory,
        partners: Collection[str],
    ) -> None:
        self._num_rows, self._places, self._only = len(rows), places, only
        self._stock = stock
        self._engine, self._crew = engine, crew
        self._judge, self._weigh = judge, weigh
        self._width, self._num_continuations = width, num_continuations
        self._max_envs, self._max_turns, self._env_timeout = max_envs, max_turns, env_timeout
        self._partners = partners
        self._to_begin = deque(
            _Seat(run=Run(rows[instance], instance, episode, seed=seed, memory=memory, crashes=crashes), ticket=ticket)
            for ticket, (instance, episode) in enumerate(places)
            if instance in only
        )
        self._to_continue: deque[_Seat] = deque()
        self._at_work: dict[int, _Seat] = {}
        self._ready: list[_Seat] = []
        self._asked: dict[int, _Seat] = {}
        self._ended: dict[tuple[int, int], Run] = {}
        self._dropped: dict[int, str] = {}
        self._retried = self._timed_out = self._num_sampled_tokens = 0

    def play(self) -> Rollout:
        """Until nobody is left."""
        while self._open():
            if self._at_work and self._collect(block=self._engine.in_waves or not (self._ready or self._asked)):
                continue
            self._ask()
            if self._asked:
                for ticket, sampled in self._engine.step():
                    self._answered(self._asked.pop(ticket), sampled)
        own = [place for place in self._places if place[0] in self._only and place[0] not in self._dropped]
        ended = [self._ended[place] for place in own]
        return Rollout(
            [run.finish() for run in ended],
            self._dropped,
            self._retried,
            self._timed_out,
            tuple(crash for run in ended for crash in run.crashed),
            self._num_sampled_tokens,
        )

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
            self._work(seat, partial(seat.run.begin, env, setup))
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
        done = self._done(block=block)
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

    def _done(self, *, block: bool) -> Sequence[Done]:
        """Jobs that are done; if `block`, at least one. One that takes too long has failed."""
        while True:
            done = [*self._crew.done(block=block), *self._late()]
            if done or not block:
                return done

    def _late(self) -> Iterator[Done]:
        """Leave those alone whose environment takes longer than it may."""
        if self._env_timeout is None:
            return
        until = time.monotonic() - self._env_timeout
        began = {ticket: seat.run.calling_since for ticket, seat in self._at_work.items()}
        late = {ticket: since for ticket, since in began.items() if since is not None and since < until}
        if late:  # perhaps it was kept waiting by whoever held the interpreter's lock, or all of us were
            time.sleep(GLANCE)
        for ticket, since in late.items():
            seat = self._at_work[ticket]
            run = seat.run
            if run.calling_since != since or not self._crew.leave_alone(ticket):
                continue
            run.left_alone = True
            self._timed_out += 1
            where = f"at the instance {dict(run.row)}, {run.agent or 'before the first agent'}"
            failure = EnvironmentFailure(f"TimeoutError {where}: it took longer than {self._env_timeout:g} s")
            if num_left_alone() > MOST_LEFT_ALONE:
                raise EnvironmentFailure(
                    f"{num_left_alone()} environments have not come back, expected at most {MOST_LEFT_ALONE}: they "
                    "stay on threads, which cannot be ended. Mend the environment, have it wait in a process that it "
                    f"can kill, or raise env_timeout. The last: {failure}"
                )
            yield ticket, failure

    def _leave(self, run: Run) -> None:
        if not run.brings_env:
            self._stock.give_back(run.environment, run.env)

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
        check_dropped(self._dropped, self._num_rows, failure.__cause__)

    # ---- Waiting for tokens ----

    def _ask(self) -> None:
        """Ask the engine for what is wanted, in the order of tickets."""
        for seat in sorted(self._ready, key=attrgetter("ticket")):
            run = seat.run
            if self._given_up(run):
                self._leave(run)
                continue
            self._asked[seat.ticket] = seat
            width = self._width if run.parent is None and run.agent not in self._partners else 1
            self._engine.submit(seat.ticket, run.request(width))
        self._ready.clear()

    def _answered(self, seat: _Seat, sampled: Sampled) -> None:
        run = seat.run
        self._num_sampled_tokens += sum(len(completion.ids) for completion in sampled.completions)
        if self._given_up(run):
            self._leave(run)
            return
        number = self._num_continuations if run.parent is None and run.agent not in self._partners else 0
        self._work(seat, partial(run.decide, sampled, self._judge, number, self._weigh))


def merge(parts: Sequence[Rollout], *, num_rows: int) -> Rollout:
    """What several processes have played of the same rows, each its own share of them, in the order of the shares.

    Raises:
        EnvironmentFailure: Too many instances had to be dropped, of all of them together.
    """
    whole = Rollout(
        [episode for part in parts for episode in part.episodes],
        {instance: reason for part in parts for instance, reason in part.dropped.items()},
        sum(part.retried for part in parts),
        sum(part.timed_out for part in parts),
        tuple(crash for part in parts for crash in part.crashed),
        sum(part.num_sampled_tokens for part in parts),
    )
    check_dropped(whole.dropped, num_rows)
    return whole


def check_dropped(dropped: Mapping[int, str], num_rows: int, cause: BaseException | None = None) -> None:
    """Refuse to go on where so many of the instances had to be dropped that the environment itself is at fault.

    Raises:
        EnvironmentFailure: Caused by `cause`.
    """
    if dropped and (num_rows == 1 or len(dropped) > max(1, MOST_DROPPED * num_rows)):
        raise EnvironmentFailure(
            f"{len(dropped)} of {num_rows} instances were dropped, for their environment failed {1 + RETRIES} times; "
            f"expected at most {MOST_DROPPED:.0%}. The last: {list(dropped.values())[-1]}. Mend the environment, or "
            "what it needs, and resume."
        ) from cause
