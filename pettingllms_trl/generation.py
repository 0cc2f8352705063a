"""Prompts of several policies to sampled tokens: requests sorted by policy, one call of the generator for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pettingllms_trl.engine import Request, Sampled
from pettingllms_trl.records import Completion, Message


Tokenize = Callable[[list[Sequence[Message]]], Sequence[Sequence[int]]]
Generate = Callable[[str, list[Sequence[int]]], tuple[Sequence[Sequence[int]], Sequence[Sequence[float]] | None]]
"""(policy, prompts) -> sampled ids of each prompt, and their log-probabilities where the engine gives them."""
Decode = Callable[[list[Sequence[int]]], Sequence[str]]


def sample(
    requests: Sequence[Request],
    *,
    policy_of: Mapping[str, str],
    tokenize: Tokenize,
    generate: Generate,
    decode: Decode,
) -> list[Sampled]:
    """Answer every request by its agent's policy.

    Each policy gets one call with all its prompts, each repeated for its candidates, as TRL's generators take them.

    Returns:
        Answers in the order of the requests.
    """
    answers: dict[int, Sampled] = {}
    for policy in dict.fromkeys(policy_of[request.agent] for request in requests):
        own = [i for i, request in enumerate(requests) if policy_of[request.agent] == policy]
        prompts = tokenize([requests[i].prompt for i in own])
        repeated = [ids for i, ids in zip(own, prompts, strict=True) for _ in range(requests[i].num_candidates)]
        sampled, logprobs = generate(policy, repeated)
        texts = decode(list(sampled))
        start = 0
        for i, prompt_ids in zip(own, prompts, strict=True):
            end = start + requests[i].num_candidates
            completions = tuple(
                Completion(
                    ids=tuple(sampled[row]),
                    text=texts[row],
                    logprobs=None if logprobs is None else tuple(logprobs[row]),
                )
                for row in range(start, end)
            )
            answers[i] = Sampled(tuple(prompt_ids), completions)
            start = end
    return [answers[i] for i in range(len(requests))]
