"""Flex attention on a CPU, forward and backward, for tests: slow, with all scores of a layer.

torch refuses its backward pass on a CPU, though the way without a compiled kernel has one; and transformers compiles
it, and the mask, which takes minutes.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch.nn.attention.flex_attention as torch_flex
from transformers import masking_utils
from transformers.integrations import flex_attention as transformers_flex


def allow(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Allow it until the test is over. Returns a list that grows by the number of queries of each call."""
    calls: list[int] = []

    def attend(query: Any, key: Any, value: Any, training: bool = False, **options: Any) -> Any:
        calls.append(query.size(2))
        return torch_flex.flex_attention(query, key, value, **options)

    make_mask = torch_flex.create_block_mask
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(transformers_flex, "compile_friendly_flex_attention", attend)
    monkeypatch.setattr(
        masking_utils, "create_block_mask", lambda *args, **options: make_mask(*args, **{**options, "_compile": False})
    )
    return calls
