"""One policy's requests to sampled tokens: all its prompts in one call of the generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pettingllms_trl.engines.context import check_length
from pettingllms_trl.engines.protocol import Request, Sampled
from pettingllms_trl.policies.sampling import before_stop, up_to_stop
from pettingllms_trl.records import Completion, Message


Tokenize = Callable[[list[Sequence[Message]]], Sequence[Sequence[int]]]
Generate = Callable[[list[Sequence[int]]], tuple[Sequence[Sequence[int]], Sequence[Sequence[float]] | None]]
"""Sampled ids of each prompt, and their log-probabilities where the generator gives them."""
Decode = Callable[[list[Sequence[int]]], Sequence[str]]


def sample(
    requests: Sequence[Request],
    *,
    tokenize: Tokenize,
    generate: Generate,
    decode: Decode,
    stop: Sequence[str] = (),
    context: int | None = None,
) -> list[Sampled]:
    """Answer every request, each prompt repeated for its candidates, as TRL's generators take them.

    Args:
        context: Most tokens of a prompt and its completion; `None`: there is no bound.
        stop: Words that end a completion: its ids with the word, its text before it.

    Returns:
        Answers in the order of the requests.

    Raises:
        ValueError: A prompt leaves no room for a completion in the context.
    """
    unwritten = [request.prompt for request in requests if not request.prompt_ids]
    written = iter(tokenize(unwritten) if unwritten else ())
    prompts = [list(request.prompt_ids) or next(written) for request in requests]
    if context is not None:
        for ids, request in zip(prompts, requests, strict=True):
            check_length(ids, request, context)
    repeated = [ids for request, ids in zip(requests, prompts, strict=True) for _ in range(request.num_candidates)]
    sampled, logprobs = generate(repeated)
    if stop:
        sampled = [up_to_stop(ids, stop, lambda part: decode([part])[0]) for ids in sampled]
    texts = [before_stop(text, stop) for text in decode(list(sampled))]
    answers: list[Sampled] = []
    start = 0
    for request, prompt_ids in zip(requests, prompts, strict=True):
        rows = range(start, start + request.num_candidates)
        start = rows.stop
        completions = tuple(
            Completion(
                ids=tuple(sampled[row]),
                text=texts[row],
                logprobs=None if logprobs is None else tuple(logprobs[row][: len(sampled[row])]),
            )
            for row in rows
        )
        answers.append(Sampled(tuple(prompt_ids), completions))
    return answers
