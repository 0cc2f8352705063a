"""Keeps what a model's folder says of sampling (`generation_config.json`) out of training.

`generate` fills in from the folder what its caller leaves out: `min_p`, `typical_p`, `suppress_tokens`, ... vLLM does
not, and the loss takes all tokens to be sampled from the model's own distribution.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import GenerationConfig

from pettingllms_trl.policies.team import Team
from pettingllms_trl.structure.properties import base_of


KEPT = (
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"),
    *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "low_memory", "prefill_chunk_size"),
    *("compile_config", "disable_compile", "continuous_batching_config", "max_length", "transformers_version"),
)
"""Settings of `generate` that leave the distribution of the next token alone. `max_length` is overruled by the number
of new tokens, which the trainer gives."""
DROPPED = tuple(name for name in vars(GenerationConfig()) if name not in KEPT and not name.startswith("_"))

OUTPUT_PREFIXES = ("output_", "return_")
"""Of those, what says which results `generate` returns."""


@contextmanager
def without_folder_sampling(model: Any) -> Iterator[None]:
    """Within, `generate` samples as its caller says, and neutrally where the caller says nothing."""
    own = base_of(model)
    before = own.generation_config  # which is saved with the model
    own.generation_config = copy.deepcopy(before)
    for name in DROPPED:
        setattr(own.generation_config, name, None)
    try:
        yield
    finally:
        own.generation_config = before


def dropped_of(model: Any, given: GenerationConfig) -> dict[str, Any]:
    """What a model's folder says of sampling that is not neutral, where the trainer's settings say nothing."""
    neutral = GenerationConfig._get_default_generation_params()
    own = {name: getattr(model.generation_config, name) for name in DROPPED if not name.startswith(OUTPUT_PREFIXES)}
    return {
        name: value
        for name, value in own.items()
        if value and value != neutral.get(name) and getattr(given, name) is None
    }


def note(team: Team) -> str:
    """Names what is dropped of each policy's folder; empty where nothing is."""
    found = {name: dropped_of(team.weights_of(name), each.generation_config) for name, each in team.profiles.items()}
    named = "; ".join(
        f"{', '.join(f'{key}={value!r:.80}' for key, value in own.items())} of policy {name!r}"
        for name, own in found.items()
        if own
    )
    return named and (
        f"Not used: {named}, which generation_config.json of the model says and the configuration does not. The loss "
        "would not know of them (docs/generation.md). To sample so, set them: min_p=..., generation_kwargs={...}."
    )
