"""Teams that sample by vLLM, launched on one process and on two, and what must be equal of their reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launches import difference, spec


MOST = 1e-6
"""Largest difference of a weight after three steps."""
ROUNDING = 2e-5
"""Largest difference between log-probabilities of the trainer and of its engine, in nats."""

VLLM = {"use_vllm": True, "vllm_max_model_length": 256, "max_completion_length": 12}
# A tenth of a learning rate at which tokens sampled from last step's weights are off by 1e-2 nats; no clipping, for
# DeepSpeed and FSDP2 add up the norm in another order.
GENTLE = {**VLLM, "learning_rate": 0.05, "max_grad_norm": 0.0}


def team(layout: str, *, about: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return spec(layout, about=about, **{**GENTLE, **options})


def num_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[int, int]:
    """Decisions of which prompt and all candidates have equal token ids, and all of them."""
    pairs = [
        (mine[place], theirs.get(place))
        for mine, theirs in zip(one["sampled"], other["sampled"], strict=True)
        for place in mine
    ]
    return sum(theirs is not None and ids_of(mine) == ids_of(theirs) for mine, theirs in pairs), len(pairs)


def ids_of(sampled: Any) -> Any:
    prompt_ids, candidates = sampled
    return prompt_ids, [ids for ids, _ in candidates]


def off_by(one: Mapping[str, Any]) -> list[float]:
    """The largest difference between log-probabilities of trainer and engine, of each step that was logged."""
    return [
        value
        for log in one["log"]
        for name, value in log.items()
        if name.endswith("sampling/sampling_logp_difference/max")
    ]


def check_same(one: dict[str, Any], other: dict[str, Any], name: str) -> None:
    (equal, decisions), weights, logprobs = num_equal(one, other), difference(one, other), off_by(other)
    print(f"\n| {name:45} | {equal} / {decisions} | {weights:.1e} | {max(logprobs):.1e} |")
    assert equal == decisions > 0
    assert other["table"] == one["table"]
    assert weights <= MOST
    assert len(logprobs) >= len(one["sampled"])
    assert max(logprobs) <= ROUNDING
