"""benchmarks/conversation_updates.py: its arithmetic by hand, and that all that is compared do the same work."""

from __future__ import annotations

from typing import Any

import pytest


bench_update = pytest.importorskip("bench_update")
torch = pytest.importorskip("torch")

import conversation_updates  # noqa: E402
from conversation_updates import Amount, Tree, amounts_of  # noqa: E402


TREE = Tree.parse("2x10x5x4x3")


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Any:
    tiny = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    monkeypatch.setitem(bench_update.MODELS, "tiny", {**tiny, **heads})
    return bench_update.Setting("tiny", "cpu", torch.float32, checkpointing=False, attention="sdpa")


def test_tokens_and_pairs_are_counted_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_updates, "ROWS", 3)
    # Prompts of 10 and of 10 + 4 + 5 = 19, three replies of 4. Rows are of 14 and of 23 tokens. Once each: prompts
    # less their last token, 9 and 18, and 12 tokens of replies. By conversation 18, two replies, and three.
    assert amounts_of(TREE) == {
        "trl": Amount(3 * 14 + 3 * 23, 3 * 14**2 / 2 + 3 * 23**2 / 2, 24),
        "prompts": Amount(9 + 12 + 18 + 12, 9**2 / 2 + 3 * (36 + 8) + 18**2 / 2 + 3 * (72 + 8), 24),
        "conversations": Amount(18 + 8 + 12, 18**2 / 2 + 2 * (36 + 8) + 3 * (72 + 8), 24),
    }


def test_without_history_a_conversation_saves_nothing() -> None:
    amounts = amounts_of(Tree(2, 10, 5, 4, 3, has_history=False))
    assert amounts["prompts"] == amounts["conversations"]


def test_rows_prompts_and_conversations_have_the_same_gradients(
    setting: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    found = bench_update.compare_tree(setting, TREE, rounds=1)
    assert max(found["errors"].values()) < 1e-5
    figures = bench_update.report_tree(setting, TREE, found, {"trl": 300, "conversations": 100})
    assert [(len(figure.ours), len(figure.peer)) for figure in figures] == [(1, 1), (1, 1)]
    lines = capsys.readouterr().out.splitlines()
    assert "38 tokens" in lines[0]
    assert "tokens 3.63x (138)" in lines[2]
    assert "memory 3.00x less" in lines[2]
    assert "tokens 1.34x (51)" in lines[3]


def test_updates_that_divide_conversations_read_more() -> None:
    more = conversation_updates.cost_of_updates(Tree(4, 20, 5, 3, 2), 1e6, number=4)
    assert more[1] == 1.0 < more[2] < more[4]


def test_the_price_of_a_token_is_found_again() -> None:
    measured = []
    for trees in conversation_updates.shapes(6, seed=0, most=2000):
        works = conversation_updates.works_of(trees)
        measured.append((64, works, {way: each.cost(5.0 * 64) * 64 + 7.0 for way, each in works.items()}))
    assert conversation_updates.fitted(measured) == pytest.approx(5.0)
