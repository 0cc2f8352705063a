"""The loop of a rollout: plays many episodes at the same time, and gives each what it waits for, see `episode.py`."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

from pettingllms_envs.failures import EpisodeRestart
from pettingllms_trl.records import DataRow, Engine, EnvironmentFailure, Episode, Rollout, SamplingFailure
from pettingllms_trl.rollout import stepping
from pettingllms_trl.rollout.env_pool import EnvPool
from pettingllms_trl.rollout.episode import Continuation, Rules, Steps, WaitFor, episode
from pettingllms_trl.rollout.stepping import Candidates, EnvHandle
from pettingllms_trl.rollout.workers import Job, TimedOut, WorkerPool


RETRIES = 2
MOST_DROPPED = 0.2


def check_dropped(dropped: Mapping[int, str], num_rows: int, cause: BaseException | None = None) -> None:
    """Raise `EnvironmentFailure` if too many instances were dropped: then the environment itself must be at fault."""
    if num_rows == 1 or len(dropped) > max(1, MOST_DROPPED * num_rows):
        raise EnvironmentFailure(
            f"{len(dropped)} of {num_rows} instances were dropped because their environment or an engine failed "
            f"{1 + RETRIES} times; expected at most {MOST_DROPPED:.0%}. The last: {list(dropped.values())[-1]}. Fix "
            "it, or what it needs, and resume. If it raises on some replies (an illegal move), set crash_reward to a "
            "number below any return: such a reply is then given that reward, and ends the episode."
        ) from cause


@dataclass(slots=True, kw_only=True, eq=False)
class Task:
    """An attempt at an episode, or at a continuation of one."""

    instance: int  # the index of its row
    number: int  # of the episode within its instance
    ticket: int  # depends on the place of the attempt alone, not on the order of events
    attempt: int = 0  # how often it failed before
    parent: Task | None = None  # the attempt whose candidate is continued
    start: Continuation | None = None  # that candidate
    steps: Steps = field(init=False)  # the episode, once it has begun
    handle: EnvHandle = field(init=False)  # its environment
    has_begun: bool = field(default=False, init=False)
    wanted: Any = field(default=None, init=False)  # what it has yielded last; the record, once it is over
    new: list[Continuation] = field(default_factory=list, init=False)  # those that are to be started
    num_open: int = field(default=0, init=False)  # continuations that are not over
    num_jobs: int = field(default=0, init=False)  # jobs that are not done
    failure: EnvironmentFailure | None = field(default=None, init=False)  # of one of them
    was_slow: bool = field(default=False, init=False)  # in its latest decision
    is_replaced: bool = field(default=False, init=False)  # by another attempt

    def advance(self, answer: Any = None) -> None:
        """Run the episode until it waits for something else; on a worker where it calls the environment."""
        try:
            while isinstance(wanted := self.steps.send(answer), Continuation):
                self.new.append(wanted)
                answer = None
        except StopIteration as end:
            wanted = end.value
        self.wanted = wanted

    def step(
        self, candidates: Candidates, indices: Sequence[int], handle: EnvHandle, *, while_quick: bool = False
    ) -> None:
        """A job: step some candidates and, if these were the last, take the decision."""
        if candidates.step(indices, handle, while_quick=while_quick):
            self.was_slow = candidates.seconds >= stepping.SLOW
            self.advance(candidates.branches)


class RolloutLoop:
    """Plays the episodes of a rollout; of the rows only those with the indices `only`, as there is room for them."""

    def __init__(
        self,
        rows: Sequence[DataRow],
        only: Iterable[int],
        rules: Rules,
        env_pool: EnvPool,
        engine: Engine,
        workers: WorkerPool,
    ) -> None:
        self._max_envs = rules.options.max_envs or 0
        self._rows, self._rules = rows, rules
        self._env_pool, self._engine, self._workers = env_pool, engine, workers
        num = rules.options.num_episodes
        self._num_places = len(rows) * num  # including those that other processes play
        self._new = (Task(instance=i, number=k, ticket=i * num + k) for i in only for k in range(num))
        self._waiting_retries: deque[Task] = deque()
        self._waiting_continuations: deque[Task] = deque()  # and episodes whose continuations are over
        self._suspended: set[Task] = set()  # episodes whose continuations are not over
        self._jobs: dict[int, Task] = {}
        self._candidate_tickets = itertools.count(-1, -1)
        self._num_stepping = 0  # tasks that have jobs
        self._slow: set[str] = set()  # environments with a slow step in their latest decision
        self._ready: list[Task] = []
        self._asked: dict[int, Task] = {}
        self._finished: dict[tuple[int, int], tuple[Episode, Sequence[str]]] = {}
        self._dropped: dict[int, str] = {}
        self._num_retried = self._num_timed_out = self._num_sampled_tokens = self._num_failed = 0

    def play(self) -> Rollout:
        while self._admit():
            block = self._engine.is_batched or not (self._ready or self._asked)
            if not (self._jobs and self._collect(block=block)):
                self._ask()
        episodes, crashed = list[Episode](), list[str]()
        for (instance, _), (record, crashes) in sorted(self._finished.items(), key=itemgetter(0)):
            if instance not in self._dropped:
                episodes.append(record)
                crashed += crashes
        return Rollout(
            episodes,
            self._dropped,
            self._num_retried,
            self._num_timed_out,
            tuple(crashed),
            self._num_sampled_tokens,
            self._num_failed,
        )

    def _admit(self) -> bool:
        """Start waiting tasks while there is room for their environments. Returns whether any task is active."""
        while (active := self._num_stepping + len(self._ready) + len(self._asked)) < self._max_envs:
            # Continuations first, which are short: so each suspended episode has one that is active.
            task = self._waiting_continuations.popleft() if self._waiting_continuations else next(self._new, None)
            if task is None and not self._waiting_retries:
                break
            task = task or self._waiting_retries.popleft()
            if self._is_obsolete(task):
                if task.has_begun:
                    task.handle.release()
                continue
            if task.has_begun:
                task.handle.acquire()
            else:
                row, start, task.has_begun = self._rows[task.instance], task.start, True
                is_copied = start is not None and start.branch.copy is not None
                task.handle = EnvHandle(row, self._env_pool, self._workers.now, is_copied=is_copied)
                task.steps = episode(row, task.instance, task.number, self._rules, task.handle, start)
                task.handle.acquire(fresh=task.attempt > 0)
            self._submit(task, task.advance)
        return active > 0

    def _is_obsolete(self, task: Task) -> bool:
        """Whether its instance was dropped, or it or its parent restarted."""
        is_replaced = task.is_replaced or (task.parent is not None and task.parent.is_replaced)
        return is_replaced or task.instance in self._dropped

    def _submit(self, task: Task, job: Job, ticket: int | None = None, handle: EnvHandle | None = None) -> None:
        """Queue a job that calls a task's environment, or that of another handle."""
        ticket = task.ticket if ticket is None else ticket
        self._jobs[ticket] = task
        self._num_stepping += not task.num_jobs
        task.num_jobs += 1
        self._workers.submit(ticket, job, handle or task.handle)

    def _step(self, task: Task, candidates: Candidates) -> None:
        """Queue a job for candidates that have not been stepped, or one for each if they are slow.

        A retry is stepped sequentially, since concurrency may have caused the failure.
        """
        left = range(len(candidates.branches), len(candidates.completions))
        may_fan_out = self._workers.num_workers > 1 and task.attempt == 0 and candidates.start is not None
        is_slow = candidates.seconds >= stepping.SLOW or task.handle.reset_args.environment in self._slow
        if not (may_fan_out and (is_slow or task.handle.spares.waiting)):
            self._submit(task, partial(task.step, candidates, left, task.handle, while_quick=may_fan_out))
            return
        for k in left:
            handle = task.handle if k == left[0] else task.handle.spares.take()
            self._submit(task, partial(task.step, candidates, [k], handle), next(self._candidate_tickets), handle)

    def _collect(self, *, block: bool) -> bool:
        """Handle the jobs that are done. Returns whether there were any."""
        done = self._workers.done(block=block)
        for ticket, error in sorted(done, key=itemgetter(0)):
            if (task := self._jobs.pop(ticket, None)) is None:
                continue  # a spare environment: what that raised is raised where it is waited for
            task.num_jobs -= 1
            if isinstance(error, EnvironmentFailure):
                task.failure = error
                self._num_timed_out += isinstance(error, TimedOut)
                if isinstance(task.wanted, Candidates):  # an abandoned job could not tell them
                    task.wanted.has_failed = True
            elif error is not None:
                raise error
            if task.num_jobs:
                continue
            self._num_stepping -= 1
            if task.failure is not None:
                task.handle.release()  # unless it is what failed
                self._retry_or_drop(task, task.failure)
            else:
                name = task.handle.reset_args.environment
                (self._slow.add if task.was_slow else self._slow.discard)(name)
                self._go_on(task)
        return bool(done)

    def _go_on(self, task: Task) -> None:
        """Give a task what it waits for, or put it where that will be found."""
        if self._is_obsolete(task):
            task.handle.release()
            return
        for start in task.new:
            decision, k, m = start.place
            options = self._rules.options
            number = (decision * options.num_siblings + k) * options.num_continuations + m
            ticket = task.ticket + (1 + number) * (1 + RETRIES) * self._num_places
            self._waiting_continuations.append(replace(task, ticket=ticket, attempt=0, parent=task, start=start))
        task.num_open += len(task.new)
        task.new.clear()
        if isinstance(task.wanted, Candidates):
            self._step(task, task.wanted)
        elif task.wanted is WaitFor.ENVIRONMENT:
            self._waiting_continuations.append(task)
        elif task.wanted is WaitFor.CONTINUATIONS and task.num_open:
            self._suspended.add(task)
        elif task.wanted is WaitFor.CONTINUATIONS:
            task.advance()
            self._go_on(task)
        elif isinstance(task.wanted, Episode):
            self._finish(task, task.wanted)
        else:
            self._ready.append(task)

    def _finish(self, task: Task, record: Episode) -> None:
        """Keep the record of an episode; one whose continuations are over goes on."""
        if task.start is None or task.parent is None:
            self._finished[task.instance, task.number] = record, task.handle.crashes
            return
        task.start.results[task.start.place] = record
        task.parent.num_open -= 1
        if not task.parent.num_open and task.parent in self._suspended:
            self._suspended.remove(task.parent)
            self._go_on(task.parent)

    def _retry_or_drop(self, task: Task, failure: EnvironmentFailure) -> None:
        """Restart a task in a fresh environment, or drop its instance."""
        if self._is_obsolete(task):
            return
        # With continuations, those of the earlier attempt may still have jobs under tickets that this one would use.
        is_free = isinstance(failure.__cause__, EpisodeRestart) and not self._rules.options.num_continuations
        self._num_failed += not is_free
        if is_free or task.attempt < RETRIES:
            self._num_retried += 1
            task.is_replaced = True
            ticket = task.ticket + (0 if is_free or task.parent is not None else self._num_places)
            waiting = self._waiting_retries if task.parent is None else self._waiting_continuations
            waiting.append(replace(task, ticket=ticket, attempt=task.attempt + (not is_free)))
            return
        self._dropped[task.instance] = str(failure)
        for suspended in [other for other in self._suspended if other.instance == task.instance]:
            self._suspended.remove(suspended)
            suspended.handle.release()
        check_dropped(self._dropped, len(self._rows), failure.__cause__)

    def _ask(self) -> None:
        """Send the requests of all ready tasks to the engine, in the order of their tickets, and take its answers."""
        ready, self._ready = self._ready, []
        for task in sorted(ready, key=attrgetter("ticket")):
            if self._is_obsolete(task):
                task.handle.release()
                continue
            task.advance()  # from `Wait.ENGINE` to its request
            self._asked[task.ticket] = task
            self._engine.submit(task.ticket, task.wanted)
            may_fan_out = self._workers.num_workers > 1 and task.attempt == 0
            if may_fan_out and (task.was_slow or task.handle.reset_seconds >= stepping.SLOW):
                for spare, bring in task.handle.spares.send(task.wanted.num_candidates - 1, self._max_envs):
                    self._workers.submit(next(self._candidate_tickets), bring, spare)
        for ticket, sampled in self._engine.step() if self._asked else ():
            task = self._asked.pop(ticket)
            if isinstance(sampled, SamplingFailure):
                task.handle.release()
                self._retry_or_drop(task, EnvironmentFailure(str(sampled)))
                continue
            for completion in sampled.completions:
                self._num_sampled_tokens += len(completion.ids)
            task.advance(sampled)
            self._go_on(task)
