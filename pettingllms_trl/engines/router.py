"""`EngineRouter`, several engines as one: vLLM, servers, APIs and `generate`, each for the agents of its policies.

| engine                              | answers                                                    |
|-------------------------------------|------------------------------------------------------------|
| of this process (`ColocatedVllm`)   | while it is stepped, one forward pass a step               |
| remote (servers, APIs)              | whenever it does; looking for answers waits for nobody     |
| batched (`generate`)                | all at once, when no other engine has a request left       |

`RequestThreads` is what remote engines are made of: one thread per request in flight, so nothing blocks the rollout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Generic, TypeVar

from pettingllms_trl.records import POLL_SECONDS, Answer, Engine, Request, Sampled, SamplingFailure


Told = TypeVar("Told")


class RequestThreads(Generic[Told]):
    """The requests of a remote engine, each on a thread; those above `num_threads` wait here."""

    def __init__(self, num_threads: int, name: str) -> None:
        self.executor = ThreadPoolExecutor(num_threads, name)
        self._waiting: dict[Future[Told], tuple[int, Callable[[Told], Sampled]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, ticket: int, work: Callable[..., Told], *args: Any, read: Callable[[Told], Sampled]) -> None:
        """Have `work` done on a thread; what it returns is read on the caller's."""
        self._waiting[self.executor.submit(work, *args)] = (ticket, read)

    def answered(self, timeout: float) -> Sequence[tuple[int, Answer]]:
        """Answers that have arrived; waits at most `timeout` seconds for the first. Raises what a request raised."""
        done, _ = wait(self._waiting, timeout=timeout, return_when=FIRST_COMPLETED)
        answers = list[tuple[int, Answer]]()
        for future in [future for future in self._waiting if future in done]:
            ticket, read = self._waiting.pop(future)
            try:
                answers.append((ticket, read(future.result())))
            except SamplingFailure as failure:
                answers.append((ticket, failure))
        return answers

    @contextmanager
    def rollout(self) -> Iterator[None]:
        """Requests are answered within only: what is left at the end is waited for, and dropped."""
        try:
            yield
        finally:
            for future in self._waiting:
                future.cancel()
            wait(self._waiting)
            self._waiting.clear()


class EngineRouter:
    """Sends each request to its agent's engine, and steps those that have any; see `Engine`.

    A batched engine is not stepped while others have requests in flight: whoever they answer joins its batch, which
    would otherwise be small, and run again for each that comes late.
    """

    is_remote = False

    def __init__(self, of_agent: Mapping[str, Engine]) -> None:
        self._of_agent = of_agent
        self._engines = list({id(engine): engine for engine in of_agent.values()}.values())
        self._num_waiting: Counter[int] = Counter()
        self._agents: dict[int, str] = {}  # of requests that are not answered
        self.versions: Mapping[str, int] = {}
        """Of the weights of each agent's policy: answers say which sampled them."""

    @property
    def is_batched(self) -> bool:
        """Whether the next step answers a batch: see `Engine`."""
        busy = [engine for engine in self._engines if self._num_waiting[id(engine)]]
        return all(engine.is_batched for engine in busy) and any(engine.is_batched for engine in self._engines)

    @contextmanager
    def rollout(self, name: str) -> Iterator[None]:
        self._num_waiting.clear()
        self._agents.clear()
        with ExitStack() as stack:
            for engine in self._engines:
                stack.enter_context(engine.rollout(name))
            yield

    def submit(self, ticket: int, request: Request) -> None:
        engine = self._of_agent[request.agent]
        self._agents[ticket] = request.agent
        engine.submit(ticket, request)
        self._num_waiting[id(engine)] += 1

    def step(self, timeout: float = POLL_SECONDS) -> Sequence[tuple[int, Answer]]:
        """Step every engine that has requests, none of which waits for another: see `Engine`."""
        busy = [engine for engine in self._engines if self._num_waiting[id(engine)]]
        stepped = [engine for engine in busy if not engine.is_batched] or busy[:1]  # a batch at a time
        # Waiting for a remote engine holds up those of this process; where there are none, the remote ones share it.
        are_remote = all(engine.is_remote for engine in stepped)
        share = timeout / max(len(stepped), 1) if are_remote else 0.0
        answers: list[tuple[int, Answer]] = []
        for engine in stepped:
            answered = engine.step(share)
            self._num_waiting[id(engine)] -= len(answered)
            for ticket, answer in answered:
                version = self.versions.get(self._agents.pop(ticket))
                if version is not None and isinstance(answer, Sampled):
                    answer = replace(answer, policy_version=version)
                answers.append((ticket, answer))
        return answers
