"""Sokoban's instances: random rooms played backwards, so that each can be solved and its optimum is known.

A room is a random floor (3/16 of the inner cells are walls at first, and of the rest one connected part is kept) with
random goals. Where its table (`table`) is in reach, the optimum of every solvable start is known: a length is
drawn first and then a start of that length, so long ones are as likely as short ones. In larger rooms boxes are pulled
away from the goals at random and the optimum is what A* finds; rooms that take it too long are passed over.

The split is that of the room: its walls and goals decide it, the same for all eight symmetries of the square, so that
no room of one split is ever seen in another.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from pettingllms_envs.environments.sokoban.bound import Position, cells_of, region, steps_of
from pettingllms_envs.environments.sokoban.table import at_distance, longest, table_of
from pettingllms_envs.instances import split_of


NODES: Final = 3_000  # of A* in a room without a table; that takes up to 0.1 s


class Start(NamedTuple):
    """Where an instance begins, and the fewest moves from there to the goal."""

    position: Position
    optimal: int


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Which instances are meant: how many boxes, and the least and greatest optimum in moves."""

    boxes: int
    min_distance: int
    max_distance: int | None = None


def levels(size: int) -> tuple[Difficulty, ...]:
    """The difficulty of each level from 1 up, in rooms of `size` rows and columns."""
    if size == 5:
        ranges = ((1, 2, 3), (1, 4, 5), (2, 3, 4), (2, 5, 6), (2, 7, None))
    else:
        ranges = (
            (1, 2, size - 1),
            (1, size, 2 * size - 2),
            (2, size + 2, 2 * size + 2),
            (2, 2 * size + 3, 4 * size - 2),
            (3, min(3 * size + 2, 38), None),  # more takes too long to find in large rooms
        )
    return tuple(Difficulty(*numbers) for numbers in ranges)


def draws(size: int, wanted: Difficulty, split: str, rng: random.Random) -> Iterator[Start | None]:
    """Random rooms without end: a start as wanted if the room is of the split and has one, else None."""
    boxes = wanted.boxes
    while True:
        floor = _floor(rng, size)
        cells = cells_of(floor)
        if len(cells) < boxes + 2:
            yield None
            continue
        goals = 0
        while goals.bit_count() < boxes:
            goals |= 1 << cells[int(rng.random() * len(cells))]
        if split_of(room_form(size, cells, cells_of(goals))) != split:
            yield None
            continue
        yield _start(rng, size, ((1 << size * size) - 1) ^ floor, goals, wanted)


def room_form(size: int, floor: list[int], goals: list[int]) -> bytes:
    """The least of the eight rotations and reflections of a room's floor and goals, as bits."""
    weights, lane = _turns(size)
    # A cell's weight has a bit in each of eight lanes, where one symmetry each puts it: one sum turns the whole room.
    every = sum([weights[cell] for cell in floor]) | sum([weights[cell] for cell in goals]) << size * size
    whole = every.to_bytes(8 * lane, "little")
    return min([whole[at : at + lane] for at in range(0, 8 * lane, lane)])


@lru_cache(maxsize=32)
def _turns(size: int) -> tuple[tuple[int, ...], int]:
    """Per cell its weight in `room_form`, and the length of a lane in bytes."""
    lane, last = (2 * size * size + 7) // 8, size - 1
    weights = []
    for row in range(size):
        for column in range(size):
            corners = [(r, c) for r in (row, last - row) for c in (column, last - column)]
            places = [r * size + c for r, c in corners] + [c * size + r for r, c in corners]
            weights.append(sum(1 << number * 8 * lane + place for number, place in enumerate(places)))
    return tuple(weights), lane


@lru_cache(maxsize=32)
def _inner(size: int) -> int:
    return sum(1 << row * size + column for row in range(1, size - 1) for column in range(1, size - 1))


def _floor(rng: random.Random, size: int) -> int:
    """The free cells of a room; all of them hang together."""
    bits, inner = size * size, _inner(size)
    draw = rng.getrandbits
    free = inner & ~(draw(bits) & draw(bits) & (draw(bits) | draw(bits)))
    while True:
        some = 1 << int(rng.random() * bits)
        if some & inner:
            return region(free | some, some, size)


def _start(rng: random.Random, size: int, walls: int, goals: int, wanted: Difficulty) -> Start | None:
    """A start in this room whose optimum is in range, or None."""
    table = table_of(size, walls, goals)
    if table is None:
        return _played_back(rng, size, walls, goals, wanted)
    low, high = wanted.min_distance, wanted.max_distance
    most = longest(table)
    # Without a limit every length of the room is as likely; with one every length of the range, if the room has it.
    optimal = low + int(rng.random() * ((most if high is None else high) - low + 1))
    if not low <= optimal <= most:
        return None
    starts = [(boxes, player) for boxes, players in at_distance(table, optimal) for player in cells_of(players)]
    boxes, player = starts[int(rng.random() * len(starts))]
    return Start(Position(size, walls, goals, boxes, player), optimal)


def _played_back(rng: random.Random, size: int, walls: int, goals: int, wanted: Difficulty) -> Start | None:
    """A start that random pulls led to, if A* finds its optimum quickly and that is in range."""
    low, high = wanted.min_distance, wanted.max_distance
    position = Position(size, walls, goals, goals, 0)
    seen = {goals}
    for _ in range(1 + int(rng.random() * (low + 4 * size if high is None else high))):
        choices = [pull for pull in _pulls(position) if pull.boxes not in seen]
        if not choices:
            break
        position = choices[int(rng.random() * len(choices))]
        seen.add(position.boxes)
    if position.boxes == goals:
        return None
    from pettingllms_envs.environments.sokoban.solver import SearchLimitError, solve  # most rooms have a table

    try:
        solution = solve(position, "moves", max_nodes=NODES)
    except SearchLimitError:
        return None
    optimal = len(solution.moves) if solution else 0
    return Start(position, optimal) if low <= optimal and (high is None or optimal <= high) else None


def _pulls(position: Position) -> list[Position]:
    """The positions that one push brings here after some walk; at the end of a game the player may be anywhere."""
    width, walls, goals, boxes, player = position
    free = ~(walls | boxes) & (1 << walls.bit_length()) - 1
    reach = region(free, 1 << player, width) if player else free
    return [
        Position(width, walls, goals, boxes ^ 1 << box ^ 1 << box - step, box - 2 * step)
        for step in steps_of(width)
        for box in cells_of(boxes)
        if reach >> box - step & 1 and reach >> box - 2 * step & 1
    ]
