"""Passes bounded by tokens: every row once, groups whole, budgets kept, and as much for each process to do."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from batches import batch_of, rows_of
from pettingllms_trl.update import assignment
from pettingllms_trl.update.assignment import Assignment, assign_by_tokens, cost
from pettingllms_trl.update.micro_batches import ShardInfo, split
from pettingllms_trl.update.packing.conversations import Size
from pettingllms_trl.update.packing.cost import token_price_of


PRICE = token_price_of("cpu", 512)


def groups(num_groups: int, num_candidates: int) -> list[Size]:
    """Prompts of 10, 17, 24, ... tokens, completions of 1 to 5."""
    return [Size(g, 10 + 7 * g, 1 + (3 * g + k) % 5) for g in range(num_groups) for k in range(num_candidates)]


def passes_of(dealt: Assignment) -> list[list[list[list[int]]]]:
    """Real rows by micro-step, pass and process."""
    assert dealt.passes is not None
    found = []
    for hands, sizes in zip(dealt.rows, dealt.passes, strict=True):
        ends = list(itertools.accumulate(sizes, initial=0))
        assert all(len(hand) == ends[-1] for hand in hands)
        found.append(
            [[[row for row in hand[a:b] if row is not None] for hand in hands] for a, b in itertools.pairwise(ends)]
        )
    return found


def test_a_pass_costs_its_prompts_once_where_they_are_shared_and_its_padding_where_not() -> None:
    sizes = [Size("a", 10, 3), Size("a", 10, 5), Size("b", 4, 0)]
    # 9 + 3 + 5 tokens of the first group, and 3 + 1 of the second, whose completion is empty.
    assert cost([0, 1, 2], sizes, token_price=PRICE) == 17 + 4
    assert cost([0, 1, 2], sizes, token_price=None) == 3 * (10 + 5)
    assert cost([], sizes, token_price=PRICE) == 0


def test_without_conversations_the_ways_are_not_compared_as_each_reads_as_many_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assignment, "cheapest", None)  # which takes as long as making the pass, for each row added
    # 9 + 3 + 5 and 3 + 1 and, of a prompt of one token, 0 + 2.
    sizes = [Size("a", 10, 3), Size("b", 4, 0), Size("a", 10, 5), Size("c", 1, 2)]
    assert cost(range(4), sizes, token_price=PRICE) == 17 + 4 + 2
    with pytest.raises(TypeError):  # where a later row's prompt goes on from a row, they are
        cost([0], [Size("a", 10, 3, range(1, 2))], token_price=PRICE)


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("num_processes", [1, 2, 3])
@pytest.mark.parametrize("num_steps", [1, 4])
@pytest.mark.parametrize("budget", [20, 60, 10_000])
@pytest.mark.parametrize(("num_groups", "num_candidates"), [(1, 1), (1, 8), (7, 4), (12, 1)])
def test_every_row_comes_once_and_every_pass_keeps_its_budget(
    num_groups: int, num_candidates: int, budget: int, num_steps: int, num_processes: int, is_shared: bool
) -> None:
    sizes = groups(num_groups, num_candidates)
    order = random.Random(0).sample(range(len(sizes)), len(sizes))
    dealt = assign_by_tokens(
        sizes,
        order,
        budget=budget,
        token_price=PRICE if is_shared else None,
        num_steps=num_steps,
        num_processes=num_processes,
    )
    steps = passes_of(dealt)
    assert len(steps) == num_steps
    hands = [rows for passes in steps for hands in passes for rows in hands]
    assert sorted(row for rows in hands for row in rows) == list(range(len(sizes)))
    for rows in hands:
        assert len(rows) <= 1 or cost(rows, sizes, token_price=PRICE if is_shared else None) <= budget
    for passes in steps:
        assert all(any(hands) for hands in passes), "a pass without rows"


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("num_processes", range(1, 9))
def test_whatever_the_sizes_all_processes_have_equal_passes_within_the_budget_and_no_row_twice(
    num_processes: int, is_shared: bool
) -> None:
    for seed in range(100):
        draw = random.Random(f"{seed}/{num_processes}/{is_shared}")
        number, budget, num_steps = draw.randint(1, 40), draw.choice([1, 60, 250, 10_000]), draw.randint(1, 5)
        prompts = [draw.randint(1, 99) for _ in range(draw.randint(1, number))]
        groups_of = [draw.randrange(len(prompts)) for _ in range(number)]
        sizes = [Size(group, prompts[group], draw.randint(0, draw.choice([3, 99]))) for group in groups_of]
        order = draw.sample(range(number), number)
        left_out = {row for row in range(number) if draw.random() < 0.3} if is_shared else set[int]()
        options = {
            "budget": budget,
            "token_price": PRICE if is_shared else None,
            "num_steps": num_steps,
            "left_out": left_out,
        }
        dealt = assign_by_tokens(sizes, order, num_processes=num_processes, **options)
        alone = assign_by_tokens(sizes, order, **options)
        assert dealt.passes is not None
        assert sorted(r for p in range(num_processes) for r in dealt.rows_of(p) if r is not None) == [*range(number)]
        for step, passes, (rows_alone,) in zip(dealt.rows, dealt.passes, alone.rows, strict=True):
            assert len({len(rows) for rows in step}) == 1, "the processes have different numbers of rows"
            assert {row for rows in step for row in rows} - {None} == {*rows_alone} - {None}
            for rows in step:
                places = iter(rows)
                for size in passes:
                    here = [next(places) for _ in range(size)]
                    real = [row for row in here if row is not None]
                    assert not left_out & {*real}
                    tokens = cost(real, sizes, token_price=PRICE if is_shared else None)
                    if not is_shared and real:  # a padding row is padded to the longest beside it
                        tokens = tokens // len(real) * len(here)
                    assert tokens <= budget or len(here) == 1 or (is_shared and len(real) == 1)
                assert left_out.issuperset({*places} - {None})


@pytest.mark.parametrize(
    ("num_processes", "expected"),
    [(1, [[[0, 1, 2, 3]], [[4, 5]], [[6, 7]]]), (2, [[[6], [7]], [[4, 5], [0, 1, 2, 3]]])],
)
def test_groups_that_fit_stay_whole_and_others_are_divided_evenly(
    num_processes: int, expected: list[list[list[int]]]
) -> None:
    sizes = [Size("small", 5, 2)] * 4 + [Size("large", 50, 10)] * 4  # 12 and 89 tokens
    dealt = assign_by_tokens(sizes, range(8), budget=70, token_price=PRICE, num_steps=1, num_processes=num_processes)
    # Half of the large group is 69 tokens. What is left for one of two processes goes to both, 59 tokens for each: the
    # small group and the other half do not fit beside them.
    assert passes_of(dealt) == [expected]


def test_passes_are_of_neighbours_in_length() -> None:
    sizes = [Size(g, length, 1) for g, length in enumerate([90, 10, 50, 20, 80, 40])]
    (passes,) = passes_of(assign_by_tokens(sizes, range(6), budget=130, token_price=None, num_steps=1))
    # Padded to their longest: 3 x 41 tokens, 2 x 81 would be too many.
    assert passes == [[[1, 3, 5]], [[2]], [[4]], [[0]]]


def test_processes_have_alike_much_to_do() -> None:
    sizes = [Size(g, 10 * (g + 1), 10) for g in range(8)]
    dealt = assign_by_tokens(sizes, range(8), budget=1000, token_price=PRICE, num_steps=1, num_processes=2)
    ((hands,),) = passes_of(dealt)
    # The two longest, the two shortest, and so on inwards; the longer of two to the process with fewer tokens.
    assert hands == [[7, 0, 5, 2], [6, 1, 4, 3]]
    assert [cost(rows, sizes, token_price=PRICE) for rows in hands] == [216, 216]


def test_an_outlier_is_made_up_for_by_shorter_groups_beside_it() -> None:
    sizes = [Size(g, 1, length) for g, length in enumerate([10, 20, 30, 40, 50, 100])]
    ((hands,),) = passes_of(
        assign_by_tokens(sizes, range(6), budget=1000, token_price=PRICE, num_steps=1, num_processes=2)
    )
    # 100 and 50; then 20 to the second, 10 to the first; then 40 and 30.
    assert [cost(rows, sizes, token_price=PRICE) for rows in hands] == [100 + 10 + 30, 50 + 20 + 40]


@pytest.mark.parametrize(("num_updates", "expected"), [(1, [8, 0, 0, 0]), (2, [4, 0, 4, 0]), (4, [2, 2, 2, 2])])
def test_no_optimizer_step_is_without_rows_where_there_are_enough(num_updates: int, expected: list[int]) -> None:
    sizes = [Size("one", 30, 3)] * 8
    dealt = assign_by_tokens(sizes, range(8), budget=10_000, token_price=PRICE, num_steps=4, num_updates=num_updates)
    assert list(dealt.num_rows) == expected


def test_all_processes_are_at_work_where_there_are_fewer_groups() -> None:
    sizes = [Size("one", 30, 3)] * 8
    dealt = assign_by_tokens(sizes, range(8), budget=10_000, token_price=PRICE, num_steps=1, num_processes=2)
    assert passes_of(dealt) == [[[[0, 1, 2, 3], [4, 5, 6, 7]]]]


def test_groups_of_different_sizes_are_filled_up_to_the_larger() -> None:
    sizes = [Size("a", 30, 3)] * 3 + [Size("b", 30, 3)] * 2
    dealt = assign_by_tokens(sizes, range(5), budget=10_000, token_price=PRICE, num_steps=1, num_processes=2)
    assert dealt.rows == (((0, 1, 2), (3, 4, None)),)
    assert (dealt.num_here, dealt.num_rows, dealt.num_padding_rows) == ((3,), (5,), 1)


@pytest.mark.parametrize("token_mean", [False, True])
def test_a_row_weighs_the_same_however_passes_are_cut(token_mean: bool) -> None:
    # Rows 0 to 4 of 1 to 5 tokens. By rows, each weighs 2 / 5, so that TRL's mean over the 2 micro-steps is over 5
    # rows; by tokens, a pass weighs as its share of its micro-step's tokens, 6 and 9.
    batch = batch_of([1, 2, 3, 4, 5])
    shared = ShardInfo(1, [3, 2], [3, 2], [6, 9], [[1, 2], [2]])
    steps = split(batch, num_steps=2, max_rows=1, token_mean=token_mean, shard=shared)
    assert [[rows_of(piece) for piece in passes] for passes in steps] == [[[0], [1, 2]], [[3, 4]]]
    found = [[piece["loss_scale"] for piece in passes] for passes in steps]
    assert found == ([[1 / 6, 5 / 6], [1.0]] if token_mean else [[0.4, 0.8], [0.8]])
    torch.testing.assert_close(steps[0][1]["completion_ids"], batch["completion_ids"][1:3, :3])


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("num_groups", [1, 2, 9])
def test_a_micro_step_has_the_same_rows_whatever_the_budget_and_the_processes(
    num_groups: int, is_shared: bool
) -> None:
    sizes = groups(num_groups, 4)
    order = random.Random(0).sample(range(len(sizes)), len(sizes))
    found = {
        tuple(
            frozenset(row for hand in step for row in hand if row is not None)
            for step in assign_by_tokens(
                sizes,
                order,
                budget=budget,
                token_price=PRICE if is_shared else None,
                num_steps=4,
                num_updates=2,
                num_processes=num_processes,
            ).rows
        )
        for budget in (20, 60, 10_000)
        for num_processes in (1, 2, 3)
    }
    assert len(found) == 1


def test_a_padding_row_is_as_long_as_those_beside_it() -> None:
    sizes = [Size(g, *of_row) for g, of_row in enumerate([(50, 50), (90, 10), (50, 50), (10, 90), (55, 50)])]
    dealt = assign_by_tokens(sizes, range(5), budget=400, token_price=None, num_steps=1, num_processes=2)
    # Three rows of 55 + 50 would fit on the first process; but then the second has two of 90 + 90 and one of padding.
    assert passes_of(dealt) == [[[[0, 2], [1, 3]], [[4], []]]]
