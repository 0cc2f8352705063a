"""Engines whose work is done elsewhere: each request waits on a thread for its answer, and holds up nobody here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from pettingllms_trl.engines.protocol import Sampled


Answer = TypeVar("Answer")
GLANCE = 0.02  # seconds that `step` waits for an answer before environments are seen to again


class Elsewhere(Generic[Answer]):
    """Requests in flight, each on a thread; see `pettingllms_trl.engines.protocol.Engine`. Who inherits sends them.

    Args:
        num_threads: Requests in flight; the rest waits here.
        name: Of the threads.
    """

    in_waves = False

    def __init__(self, num_threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(num_threads, name)
        self._waiting: dict[Future[Answer], tuple[int, Callable[[Answer], Sampled]]] = {}

    def _send(self, ticket: int, work: Callable[..., Answer], *args: Any, read: Callable[[Answer], Sampled]) -> None:
        """Have `work` done on a thread; what it returns is read on the caller's."""
        self._waiting[self._threads.submit(work, *args)] = (ticket, read)

    def step(self, glance: float = GLANCE) -> Sequence[tuple[int, Sampled]]:
        """Look for a moment whether answers have come: see `Engine`. Raises what a request raised.

        Args:
            glance: Seconds to wait for the first of them.
        """
        done, _ = wait(self._waiting, timeout=glance, return_when=FIRST_COMPLETED)
        answers = []
        for future in [future for future in self._waiting if future in done]:
            ticket, read = self._waiting.pop(future)
            answers.append((ticket, read(future.result())))
        return answers

    @contextmanager
    def rollout(self, name: str) -> Iterator[None]:
        """Requests are answered between these two ends only: what is left when it ends is waited for, and dropped."""
        try:
            yield
        finally:
            for future in self._waiting:
                future.cancel()
            wait(self._waiting)
            self._waiting.clear()
