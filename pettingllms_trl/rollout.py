"""Plays many environments at once, as trees or in parallel, and returns episodes. Needs no torch.

`play` asks for tokens through an `Engine`, and knows neither models nor policies. No instance waits for another: as
soon as one's tokens are there it is stepped (on a thread, beside the engine), and as soon as it knows what to ask next
the engine is asked. Only an engine that works in waves is given all instances' requests together.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Literal

from pettingzoo import AECEnv

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
) -> Rollout:
    """Play every row: one tree each, or `num_candidates` independent episodes each.

    An environment that raises is thrown away, and its instance played anew on a fresh one, twice at most; then the
    instance is dropped with all its episodes, never scored.

    Args:
        rows: Instances. `row["seed"]` seeds the environment, the other fields are its reset options.
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
        max_envs: Bound on the environments in play at once.
        max_turns: An episode ends when an agent would decide more often.
        num_threads: Environments are stepped on so many threads beside the engine. 0: on the caller's, in a fixed
            order, so that an engine which samples by one stream of random numbers repeats itself.

    Raises:
        TypeError: An agent is shown something that is not text.
        ValueError: The environment gave a reward that is not a finite number.
        EnvironmentFailure: More than a fifth of the instances had to be dropped.
    """
    num_episodes, width = (1, num_candidates) if sampling == "tree" else (num_candidates, 1)
    with _Crew(num_threads) as crew:
        table = _Table(
            rows,
            [(i, e) for i in range(len(rows)) for e in range(num_episodes)],
            make_env=make_env,
            idle=[] if pool is None else pool,
            engine=engine,
            crew=crew,
            judge=_one_at_a_time(judge) if judge is not None and num_threads else judge,
            width=width,
            num_continuations=num_continuations,
            seed=seed,
            default_env_seed=default_env_seed,
            max_envs=max_envs,
            max_turns=max_turns,
        )
        return table.play()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Seat:
    """A run with its place in line."""

    run: Run
    ticket: int
    attempt: int = 0


class _Table:
    """All that is in play: who waits to begin, whose environment is being stepped, who waits for tokens."""

    def __init__(
        self,
        rows: Sequence[Row],
        places: Sequence[tuple[int, int]],
        *,
        make_env: MakeEnv,
        idle: list[AECEnv],
        engine: Engine,
        crew: _Crew,
        judge: Judge | None,
        width: int,
        num_continuations: int,
        seed: str,
        default_env_seed: int,
        max_envs: int | None,
        max_turns: int | None,
    ) -> None:
        self._rows, self._places = rows, places
        self._make_env, self._idle = make_env, idle
        self._engine, self._crew = engine, crew
        self._judge, self._width, self._num_continuations = judge, width, num_continuations
        self._seed, self._default_env_seed = seed, default_env_seed
        self._limit = len(places) if max_envs is None else max_envs
        self._max_turns = max_turns
        self._tickets = itertools.count()
        self._to_begin: deque[tuple[int, int, int]] = deque((*place, 0) for place in places)
        self._to_continue: deque[Run] = deque()
        self._jobs: dict[Future[bool], _Seat] = {}
        self._ready: list[_Seat] = []
        self._asked: dict[int, _Seat] = {}
        self._born: dict[int, list[Run]] = {}
        self._ended: dict[tuple[int, int], Run] = {}
        self._dropped: dict[int, str] = {}
        self._retried = 0

    def play(self) -> Rollout:
        """Until nobody is left."""
        in_waves = self._engine.in_waves
        while self._open() or self._num_seated:
            if self._jobs:
                self._collect(block=in_waves or not (self._asked or self._ready))
            if in_waves and (self._jobs or self._room):
                continue
            self._ask()
            if self._asked:
                for ticket, sampled in self._engine.step():
                    self._begin_job(self._asked.pop(ticket), self._decide, sampled)
        episodes = [
            self._ended[place].finish(self._num_continuations)
            for place in self._places
            if place[0] not in self._dropped
        ]
        return Rollout(episodes, self._dropped, self._retried)

    def _open(self) -> bool:
        """Seat those who wait to begin while there is room. Whether anybody was."""
        seated = False
        while self._room:
            seated = True
            if self._to_continue:
                run = self._to_continue.popleft()
                if run.instance not in self._dropped:
                    self._begin_job(_Seat(run=run, ticket=next(self._tickets)), self._take_up, self._take_env())
                continue
            instance, episode, attempt = self._to_begin.popleft()
            if instance in self._dropped:
                continue
            env = self._make_env() if attempt else self._take_env()
            run = Run(env, instance, episode, row=self._rows[instance], seed=self._seed)
            self._begin_job(_Seat(run=run, ticket=next(self._tickets), attempt=attempt), self._start)
        return seated

    @property
    def _room(self) -> bool:
        """Whether somebody waits to begin and may."""
        return bool(self._to_begin or self._to_continue) and self._num_seated < self._limit

    @property
    def _num_seated(self) -> int:
        return len(self._jobs) + len(self._ready) + len(self._asked)

    def _take_env(self) -> AECEnv:
        return self._idle.pop() if self._idle else self._make_env()

    # ---- Jobs, on the crew's threads; each returns whether the run now waits for an agent ----

    def _start(self, seat: _Seat) -> bool:
        seat.run.start(self._default_env_seed)
        return seat.run.await_agent(self._max_turns)

    def _take_up(self, seat: _Seat, env: AECEnv) -> bool:
        seat.run.take_up(env, self._default_env_seed)
        return seat.run.await_agent(self._max_turns)

    def _decide(self, seat: _Seat, sampled: Sampled) -> bool:
        number = self._num_continuations if seat.run.parent is None else 0
        self._born[seat.ticket] = seat.run.decide(sampled, self._judge, number)
        return seat.run.await_agent(self._max_turns)

    def _begin_job(self, seat: _Seat, work: Callable[..., bool], *args: Any) -> None:
        self._jobs[self._crew.submit(work, seat, *args)] = seat

    def _collect(self, *, block: bool) -> None:
        """See to the jobs that are done."""
        done, _ = wait(self._jobs, timeout=None if block else 0, return_when=FIRST_COMPLETED)
        for job in sorted(done, key=lambda job: self._jobs[job].ticket):
            seat = self._jobs.pop(job)
            try:
                waits = job.result()
            except EnvironmentFailure as failure:
                self._failed(seat, failure)
                continue
            self._to_continue.extend(self._born.pop(seat.ticket, ()))
            if seat.run.instance in self._dropped:
                self._idle.append(seat.run.env)
            elif waits:
                self._ready.append(seat)
            else:
                self._over(seat.run)

    def _over(self, run: Run) -> None:
        self._idle.append(run.env)
        if run.parent is None:
            self._ended[run.instance, run.episode] = run
        else:
            parent = run.parent
            parent.run.continued(parent.decision, parent.candidate, run.worth(parent.agent))

    def _failed(self, seat: _Seat, failure: EnvironmentFailure) -> None:
        """Begin the instance anew on a fresh environment, or drop it; the one that failed is not used again."""
        run = seat.run
        if run.instance in self._dropped:
            return
        if run.parent is not None or seat.attempt >= RETRIES:
            self._dropped[run.instance] = str(failure)
            if len(self._dropped) > max(1, MOST_DROPPED * len(self._rows)) or len(self._rows) == 1:
                raise failure
            return
        self._retried += 1
        self._to_begin.append((run.instance, run.episode, seat.attempt + 1))

    def _ask(self) -> None:
        """Hand the engine what is ready, in the order in which the runs took their seats."""
        for seat in sorted(self._ready, key=lambda seat: seat.ticket):
            if seat.run.instance in self._dropped:
                self._idle.append(seat.run.env)
                continue
            width = self._width if seat.run.parent is None else 1
            self._asked[seat.ticket] = seat
            self._engine.submit(seat.ticket, Request(seat.run.agent, seat.run.prompt, width))
        self._ready.clear()


class _Crew:
    """Does jobs on threads, or at once on the caller's thread where there are none."""

    def __init__(self, num_threads: int) -> None:
        self._threads = ThreadPoolExecutor(num_threads, "environments") if num_threads else None

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def submit(self, work: Callable[..., bool], *args: Any) -> Future[bool]:
        """Begin a job; what it raises is raised when its result is asked for."""
        if self._threads is not None:
            return self._threads.submit(work, *args)
        job: Future[bool] = Future()
        try:
            job.set_result(work(*args))
        except Exception as error:  # noqa: BLE001  # as a thread would
            job.set_exception(error)
        return job


def _one_at_a_time(judge: Judge) -> Judge:
    """A user's function that never runs on two threads at once."""
    lock = threading.Lock()

    def locked(choice: Choice) -> Sequence[Mapping[str, float]]:
        with lock:
            return judge(choice)

    return locked
