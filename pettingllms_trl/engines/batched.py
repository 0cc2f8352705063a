"""An engine that answers in batches, and the limits of a completion that all engines share.

With `generate` as with vLLM, prompt and completion share the model's context: a prompt that leaves no room for a
single token raises ValueError, and one that leaves less than `max_completion_length` gets completions of as many
tokens as there is room for. A stop word ends a completion; its ids include the word, its text does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pettingllms_envs.observations import Image
from pettingllms_envs.prompts import text_of
from pettingllms_trl.records import POLL_SECONDS, Answer, Request, Sample
from pettingllms_trl.structure.properties import rope_kinds, rope_switch


class BatchedEngine:
    """An engine that answers all requests together by one call of a function: plain `generate`, or a test's fake."""

    is_batched, is_remote = True, False

    def __init__(self, sample: Sample, rollout: AbstractContextManager[Any] | None = None) -> None:
        self._sample, self._rollout = sample, rollout or nullcontext()
        self._waiting: list[tuple[int, Request]] = []

    def rollout(self, name: str) -> AbstractContextManager[None]:
        """See `Engine`. Nothing is left when it ends but after an error."""
        self._waiting = []
        return self._rollout

    def submit(self, ticket: int, request: Request) -> None:
        self._waiting.append((ticket, request))

    def step(self, timeout: float = POLL_SECONDS) -> Sequence[tuple[int, Answer]]:
        """Sample for all requests, in the order in which they came."""
        batch, self._waiting = self._waiting, []
        answers = self._sample([request for _, request in batch])
        return [(ticket, sampled) for (ticket, _), sampled in zip(batch, answers, strict=True)]


NOT_STRETCHED = ("default", "longrope", "su", "llama3")
"""Kinds of rotary embeddings whose factor is in `max_position_embeddings` already."""


def context_of(config: Any) -> int | None:
    """Most tokens of prompt and completion together, by a text model's configuration.

    `None`: the model names no bound. It is vLLM's, but where RoPE depends on a row's length (`rope_switch`).
    """
    length = getattr(config, "max_position_embeddings", None)
    if length is None:
        return None
    switch = rope_switch(config)
    return max([length, *(_stretched(length, each) for each in rope_kinds(config))]) if switch is None else switch


def _stretched(length: int, rope: Mapping[str, Any]) -> int:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in NOT_STRETCHED:
        return length
    return int(rope.get("original_max_position_embeddings", length) * (rope.get("factor") or 1.0))


ImageTokens = Callable[[Sequence[Image]], Sequence[int]]
"""Images to the number of places that each has in a prompt."""


def check_lengths(
    prompts: Sequence[Sequence[int]],
    requests: Sequence[Request],
    context: int,
    image_tokens: ImageTokens | None = None,
) -> None:
    """Raise `ValueError` if the prompt of a request leaves no room for a completion."""
    for ids, request in zip(prompts, requests, strict=True):
        if len(ids) >= context:
            shown = request.prompt.images
            of_images = f" ({image_tokens(shown)} of its {len(shown)} images)" if shown and image_tokens else ""
            raise ValueError(
                f"the prompt of agent {request.agent!r} has {len(ids)} tokens{of_images}, but the context holds "
                f"{context}, the completion's included. Show less, choose a model with a longer context (with RoPE of "
                "type dynamic or longrope it ends where they begin to stretch), or, where vLLM was started for less "
                "than the model's, raise vllm_max_model_length (on a server "
                f"--max-model-len). The prompt ends with {text_of(request.prompt.messages[-1]['content'])[-200:]!r}."
            )


Decode = Callable[[Sequence[int]], str]


def before_stop(text: str, stop: Sequence[str]) -> str:
    """A completion's text without the first stop word and what follows it."""
    return text[: min([len(text), *(place for word in stop if (place := text.find(word)) >= 0)])]


def up_to_stop(ids: Sequence[int], stop: Sequence[str], decode: Decode) -> Sequence[int]:
    """The ids up to the first after which the text contains a stop word, as by a sampler that checks every token."""

    def stops(number: int) -> bool:
        text = decode(ids[:number])
        return any(word in text for word in stop)

    if not stop or not stops(len(ids)):
        return ids
    least, most = 1, len(ids)
    while least < most:
        middle = (least + most) // 2
        if stops(middle):
            most = middle
        else:
            least = middle + 1
    return ids[:least]
