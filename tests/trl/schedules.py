"""Engines and crews whose order of answers a test decides, and what they write: a function of ticket and prompt."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from pettingllms_trl.records import Completion, Request, Sampled
from pettingllms_trl.rollout.workers import Done, Job


Write = Callable[[int, Request, int], str]
"""The text of the k-th candidate of a ticket's request."""


def answer(ticket: int, request: Request, write: Write) -> Sampled:
    texts = [write(ticket, request, k) for k in range(request.num_candidates)]
    completions = tuple(Completion(ids=tuple(text.encode()) or (0,), text=text) for text in texts)
    return Sampled(replace(request.prompt, ids=(1, 2)), completions)


def babble(ticket: int, request: Request, k: int) -> str:
    """Letters for third-party environments: half of them, by chance, count."""
    return "".join(_rng(ticket, request, k).choices("AZ", k=8))


def wander(ticket: int, request: Request, k: int) -> str:
    """Moves on a grid, and now and then something unreadable."""
    rng = _rng(ticket, request, k)
    return "I do not know" if rng.random() < 0.1 else "Moves: " + " ".join(rng.choices("UDLR", k=rng.randint(1, 3)))


def _rng(ticket: int, request: Request, k: int) -> random.Random:
    return random.Random(hashlib.sha256(f"{ticket}/{request.agent}/{request.prompt.messages}/{k}".encode()).digest())


class Patient:
    """Each ticket's requests take as many steps as `delay` says; `asked` lists what was submitted before each step."""

    is_batched, is_remote = False, False

    def __init__(self, write: Write, delay: Callable[[int], int] = lambda ticket: 1) -> None:
        self.asked: list[list[str]] = []
        self._write, self._delay = write, delay
        self._new: list[str] = []
        self._open: dict[int, tuple[int, Request]] = {}

    def submit(self, ticket: int, request: Request) -> None:
        assert ticket not in self._open, f"ticket {ticket} asks while it waits"
        self._open[ticket] = self._delay(ticket), request
        self._new.append(f"{ticket} {request.agent[0]}")

    def step(self, timeout: float = 0.0) -> Sequence[tuple[int, Sampled]]:
        self.asked.append(self._new)
        self._new = []
        self._open = {ticket: (left - 1, request) for ticket, (left, request) in self._open.items()}
        done = [ticket for ticket, (left, _) in self._open.items() if left <= 0]
        return [(ticket, answer(ticket, self._open.pop(ticket)[1], self._write)) for ticket in done]


class Whimsical:
    """Answers at each step whomever it likes, in any order, perhaps nobody."""

    is_batched, is_remote = False, False

    def __init__(self, write: Write, rng: random.Random) -> None:
        self._write, self._rng = write, rng
        self._open: dict[int, Request] = {}

    def submit(self, ticket: int, request: Request) -> None:
        assert ticket not in self._open, f"ticket {ticket} asks while it waits"
        self._open[ticket] = request

    def step(self, timeout: float = 0.0) -> Sequence[tuple[int, Sampled]]:
        tickets = self._rng.sample(sorted(self._open), self._rng.randint(0, len(self._open)))
        return [(ticket, answer(ticket, self._open.pop(ticket), self._write)) for ticket in tickets]


class Tidal:
    """Answers all at once; `waves` lists who was in each."""

    is_batched, is_remote = True, False

    def __init__(self, write: Write) -> None:
        self.waves: list[list[str]] = []
        self._write = write
        self._open: list[tuple[int, Request]] = []

    def submit(self, ticket: int, request: Request) -> None:
        self._open.append((ticket, request))

    def step(self, timeout: float = 0.0) -> Sequence[tuple[int, Sampled]]:
        wave, self._open = self._open, []
        self.waves.append([f"{ticket} {request.agent[0]}" for ticket, request in wave])
        return [(ticket, answer(ticket, request, self._write)) for ticket, request in wave]


class Dawdlers:
    """A pool that does its jobs in any order, and no more of them than it likes before it is waited for."""

    def __init__(self, rng: random.Random, num_workers: int = 1) -> None:
        self.num_workers = num_workers
        self._rng = rng
        self._jobs: list[tuple[int, Job]] = []

    def now(self) -> float:
        return time.monotonic()

    def submit(self, ticket: int, job: Job, handle: object) -> None:
        assert ticket not in dict(self._jobs), f"ticket {ticket} has two jobs"
        self._jobs.append((ticket, job))

    def done(self, *, block: bool) -> Sequence[Done]:
        assert self._jobs or not block, "waited for nothing"
        number = self._rng.randint(int(block), len(self._jobs))
        chosen = self._rng.sample(self._jobs, number)
        self._jobs = [job for job in self._jobs if job not in chosen]
        return [(ticket, _error_of(job)) for ticket, job in chosen]

    def close(self) -> None:
        self._jobs.clear()


class Holding:
    """A pool that does its jobs at once, but a certain ticket's, from the second on, only when no other is left."""

    num_workers = 1

    def __init__(self, ticket: int) -> None:
        self._ticket = ticket
        self._jobs: list[tuple[int, Job]] = []
        self._begun = False

    def now(self) -> float:
        return time.monotonic()

    def submit(self, ticket: int, job: Job, handle: object) -> None:
        self._jobs.append((ticket, job))

    def done(self, *, block: bool) -> Sequence[Done]:
        chosen = [done for done in self._jobs if done[0] != self._ticket or not self._begun]
        chosen = chosen or (self._jobs if block else [])
        self._begun |= self._ticket in dict(chosen)
        self._jobs = [job for job in self._jobs if job not in chosen]
        return [(ticket, _error_of(job)) for ticket, job in chosen]

    def close(self) -> None:
        self._jobs.clear()


def _error_of(job: Job) -> Exception | None:
    try:
        job()
    except Exception as error:  # noqa: BLE001  # as a thread does
        return error
    return None
