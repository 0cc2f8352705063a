"""benchmarks/bench_update.py: its arithmetic by hand, and that both trainers do the same work."""

from __future__ import annotations

import argparse
import dataclasses
import math
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


bench_update = pytest.importorskip("bench_update")
torch = pytest.importorskip("torch")

import prompt_ways  # noqa: E402

import flex_on_cpu  # noqa: E402
from pettingllms_trl.update.packed_attention import attend  # noqa: E402
from pettingllms_trl.update.packing.pack import pack  # noqa: E402


TINY = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
}  # fmt: skip


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(bench_update.MODELS, "tiny", TINY)
    return bench_update.Setting("tiny", "cpu", torch.float32, checkpointing=False, attention="sdpa")


def test_the_work_is_counted_by_tokens_and_by_pairs_of_a_query_and_a_key(setting: Any) -> None:
    # A layer has 16 x 16 x 2 x (2 + 1) + 3 x 16 x 32 = 3,072 weights, and the head 16 x 50. Of P=10, C=4, K=3, rows
    # have 42 tokens and 3 x 14^2 / 2 = 294 pairs; shared, 22 tokens and 50 + 3 x (40 + 8) = 194.
    shape = bench_update.Shape.parse("10x4x3")
    head = 3 * 2 * 50 * 16 * 12
    assert bench_update.flops(setting, shape, is_shared=False) == 3 * 2 * (2 * 3072 * 42 + 4 * 2 * 16 * 294) + head
    assert bench_update.flops(setting, shape, is_shared=True) == 3 * 2 * (2 * 3072 * 22 + 4 * 2 * 16 * 194) + head


def test_both_trainers_have_the_same_gradients(setting: Any) -> None:
    found = bench_update.compare(setting, bench_update.Shape(24, 5, 3), rounds=1)
    assert found["gradient_error"] < 1e-5
    assert found["ratio"] > 0


def test_flat_groups_are_left_out_with_the_same_gradients(
    setting: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer, model = bench_update.our_trainer(setting, str(tmp_path))
    figures = bench_update.compare_flat(trainer, model, bench_update.Shape(24, 5, 2), 50, 1, setting.now)
    assert [len(figure.ours) == len(figure.peer) == 1 for figure in figures] == [True] * 3
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["0%", "50%", "85%"]


def test_every_way_to_share_a_prompt_gives_the_same_gradients(setting: Any) -> None:
    seconds = bench_update.seconds_of_ways(setting, bench_update.Shape(24, 5, 3), rounds=1)
    assert set(seconds) == {"rows", "whole", "split", "mask", "cache"}  # no flex attention on a CPU
    assert prompt_ways.speeds(seconds)["rows"] == 1.0


def test_flex_attention_of_trl_has_the_same_gradients(setting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = flex_on_cpu.allow(monkeypatch)
    with_flex = dataclasses.replace(setting, attention="flex_attention")
    found = bench_update.compare(with_flex, bench_update.Shape(24, 5, 3), rounds=1)
    assert found["gradient_error"] < 1e-5
    assert calls.count(24 + 5) >= 2 * 2  # both rounds of TRL's, in both layers
    assert (
        bench_update.to_save(with_flex, found, None)[0].name
        == "update, P=24 C=5 K=3, tiny, float32, cpu, flex_attention"
    )


def test_flex_attention_is_refused_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_update.main(["--attention", "flex_attention"])
    assert "torch has no backward pass of it; expected --device cuda" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["rows", "prompts"])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
def test_flex_attention_over_the_packed_row_finds_what_ours_finds(way: Any) -> None:
    shape = bench_update.Shape(24, 5, 3)
    ids = torch.arange(2, 26).repeat(3, 1)
    ids = torch.cat([ids, torch.arange(26, 41).view(3, 5)], dim=1)
    layout = pack(ids, torch.ones_like(ids), 5, way=way).layout
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, heads, 23 + 15, 16, generator=generator) for heads in (4, 2, 2))
    mask = prompt_ways.block_mask(shape, ids.device)
    found, _ = prompt_ways.attend_by_blocks(torch.nn.Identity(), query, key, value, mask, scaling=0.3)
    expected, _ = attend(torch.nn.Identity(), query, key, value, None, scaling=0.3, shared_prefix=layout)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    alone, _ = prompt_ways.attend_by_blocks(
        torch.nn.Identity(), query, key, value, prompt_ways.block_mask(bench_update.Shape(1, 38, 1), ids.device)
    )
    assert (alone - expected).abs().max() > 1e-2


