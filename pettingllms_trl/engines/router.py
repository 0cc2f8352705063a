"""Several engines as one: vLLM, servers, APIs and `generate` side by side, each for the agents whose policy it has.

| engine                          | answers                                                       |
|---------------------------------|---------------------------------------------------------------|
| of this process (`vllm_engine`) | while it is stepped, one forward pass a step                  |
| elsewhere (servers, APIs)       | whenever it does; looking for answers waits for nobody        |
| in waves (`generate`)           | all at once, when no other engine has a request left          |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from pettingllms_trl.engines.protocol import Engine, Request, Sampled
from pettingllms_trl.engines.remote import GLANCE, Elsewhere


class Opened(Engine, Protocol):
    """An engine that answers between the two ends of a rollout."""

    def rollout(self, name: str) -> AbstractContextManager[None]:
        """What is left when it ends is dropped.

        Args:
            name: Seeds what is sampled, where the engine has seeds of its own.
        """
        ...


class Several:
    """Sends each request to its agent's engine, and steps those that have any; see `Engine`.

    An engine that works in waves is not given a wave while others have requests in flight: whoever they answer joins
    it, where it would otherwise be small, and run again for each that comes late.

    Args:
        of_agent: The engine of each agent; agents may share one.
    """

    def __init__(self, of_agent: Mapping[str, Opened]) -> None:
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
        """See `Opened`: all of them."""
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
        num_here = sum(not isinstance(engine, Elsewhere) for engine in flowing)
        glance = 0.0 if num_here else GLANCE / max(len(flowing), 1)
        answers: list[tuple[int, Sampled]] = []
        for engine in flowing:
            answered = engine.step(glance) if isinstance(engine, Elsewhere) else engine.step()
            self._num_waiting[id(engine)] -= len(answered)
            answers.extend(answered)
        return answers
