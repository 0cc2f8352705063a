"""`EngineRouter`, several engines as one: vLLM, servers, APIs and `generate`, each for the agents of its policies.

| engine                          | answers                                                       |
|---------------------------------|---------------------------------------------------------------|
| of this process (`vllm_colocated`) | while it is stepped, one forward pass a step                  |
| elsewhere (servers, APIs)       | whenever it does; looking for answers waits for nobody        |
| in waves (`generate`)           | all at once, when no other engine has a request left          |

`RemoteEngine` is the base of those that work elsewhere: one thread per request in flight, and looking for answers
never blocks the rollout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Generic, Protocol, TypeVar

from pettingllms_trl.records import Engine, Request, Sampled


Answer = TypeVar("Answer")
GLANCE = 0.02  # seconds that `step` waits for an answer before environments are seen to again


class RemoteEngine(Generic[Answer]):
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


class RolloutEngine(Engine, Protocol):
    """An engine that answers between the two ends of a rollout."""

    def rollout(self, name: str) -> AbstractContextManager[None]:
        """What is left when it ends is dropped.

        Args:
            name: Seeds what is sampled, where the engine has seeds of its own.
        """
        ...


class EngineRouter:
    """Sends each request to its agent's engine, and steps those that have any; see `Engine`.

    An engine that works in waves is not given a wave while others have requests in flight: whoever they answer joins
    it, where it would otherwise be small, and run again for each that comes late.

    Args:
        of_agent: The engine of each agent; agents may share one.
    """

    def __init__(self, of_agent: Mapping[str, RolloutEngine]) -> None:
        self._of_agent = of_agent
        self._engines = list({id(engine): engine for engine in of_agent.values()}.values())
        self._num_waiting: Counter[int] = Counter()

    @property
    def in_waves(self) -> bool:
        """Whether the next step is a wave: see `Engine`."""
        busy = [engine for engine in self._engines if self._num_waiting[id(engine)]]
        return all(engine.in_waves for engine in busy) and any(engine.in_waves for engine in self._engines)

    @contextmanager
    def rollout(self, name: str) -> Iterator[None]:
        """See `RolloutEngine`: all of them."""
        self._num_waiting.clear()
        with ExitStack() as stack:
            for engine in self._engines:
                stack.enter_context(engine.rollout(name))
            yield

    def submit(self, ticket: int, request: Request) -> None:
        """See `Engine`."""
        engine = self._of_agent[request.agent]
        engine.submit(ticket, request)
        self._num_waiting[id(engine)] += 1

    def step(self) -> Sequence[tuple[int, Sampled]]:
        """Step every engine that has requests, none of which waits for another: see `Engine`."""
        busy = [engine for engine in self._engines if self._num_waiting[id(engine)]]
        flowing = [engine for engine in busy if not engine.in_waves] or busy[:1]  # a wave at a time
        # Whoever waits elsewhere holds up those who work here; where nobody does, they share the moment.
        num_here = sum(not isinstance(engine, RemoteEngine) for engine in flowing)
        glance = 0.0 if num_here else GLANCE / max(len(flowing), 1)
        answers: list[tuple[int, Sampled]] = []
        for engine in flowing:
            answered = engine.step(glance) if isinstance(engine, RemoteEngine) else engine.step()
            self._num_waiting[id(engine)] -= len(answered)
            answers.extend(answered)
        return answers
