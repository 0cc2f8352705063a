"""Blocksworld: what can be moved, how far a goal is, and that its distances are those of another search."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pettingllms_envs.core import SPLITS, Unreadable
from pettingllms_envs.environments.blocksworld.rules import LEVELS, BlocksState, Blocksworld
from pettingllms_envs.environments.blocksworld.towers import (
    ON_TABLE,
    distance,
    form,
    order_of,
    renamed,
    shapes,
    table_of,
    towers,
)


TASK = Blocksworld()
Pile = frozenset[tuple[int, ...]]


def neighbours(pile: Pile) -> list[Pile]:
    """The piles one move away, as sets of towers from the bottom."""
    found = []
    for tower in pile:
        rest, block = pile - {tower}, tower[-1]
        lower = rest | {tower[:-1]} if len(tower) > 1 else rest
        found += [(lower - {other}) | {(*other, block)} for other in lower if other != tower[:-1]]
        if len(tower) > 1:
            found.append(lower | {(block,)})
    return found


def fewest(start: Pile, goal: Pile) -> int:
    """The fewest moves, searched from both ends."""
    ends, seen, moves = [{start}, {goal}], [{start}, {goal}], 0
    while not ends[0] & seen[1] and not ends[1] & seen[0]:
        side = len(ends[0]) > len(ends[1])
        ends[side] = {each for pile in ends[side] for each in neighbours(pile)} - seen[side]
        seen[side] |= ends[side]
        moves += 1
    return moves


def pile_of(placed: tuple[int, ...]) -> Pile:
    return frozenset(map(tuple, towers(placed)))


def state(placed: tuple[int, ...], goal: tuple[int, ...]) -> BlocksState:
    left = distance(placed, goal)
    return BlocksState(placed, goal, left, left)


# a b on the table, c on a: to be a on b on c.
START, GOAL = (ON_TABLE, ON_TABLE, 0), (1, 2, ON_TABLE)


@pytest.mark.parametrize(
    ("reply", "placed", "moves", "costs"),
    [
        ("Moves: c>table b>c a>b", (1, 2, ON_TABLE), 3, {"steps": -0.03}),
        ("Moves: c > table, b > c", (ON_TABLE, 2, ON_TABLE), 2, {"steps": -0.02}),
        ("Moves: a>b c>table", START, 0, {"bump": -0.1}),  # c lies on a
        ("Moves: c>table b>a a>c", (ON_TABLE, 0, ON_TABLE), 2, {"steps": -0.02, "bump": -0.1}),
        ("Moves: c>a", START, 0, {"bump": -0.1}),  # it is there
        ("Moves: c>c", START, 0, {"bump": -0.1}),
        ("Moves: b>table", START, 0, {"bump": -0.1}),
        ("Moves: f>table", START, 0, {"bump": -0.1}),  # there are three blocks
        ("moves: C>B", (ON_TABLE, ON_TABLE, 1), 1, {"steps": -0.01}),
    ],
)
def test_moves_are_played_until_one_is_not_possible(
    reply: str, placed: tuple[int, ...], moves: int, costs: dict[str, float]
) -> None:
    before, move = state(START, GOAL), TASK.parse(reply)
    assert not isinstance(move, Unreadable)
    after = TASK.apply(before, move)
    assert (after.placed, after.moves, TASK.costs(before, move, after)) == (placed, moves, pytest.approx(costs))
    assert TASK.solved(after) is (placed == GOAL)


def test_the_potential_is_the_share_of_the_way() -> None:
    before = state(START, GOAL)
    assert (before.left, TASK.value(before)) == (3, 0.0)
    assert TASK.value(TASK.apply(before, ((2, ON_TABLE),))) == pytest.approx(1 / 3)
    assert TASK.value(TASK.apply(before, ((2, 1),))) == 0.0  # c on b helps as little
    assert TASK.value(TASK.apply(before, ((1, 2),))) == pytest.approx(-1 / 3)  # b on c has to be undone


@pytest.mark.parametrize(
    "reply", ["", "Moves:", "Moves: a", "Moves: a>g", "Moves: a>b c", "Moves: a>b;c>d", "a>b", "Moves: " + "a>b " * 13]
)
def test_other_replies_are_unreadable(reply: str) -> None:
    assert isinstance(TASK.parse(reply), Unreadable)


def test_there_are_as_many_placements_as_lists_of_lists() -> None:
    assert [len(table_of((number,)).distances) for number in (1, 2, 3, 4, 5)] == [1, 3, 13, 73, 501]
    assert sorted(shapes(4)) == [(1, 1, 1, 1), (2, 1, 1), (2, 2), (3, 1), (4,)]


def test_an_instance_with_other_names_has_the_same_form_and_distance() -> None:
    rng = random.Random(0)
    for seed in range(50):
        one = TASK.generate(seed, level=3)
        names = tuple(rng.sample(range(5), 5))
        placed, goal = renamed(one.placed, names), renamed(one.goal, names)
        assert distance(placed, goal) == one.left
        forms = []
        for start, end in ((one.placed, one.goal), (placed, goal)):
            heights, order = order_of(end)
            forms.append(form(heights, renamed(start, order)))
        assert forms[0] == forms[1]


@pytest.mark.parametrize("number", [10, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("level", range(1, len(LEVELS) + 1))
def test_an_optimum_is_that_of_another_search_and_the_oracles(level: int, number: int) -> None:
    blocks, least, most = LEVELS[level - 1]
    for seed in range(number):
        each = TASK.generate(seed, SPLITS[seed % 3], level)
        assert len(each.placed) == blocks
        assert least <= each.most == fewest(pile_of(each.placed), pile_of(each.goal)) <= most
        after: Any = TASK.apply(each, TASK.oracle(each))
        assert (after.left, after.moves) == (0, each.most)
        assert TASK.outcome(after)["regret"] == 0.0


def test_the_picture_has_the_towers_and_those_of_the_goal() -> None:
    assert TASK.rows(state(START, GOAL)) == ["...|a..", "c..|b..", "ab.|c.."]
    papers = [[tile.text for tile in row] for row in TASK.tiles(state(START, GOAL))]
    assert papers[2] == ["a", "b", "", "", "c", "", ""]
