"""Cutting a generation into micro-steps and passes: every row once, with the weight that it would have uncut."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from batches import batch_of, rows_of
from pettingllms_trl.records import Completion
from pettingllms_trl.update.micro_batches import Batch, rollout_of, split


def scales(steps: list[list[Batch]]) -> list[list[float]]:
    return [[piece["loss_scale"] for piece in passes] for passes in steps]


@pytest.mark.parametrize("num_rows", [1, 2, 5, 8, 13])
@pytest.mark.parametrize("num_steps", [1, 2, 3])
@pytest.mark.parametrize("max_rows", [1, 2, 4, 100])
@pytest.mark.parametrize("token_mean", [False, True])
def test_every_row_comes_exactly_once_in_passes_of_bounded_size(
    num_rows: int, num_steps: int, max_rows: int, token_mean: bool
) -> None:
    batch = batch_of([1 + i % 4 for i in range(num_rows)])
    steps = split(batch, num_steps=num_steps, max_rows=max_rows, token_mean=token_mean)
    assert len(steps) == num_steps
    pieces = [piece for passes in steps for piece in passes]
    assert sorted(row for piece in pieces for row in rows_of(piece)) == list(range(num_rows))
    assert all(1 <= len(rows_of(piece)) <= max_rows for piece in pieces)


def test_passes_of_unequal_size_weigh_by_their_rows() -> None:
    # 5 rows in 2 micro-steps: 3 and 2. At most 2 rows a pass: 2 + 1 and 2. A row weighs 2 / 5, so 0.8, 0.4 and 0.8;
    # TRL divides by the 2 micro-steps, which makes it the mean over 5 rows.
    steps = split(batch_of([1, 2, 3, 4, 5]), num_steps=2, max_rows=2, token_mean=False)
    assert [[rows_of(piece) for piece in passes] for passes in steps] == [[[0, 1], [2]], [[3, 4]]]
    assert scales(steps) == [pytest.approx([0.8, 0.4]), pytest.approx([0.8])]


def test_a_mean_over_rows_is_the_same_cut_and_uncut() -> None:
    batch = batch_of([3, 1, 4, 1, 5, 9, 2])
    for num_steps, max_rows in [(1, 2), (2, 3), (3, 1), (3, 100)]:
        steps = split(batch, num_steps=num_steps, max_rows=max_rows, token_mean=False)
        mean = sum(p["advantages"].mean() * p["loss_scale"] for passes in steps for p in passes) / num_steps
        assert float(mean) == pytest.approx(3.0)  # of 0 to 6


def test_under_a_mean_over_tokens_a_pass_weighs_by_its_share_of_the_micro_steps_tokens() -> None:
    # Rows of 1, 2, 6 tokens, two a pass and then one: 3 of 9 tokens and 6 of 9.
    (passes,) = split(batch_of([1, 2, 6]), num_steps=1, max_rows=2, token_mean=True)
    assert [rows_of(piece) for piece in passes] == [[0, 1], [2]]
    assert scales([passes]) == [pytest.approx([3 / 9, 6 / 9])]


def test_a_mean_over_tokens_within_a_loss_over_rows_is_weighed_by_tokens_besides() -> None:
    # The same passes have 2 and 1 of 3 rows and 3 and 6 of 9 tokens: (3 / 9) / (2 / 3) and (6 / 9) / (1 / 3).
    for token_mean, expected in [(False, [0.5, 2]), (True, [1, 1])]:
        (passes,) = split(batch_of([1, 2, 6]), num_steps=1, max_rows=2, token_mean=token_mean)
        assert [piece["entropy_scale"] for piece in passes] == pytest.approx(expected)


def test_tokens_that_a_tool_wrote_do_not_weigh() -> None:
    tool_mask = torch.ones(3, 7, dtype=torch.long)
    tool_mask[2, :3] = 0  # of the 6 tokens of the last row, 3 are a tool's
    (passes,) = split(batch_of([1, 2, 6], tool_mask=tool_mask), num_steps=1, max_rows=2, token_mean=True)
    assert scales([passes]) == [pytest.approx([0.5, 0.5])]


@pytest.mark.parametrize("token_mean", [False, True])
def test_where_the_sizes_match_a_micro_step_is_one_pass_untouched(token_mean: bool) -> None:
    batch = batch_of([4, 1, 2, 4])
    steps = split(batch, num_steps=2, max_rows=2, token_mean=token_mean)
    assert scales(steps) == [[1], [1]]
    assert [piece["entropy_scale"] for (piece,) in steps] == [1, 1]
    for (piece,), rows in zip(steps, ([0, 1], [2, 3]), strict=True):
        assert rows_of(piece) == rows
        for name, value in batch.items():
            assert torch.equal(piece[name], value if value.dim() == 0 else value[rows]), name


def test_trimming_removes_nothing_but_padding() -> None:
    batch = batch_of([1, 2, 3, 4, 5])
    (passes,) = split(batch, num_steps=1, max_rows=2, token_mean=False)
    assert len(passes) == 3
    for piece in passes:
        rows = rows_of(piece)
        for part in ("prompt", "completion"):
            before, after = batch[f"{part}_ids"][rows], piece[f"{part}_ids"]
            mask_before, mask_after = batch[f"{part}_mask"][rows].bool(), piece[f"{part}_mask"].bool()
            assert after.size(1) == int(mask_before.sum(1).max())  # no column is all padding
            for i in range(len(rows)):
                assert after[i][mask_after[i]].tolist() == before[i][mask_before[i]].tolist()
        logprobs = batch["old_per_token_logps"][rows, : piece["completion_ids"].size(1)]
        assert torch.equal(piece["old_per_token_logps"], logprobs)


def test_a_pass_whose_completions_are_all_masked_out_keeps_two_columns() -> None:
    batch = batch_of([2, 2, 2, 2])
    batch["completion_mask"] = torch.zeros_like(batch["completion_mask"])
    steps = split(batch, num_steps=1, max_rows=2, token_mean=True)
    assert [piece["completion_ids"].shape for piece in steps[0]] == [(2, 2), (2, 2)]
    assert scales(steps) == [[0, 0]]


def test_rows_of_like_length_go_together() -> None:
    (passes,) = split(batch_of([9, 1, 8, 1]), num_steps=1, max_rows=2, token_mean=False)
    assert [rows_of(piece) for piece in passes] == [[1, 3], [0, 2]]


def test_with_more_micro_steps_than_rows_the_last_have_no_pass() -> None:
    steps = split(batch_of([2, 3]), num_steps=4, max_rows=2, token_mean=False)
    assert [[rows_of(piece) for piece in passes] for passes in steps] == [[[0]], [[1]], [], []]
    assert scales(steps) == [[2], [2], [], []]


@pytest.mark.parametrize(("masks", "expected"), [(True, [[1, 1], [0, 0], [1, 1], [1, 1]]), (False, None)])
def test_a_completion_that_was_cut_at_the_token_that_ended_another_one_is_left_out_where_those_are(
    masks: bool, expected: Any
) -> None:
    # A stop word has ended the first at 7, where the second was cut. TRL leaves out the third. The model's end is 2.
    finishes = {(5, 7): "stop", (6, 7): "length", (5, 6): "length", (5, 2): "stop"}
    rows = [
        {"prompt": SimpleNamespace(ids=(1,)), "completion": Completion(ids=ids, text="", finish=how), "counts": True}
        for ids, how in finishes.items()
    ]
    trainer = SimpleNamespace(eos_token_ids=[2, 7], mask_truncated_completions=masks)
    assert rollout_of(rows, trainer).get("env_mask") == expected
