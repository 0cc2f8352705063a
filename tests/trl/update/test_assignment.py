"""Rows dealt to processes: every row trains once, whoever has it, and no process waits for another."""

from __future__ import annotations

import random

import pytest
import torch

from pettingllms_trl.update.assignment import assign, values_of
from pettingllms_trl.update.micro_batches import ShardInfo, split
from pettingllms_trl.update.pass_metrics import of_completions


def test_rows_are_dealt_as_the_head_of_the_file_says() -> None:
    hands = assign([4, 0, 2, 3, 1], num_steps=2, num_processes=2).rows
    assert hands == (((4, 2), (0, None)), ((3,), (1,)))


@pytest.mark.parametrize("num_rows", [1, 2, 5, 12, 31])
@pytest.mark.parametrize("num_steps", [1, 3, 8])
@pytest.mark.parametrize("num_processes", [1, 2, 3, 7])
def test_each_row_is_on_one_process_in_the_micro_step_it_would_have_alone(
    num_rows: int, num_steps: int, num_processes: int
) -> None:
    order = random.Random(0).sample(range(num_rows), num_rows)
    dealt = assign(order, num_steps=num_steps, num_processes=num_processes)
    alone = [part.tolist() for part in torch.tensor(order).tensor_split(num_steps)]
    for step, rows in zip(dealt.rows, alone, strict=True):
        assert len(step) == num_processes
        assert len({len(hand) for hand in step}) == 1
        assert sorted(row for hand in step for row in hand if row is not None) == sorted(rows)
        assert sum(row is None for hand in step for row in hand) < num_processes
    assert sum(dealt.num_rows) == num_rows
    assert dealt.num_padding_rows == sum(dealt.num_here) * num_processes - num_rows


def test_what_was_dealt_out_is_collected_in_the_order_of_the_rows() -> None:
    dealt = assign([4, 0, 2, 3, 1], num_steps=2, num_processes=2)
    values = ["a", "b", "c", "d", "e"]
    hands = [values_of(dealt.rows_of(process), values, "-") for process in range(2)]
    assert hands == [["e", "c", "d"], ["a", "-", "b"]]
    assert dealt.restore_order(hands[0] + hands[1]) == values
    assert (dealt.num_here, dealt.num_rows, dealt.num_padding_rows) == ((2, 1), (3, 2), 1)


# ---- What a dealt pass weighs ---------------------------------------------------------------------------------------


def batch_of(lengths: list[int], *, fillers: int = 0) -> dict[str, torch.Tensor]:
    """Rows of so many tokens; the last `fillers` of them of two that count nowhere."""
    lengths = [*lengths, *[2] * fillers]
    mask = torch.tensor([[int(i < length) for i in range(8)] for length in lengths])
    counts = torch.ones_like(mask)
    counts[len(lengths) - fillers :] = 0
    ones = torch.ones(len(lengths), 2, dtype=torch.long)
    return {
        "prompt_ids": ones,
        "prompt_mask": ones,
        "completion_ids": mask,
        "completion_mask": mask,
        "tool_mask": counts,
        "advantages": torch.ones(len(lengths)),
    }


def scales(
    hands: list[dict[str, torch.Tensor]], shared: ShardInfo, **options: bool
) -> list[list[tuple[int, float, float]]]:
    """By process: each pass's rows, the scale of its loss and of its entropy."""
    return [
        [
            (len(piece["advantages"]), piece["loss_scale"], piece["entropy_scale"])
            for step in split(hand, num_steps=2, max_rows=2, shard=shared, **options)
            for piece in step
        ]
        for hand in hands
    ]


# Two processes, micro-steps of 3 and 2 rows: [4 tokens, 2] and [6, filler]; then [3] and [5].
HANDS = [batch_of([4, 2, 3]), {k: v[[0, 2, 1]] for k, v in batch_of([6, 5], fillers=1).items()}]
SHARED = ShardInfo(num_processes=2, num_here=(2, 1), num_rows=(3, 2), num_tokens=(12, 8))


def test_a_pass_weighs_by_its_rows_among_those_of_all_processes() -> None:
    # 2 rows x 2 processes x 2 micro-steps / 5 rows; 1 x 2 x 2 / 5. The entropy of a pass is the mean of its tokens, so
    # that of 6 tokens of 12 shall weigh 6/12 of the micro-step's 3 x 2 / 5, twice, for the mean over processes.
    first, second = scales(HANDS, SHARED, token_mean=False)
    assert first == [(2, pytest.approx(8 / 5), pytest.approx(3 / 4)), (1, pytest.approx(4 / 5), pytest.approx(3 / 4))]
    assert second == [(2, pytest.approx(8 / 5), pytest.approx(3 / 4)), (1, pytest.approx(4 / 5), pytest.approx(5 / 4))]
    assert pytest.approx(2 * 6 / 12 * 3 * 2 / 5) == 8 / 5 * 3 / 4


def test_where_tokens_are_averaged_a_pass_weighs_by_its_tokens_among_those_of_all_processes() -> None:
    # 6 tokens of the first micro-step's 12 on each, times 2; 3 and 5 of the second's 8.
    first, second = scales(HANDS, SHARED, token_mean=True)
    assert first == [(2, 1.0, 1.0), (1, pytest.approx(6 / 8), 1.0)]
    assert second == [(2, 1.0, 1.0), (1, pytest.approx(10 / 8), 1.0)]


def test_the_mean_over_processes_of_scaled_row_means_is_the_mean_over_all_rows() -> None:
    losses = {4: 0.3, 2: -1.0, 6: 2.0, 3: 0.5, 5: -0.2}  # by length
    total = 0.0
    for hand in HANDS:
        for step in split(hand, num_steps=2, max_rows=2, token_mean=False, shard=SHARED):
            for piece in step:
                counted = (piece["completion_mask"] * piece["tool_mask"]).sum(1).tolist()
                row_mean = sum(losses[n] for n in counted if n) / len(counted)
                total += row_mean * piece["loss_scale"] / 2 / 2  # micro-steps, processes
    assert total == pytest.approx(sum(losses.values()) / 5)


def test_metrics_of_completions_are_trls() -> None:
    # Three completions of 2, 4 and 6 tokens, of which the last was cut off.
    assert of_completions([2, 4, 6], [True, True, False]) == pytest.approx(
        {
            "completions/mean_length": 4,
            "completions/min_length": 2,
            "completions/max_length": 6,
            "completions/clipped_ratio": 1 / 3,
            "completions/mean_terminated_length": 3,
            "completions/min_terminated_length": 2,
            "completions/max_terminated_length": 4,
        }
    )
    assert of_completions([6], [False])["completions/max_terminated_length"] == 0
