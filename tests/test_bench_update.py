"""benchmarks/bench_update.py: its arithmetic by hand, and that both trainers do the same work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest


sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

bench_update = pytest.importorskip("bench_update")
torch = pytest.importorskip("torch")


TINY = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
}  # fmt: skip


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(bench_update.MODELS, "tiny", TINY)
    return bench_update.Setting("tiny", "cpu", torch.float32, checkpointing=False, attention="sdpa")


def test_the_work_is_counted_by_tokens_and_by_pairs_of_a_query_and_a_key(setting: Any) -> None:
    # A layer has 16 x 8 x 2 x (2 + 1) + 3 x 16 x 32 = 2,304 weights, and the head 16 x 50. Of P=10, C=4, K=3, rows
    # have 42 tokens and 3 x 14^2 / 2 = 294 pairs; shared, 22 tokens and 50 + 3 x (40 + 8) = 194.
    shape = bench_update.Shape.parse("10x4x3")
    head = 3 * 2 * 50 * 16 * 12
    assert bench_update.flops(setting, shape, is_shared=False) == 3 * 2 * (2 * 2304 * 42 + 4 * 2 * 8 * 294) + head
    assert bench_update.flops(setting, shape, is_shared=True) == 3 * 2 * (2 * 2304 * 22 + 4 * 2 * 8 * 194) + head


def test_both_trainers_have_the_same_gradients(setting: Any) -> None:
    found = bench_update.compare(setting, bench_update.Shape(24, 5, 3), rounds=1)
    assert found["gradient_error"] < 1e-5
    assert found["ratio"] > 0


def test_every_way_to_share_a_prompt_gives_the_same_gradients(setting: Any) -> None:
    ways = bench_update.compare_ways(setting, bench_update.Shape(24, 5, 3), rounds=1)
    assert set(ways) == {"rows", "whole", "split", "mask", "cache"}
    assert ways["rows"] == 1.0