@pytest.mark.slow  # torch compiles it: a minute
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_flex_attention_compiled_finds_what_it_finds_as_it_is() -> None:
    shape = bench_update.Shape(24, 5, 3)
    query, key, value = (torch.randn(1, heads, 38, 16) for heads in (4, 2, 2))
    mask = prompt_ways.block_mask(shape, torch.device("cpu"))
    with torch.no_grad():
        found = prompt_ways._compiled()(query, key, value, block_mask=mask, scale=None, enable_gqa=True)
    expected, _ = prompt_ways.attend_by_blocks(torch.nn.Identity(), query, key, value, mask)
    torch.testing.assert_close(found.transpose(1, 2), expected, rtol=1e-5, atol=1e-5)


def test_a_position_sees_the_prompt_and_its_own_candidate() -> None:
    place = torch.arange(1 + 2 * 2)  # a prompt of two, whose last token is in each branch, and two candidates of two
    seen = prompt_ways.sees(bench_update.Shape(2, 2, 2), place[:, None], place)
    assert seen.int().tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 1, 1]]


@pytest.mark.parametrize(("dtype", "checkpointing"), [("float32", False), ("float32", True), ("bfloat16", True)])
def test_flex_attention_shares_a_prompt_with_the_same_gradients(
    dtype: str, checkpointing: bool, setting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    flex_on_cpu.allow(monkeypatch)
    setting = dataclasses.replace(setting, dtype=getattr(torch, dtype), checkpointing=checkpointing)
    monkeypatch.setattr(bench_update, "ways", lambda **given: prompt_ways.ways(**{**given, "has_flex": True}))
    seconds = bench_update.seconds_of_ways(setting, bench_update.Shape(24, 5, 3), rounds=2)
    assert len(seconds["flex"]) == 2
    saved = prompt_ways.figures_of(seconds, "tiny")
    assert [figure.name for figure in saved][-1] == "prompts shared by flex, tiny"
    assert saved[-1].peer == seconds["rows"]


def test_a_way_for_which_there_is_no_room_is_left_out_and_a_wrong_one_is_an_error(setting: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _, model = bench_update.of_ours(setting, folder)
    shape, ids = bench_update.Shape(3, 2, 2), torch.tensor([[2, 3, 4, 5, 6], [2, 3, 4, 7, 8]])

    def compared(way: Any) -> Any:
        both = {"rows": prompt_ways.with_rows, "other": way}
        return prompt_ways.compare_ways(model, ids, shape, rounds=1, now=setting.now, compared=both)

    seconds = compared(lambda *_: out_of_memory(None))
    assert (len(seconds["rows"]), seconds["other"]) == (1, ())
    assert math.isnan(prompt_ways.speeds(seconds)["other"])
    assert [figure.absent for figure in prompt_ways.figures_of(seconds, "tiny")] == ["the GPU has no room for other"]
    with pytest.raises(RuntimeError, match="other gives other gradients than rows"):
        compared(lambda *given: 2 * prompt_ways.with_rows(*given))


# ---- On a GPU, by a fake of its clock and memory --------------------------------------------------------------------


class Card:
    """Of 100 bytes; what is given to it is done when it is waited for."""

    def __init__(self, now: float = 0.0) -> None:
        self.done, self.held, self.most = now, 0, 0

    def synchronize(self) -> None:
        self.done += 3.0

    def perf_counter(self) -> float:
        return self.done

    def take(self, size: int) -> None:
        if self.held + size > 100:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        self.most = max(self.most, self.held + size)

    def reset(self) -> None:
        self.most = self.held


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    made = Card()
    monkeypatch.setattr(torch.cuda, "synchronize", made.synchronize)
    monkeypatch.setattr(bench_update.time, "perf_counter", made.perf_counter)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", made.reset)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: made.held)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: made.most)
    return made


def on_card(setting: Any) -> Any:
    return bench_update.Setting(setting.model, "cuda", torch.bfloat16, checkpointing=False, attention="sdpa")


def test_seconds_of_a_gpu_are_read_when_all_that_was_given_to_it_is_done(setting: Any, card: Card) -> None:
    assert [on_card(setting).now() for _ in range(2)] == [3.0, 6.0]


@pytest.mark.parametrize(("size", "expected"), [(50, 50), (70, None)])
def test_the_peak_on_a_gpu_is_above_what_it_held_and_none_where_it_has_not_so_much(
    size: int, expected: int | None, setting: Any, card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_ours(*_: Any) -> tuple[Callable[[Any], None], Any]:
        card.held = 40
        return lambda batch: card.take(batch["size"]), torch.nn.Linear(1, 1)

    small = bench_update.Shape(4, 4, 2)
    sizes = {small: 60, bench_update.Shape(9, 9, 9): size}
    monkeypatch.setattr(bench_update, "of_ours", of_ours)
    monkeypatch.setattr(bench_update, "make_batch", lambda setting, shape: {"size": sizes[shape]})
    assert bench_update.peak(on_card(setting), bench_update.Shape(9, 9, 9), "ours") == expected


def out_of_memory(batch: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory.")


@pytest.mark.parametrize(
    ("without", "seconds", "said"),
    [("of_trl", "ours", "the GPU has no room for TRL"), ("of_ours", "trl", "the GPU has no room for ours")],
)
def test_who_finds_no_room_has_no_seconds_and_the_other_is_measured_still(
    without: str, seconds: str, said: str, setting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = getattr(bench_update, without)
    monkeypatch.setattr(bench_update, without, lambda *given: (out_of_memory, made(*given)[1]))
    found = bench_update.compare(setting, bench_update.Shape(24, 5, 3), rounds=2)
    assert {name: len(each) for name, each in found["seconds"].items()} == {"trl": 0, "ours": 0} | {seconds: 2}
    assert math.isnan(found["ratio"])
    assert math.isnan(found["gradient_error"])
    assert bench_update.report(setting, found, None) is True
    figure = bench_update.to_save(setting, found, None)[0]
    assert (len(figure.ours), figure.peer, figure.absent) == (2 * (seconds == "ours"), (), said)


def test_the_share_of_the_cards_rate_is_ours_work_over_ours_seconds_over_the_rate(setting: Any) -> None:
    shape = bench_update.Shape.parse("10x4x3")
    work = bench_update.flops(setting, shape, is_shared=True)
    found = bench_update.summarized(setting, shape, {"trl": (3.0, 4.0), "ours": (1.0, 2.0)}, rate=work)
    assert found["shares"] == (1.0, 0.5)
    assert (found["of_matrix_rate"], found["ratio"], found["least"], found["most"]) == (0.75, 2.5, 2.0, 3.0)
    shares = bench_update.to_save(setting, found | {"gradient_error": math.nan, "rows": 8}, None)[1]
    assert (shares.unit, shares.ours) == ("%", (100.0, 50.0))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_in_micro_batches_an_update_has_the_same_loss_and_gradients(rows: int, setting: Any, tmp_path: Path) -> None:
    batch = bench_update.make_batch(setting, bench_update.Shape(6, 4, 3))
    update, model = bench_update.of_trl(setting, str(tmp_path))
    whole = update(batch)
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    torch.testing.assert_close(bench_update.in_micro_batches(update, rows)(batch), whole)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-7)


def test_trl_is_compared_with_in_the_rows_that_are_fastest_and_have_room(
    setting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {8: 9.0, 4: 3.0, 2: 4.0, 1: 5.0}
    clock = [0.0]

    def update(batch: Any) -> torch.Tensor:
        rows = len(batch["advantages"])
        if rows == 8:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        clock[0] += seconds[rows] * rows / 8
        return torch.zeros(())

    monkeypatch.setattr(bench_update.Setting, "now", lambda _: clock[0])
    batch = bench_update.make_batch(setting, bench_update.Shape(3, 2, 8))
    model = torch.nn.Linear(1, 1)
    assert bench_update.fastest_micro_batch(setting, update, model, batch) == 4
    seconds[1] = 2.0
    assert bench_update.fastest_micro_batch(setting, update, model, batch) == 1


def test_a_peak_for_which_there_was_no_room_is_left_out(setting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"trl": "None\n", "ours": "a warning\n2000000\n"}

    def run(command: list[str], **_: Any) -> Any:
        return subprocess.CompletedProcess(command, 0, stdout=said[command[command.index("--peak") + 1]])

    monkeypatch.setattr(bench_update.subprocess, "run", run)
    monkeypatch.setattr(bench_update, "peak", lambda _, __, which, ___: {"trl": None, "ours": 3_000_000}[which])
    shape = bench_update.Shape(9, 9, 9)
    for device, taken in (("cpu", 2_000_000), ("cuda", 3_000_000)):
        given = argparse.Namespace(device=device, dtype="bfloat16", model="tiny", attention="sdpa", checkpointing=True)
        assert bench_update.peaks(setting, given, shape) == {"ours": taken}
