"""What a rollout asks of whatever samples tokens: requests go in with tickets, answers come out as they are ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from pettingllms_trl.records import Completion, Message


@dataclass(frozen=True, slots=True)
class Request:
    """`num_candidates` completions are wanted of the policy of `agent`, after `prompt`.

    `prompt_ids` are its token ids where they are known, because it goes on from tokens that were sampled: they are
    taken as they are. Where there are none, the prompt is written in the policy's chat template.
    """

    agent: str
    prompt: Sequence[Message]
    num_candidates: int
    prompt_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampled:
    """The answer to a request: the prompt's ids as the model got them, and the completions."""

    prompt_ids: tuple[int, ...]
    completions: tuple[Completion, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """What an engine thinks of a text, at temperature 1, whatever it samples at.

    Args:
        place: Which replica of the engine: its url, or "this process".
        weights: What the engine calls the weights that it used.
        logprobs: Log-probability of each token but the first, given those before it.
    """

    place: str
    weights: str
    logprobs: tuple[float, ...]


Sample = Callable[[Sequence[Request]], Sequence[Sampled]]
"""Completions for a batch of requests, in their order."""


class Engine(Protocol):
    """Samples for many episodes at once.

    A ticket names an episode of the rollout: its requests come one after the other under the same number, the next
    when the last is answered. It follows from the episode's place alone, and may seed what is sampled for it.
    """

    @property
    def in_waves(self) -> bool:
        """Whether the next `step` answers all that the engine was given in one go, so that it pays to wait for every
        instance first."""
        ...

    def submit(self, ticket: int, request: Request) -> None:
        """Take a request; nothing is sampled yet."""
        ...

    def step(self) -> Sequence[tuple[int, Sampled]]:
        """Work a while on the requests taken. Returns those now answered, perhaps none."""
        ...


class Waves:
    """An engine that answers all requests together by one call of a function: plain `generate`, or a test's fake."""

    in_waves = True

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._waiting: list[tuple[int, Request]] = []

    def rollout(self, name: str) -> AbstractContextManager[None]:
        """Between its ends requests are answered; here, nothing is left when it ends but after an error."""
        self._waiting = []
        return nullcontext()

    def submit(self, ticket: int, request: Request) -> None:
        """See `Engine`."""
        self._waiting.append((ticket, request))

    def step(self) -> Sequence[tuple[int, Sampled]]:
        """Sample for all requests, in the order in which they came."""
        wave, self._waiting = self._waiting, []
        answers = self._sample([request for _, request in wave])
        return [(ticket, sampled) for (ticket, _), sampled in zip(wave, answers, strict=True)]
