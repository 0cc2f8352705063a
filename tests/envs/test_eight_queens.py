"""Eight Queens: what is fixed, how far the nearest solution is, and that distances are those of another search."""

from __future__ import annotations

import itertools

import pytest

from pettingllms_envs.core import SPLITS, Unreadable
from pettingllms_envs.environments.eight_queens.rules import LEVELS, EightQueens, QueensState
from pettingllms_envs.environments.eight_queens.solutions import SIZE, attacks, distance, form, nearest, solutions


TASK = EightQueens()


def fewest(placed: tuple[int, ...], fixed: int) -> int:
    """The fewest queens that have to be moved, by depth-first search over rows with a limit that is raised."""

    def search(row: int, columns: set[int], down: set[int], up: set[int], limit: int) -> bool:
        if row == SIZE:
            return True
        for column in [placed[row]] if fixed >> row & 1 else range(SIZE):
            cost = column != placed[row]
            if cost > limit or column in columns or row + column in up or row - column in down:
                continue
            if search(row + 1, columns | {column}, down | {row - column}, up | {row + column}, limit - cost):
                return True
        return False

    return next(limit for limit in range(SIZE + 1) if search(0, set(), set(), set(), limit))


def state(placed: tuple[int, ...], fixed: int) -> QueensState:
    left = distance(placed, nearest(placed, fixed))
    return QueensState(placed, fixed, left, left)


START = state((0, 4, 7, 5, 2, 6, 3, 1), 0b00000011)  # the last two queens are wrong, the first two fixed


def test_there_are_92_solutions() -> None:
    assert len(set(solutions())) == 92
    assert all(not attacks(each) and sorted(each) == list(range(SIZE)) for each in solutions())
    assert attacks(START.placed) == [
        (one, two)
        for one, two in itertools.combinations(range(SIZE), 2)
        if abs(START.placed[one] - START.placed[two]) == two - one
    ]


@pytest.mark.parametrize(
    ("reply", "left", "moves", "costs"),
    [
        ("Queens: r7c2 r8c4", 0, 2, {"steps": -0.02}),
        ("Queens: r8c4, r7c2", 0, 2, {"steps": -0.02}),
        ("queens: R7C2", 1, 1, {"steps": -0.01}),
        ("Queens: r7c4", 2, 0, {}),  # it is there
        ("Queens: r1c1 r7c2", 1, 1, {"steps": -0.01}),  # fixed there
        ("Queens: r1c2 r7c2 r8c4", 2, 0, {"fixed": -0.1}),
    ],
)
def test_queens_are_moved_unless_one_is_fixed(reply: str, left: int, moves: int, costs: dict[str, float]) -> None:
    move = TASK.parse(reply)
    assert not isinstance(move, Unreadable)
    after = TASK.apply(START, move)
    assert (after.left, after.moves, TASK.costs(START, move, after)) == (left, moves, pytest.approx(costs))
    assert TASK.value(after) == pytest.approx(1 - left / 2)
    assert TASK.solved(after) is (left == 0)


@pytest.mark.parametrize(
    "reply", ["", "Queens:", "Queens: r9c1", "Queens: r1c0", "Queens: r1c1 r1c2", "Queens: r1c1;r2c3", "r1c1"]
)
def test_other_replies_are_unreadable(reply: str) -> None:
    assert isinstance(TASK.parse(reply), Unreadable)


@pytest.mark.parametrize("number", [20, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("level", range(1, len(LEVELS) + 1))
def test_an_optimum_is_that_of_another_search_and_the_oracles(level: int, number: int) -> None:
    fixed, least, most = LEVELS[level - 1]
    for seed in range(number):
        each = TASK.generate(seed, SPLITS[seed % 3], level)
        assert each.fixed.bit_count() == fixed
        assert least <= each.most == fewest(each.placed, each.fixed) <= most
        after = TASK.apply(each, TASK.oracle(each))
        assert (after.left, after.moves) == (0, each.most)


def test_fixed_queens_have_one_form_turned_and_mirrored() -> None:
    cells = [(0, 1), (2, 7)]
    turned = [(column, SIZE - 1 - row) for row, column in cells]
    assert form(cells) == form(turned) == form([(row, SIZE - 1 - column) for row, column in turned])
    assert form(cells) != form([(0, 1), (2, 6)])


def test_no_split_has_the_fixed_queens_of_another_one() -> None:
    forms = {
        split: {
            form([(row, column) for row, column in enumerate(each.placed) if each.fixed >> row & 1])
            for level in range(1, len(LEVELS) + 1)
            for seed in range(25)
            for each in [TASK.generate(seed, split, level)]
        }
        for split in SPLITS
    }
    assert all(not forms[one] & forms[two] for one, two in itertools.combinations(SPLITS, 2))


def test_the_picture_shows_fixed_queens_and_those_that_attack() -> None:
    assert TASK.rows(START)[:3] == ["F.......", "....F...", ".......Q"]
    tiles = TASK.tiles(START)
    attacking = {row for pair in attacks(START.placed) for row in pair}
    red = {row for row in range(SIZE) for tile in tiles[row] if tile.fill == "#c62828" and tile.text}
    assert red == attacking - {0, 1}
