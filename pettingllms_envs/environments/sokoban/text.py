"""Sokoban as text: the room laid out, cells named, and the letters that are steps or pushes."""

from __future__ import annotations

from functools import lru_cache

from pettingllms_envs.environments.sokoban.bound import MAX_SIDE, cells_of, steps_of
from pettingllms_envs.replies.moves import LETTERS
from pettingllms_envs.tasks.grid import ways


STEPS = tuple(dict(zip(LETTERS, steps_of(width), strict=True)) for width in range(MAX_SIDE + 1))


def pushed(walls: int, boxes: int, player: int, step: int) -> int:
    """The boxes after a step of the player, 0 if it is not possible."""
    ahead = 1 << player + step
    if walls & ahead:
        return 0
    if not boxes & ahead:
        return boxes
    beyond = 1 << player + 2 * step
    return 0 if (walls | boxes) & beyond else boxes ^ (ahead | beyond)


@lru_cache(maxsize=256)  # every role and every sibling reads the same board
def show_room(width: int, walls: int, goals: int, boxes: int, player: int) -> str:
    """The room row by row; where player, boxes and goals are; the letters that are steps or pushes here."""
    (board, lines), places = _room(width, walls, goals, boxes), places_of(width)
    around, free = ways(width)
    at, above, pushes = 2 * player, player - width, "none"
    steps = free[(walls | boxes) >> above & around] or "none"
    if boxes >> above & around:
        tries = STEPS[width].items()
        can = [letter for letter, step in tries if boxes >> player + step & 1 and pushed(walls, boxes, player, step)]
        pushes = " ".join(can) or pushes
    symbol = "+" if goals >> player & 1 else "@"
    return (
        f"{board[:at]}{symbol}{board[at + 1 :]}\nYou are at {places[player]}. {lines}\n"
        f"Free steps here: {steps}. Pushes here: {pushes}."
    )


@lru_cache(maxsize=256)
def _room(width: int, walls: int, goals: int, boxes: int) -> tuple[str, str]:
    """The room without the player, a space or line break after each cell; and the line on boxes and goals."""
    symbols, places = bytearray(_background(width, walls, goals)), places_of(width)
    for cell in cells_of(boxes):
        symbols[2 * cell] = 42 if goals >> cell & 1 else 36  # * and $
    on, to = (", ".join([places[cell] for cell in cells_of(cells)]) for cells in (boxes, goals))
    return symbols.decode(), f"Boxes: {on}. Goals: {to}."


@lru_cache(maxsize=128)
def _background(width: int, walls: int, goals: int) -> bytes:
    """The room without player and boxes, with a space or line break after each cell."""
    cells = ["#" if walls >> cell & 1 else "." if goals >> cell & 1 else "-" for cell in range(walls.bit_length())]
    rows = [" ".join(cells[at : at + width]) for at in range(0, len(cells), width)]
    return "\n".join(rows).encode()


@lru_cache(maxsize=16)
def places_of(width: int) -> tuple[str, ...]:
    """How the cells are called, by number."""
    return tuple(f"({cell // width}, {cell % width})" for cell in range(width * MAX_SIDE))
