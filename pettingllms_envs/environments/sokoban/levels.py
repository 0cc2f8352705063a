"""Sokoban levels as text: the XSB format, one level or a file of them.

Symbols: `#` wall, `@` player, `+` player on a goal, `$` box, `*` box on a goal, `.` goal, and space, `-` or `_` for
floor. Rows may be ragged, end in CR LF, and be run-length encoded (`3#-$`, rows also parted by `|`). In a file, other
lines are comments, and a level's id is the comment next to it: the last one before it, or the first one after it if
the file has a comment after its last level. Source: http://sokobano.de/wiki/index.php?title=Level_format.

Cells that the player could never reach become walls. A box on a goal among them goes with them; it is decoration.
"""

from __future__ import annotations

import re
from pathlib import Path

from pettingllms_envs.environments.sokoban.bound import DEAD, MAX_SIDE, Position, cells_of, lower_bound, region


_SYMBOLS = "#@+$*.-"
_ROW = re.compile(r"[ \t]*[0-9]*[#@+$*.\-_]")  # and there is a wall in it, as in every row of a closed room
_RUN = re.compile(r"([0-9]{1,3})(.)")


def read_level(text: str, where: str = "the level") -> Position:
    """The position that a level shows, which errors call `where`.

    Empty lines around its rows, and lines that begin with `;`, do not matter.

    Raises:
        ValueError: It is no level, several, too large, or found out to be unsolvable (`bound.lower_bound`).
    """
    lines = text.splitlines()
    full = [number for number, line in enumerate(lines) if line.strip() and line.lstrip()[0] != ";"]
    first, last = (full[0], full[-1]) if full else (0, -1)
    gap = next((number for number in range(first, last) if number not in full), None)
    if gap is not None:
        raise ValueError(
            f"{where}, line {gap + 1}: rows go on after an empty line or a comment, as in a file of several levels;"
            " expected one level. Keep the rows of one; from Python, load_levels reads them all."
        )
    return _position(_rows(lines[first : last + 1]), where, first + 1)


def write_level(position: Position) -> str:
    """The level as rows of `#@+$*.-`, each ended by a line break but the last."""
    width, walls, goals, boxes, player = position
    cells = ["#" if walls >> cell & 1 else "-" for cell in range(walls.bit_length())]
    for cell in cells_of(goals):
        cells[cell] = "."
    for cell in cells_of(boxes):
        cells[cell] = "*" if goals >> cell & 1 else "$"
    cells[player] = "+" if goals >> player & 1 else "@"
    return "\n".join("".join(cells[at : at + width]) for at in range(0, len(cells), width))


def load_levels(path: str | Path) -> tuple[tuple[str, str], ...]:
    """The levels of a file, each as its id and its rows. A level without an id gets its number, from 1."""
    levels: list[tuple[int, list[str]]] = []  # the number of the first line, and the rows
    before = [""]  # per level the last comment before it; and the last comment of the file
    after: list[str] = []  # per level the first comment after it
    in_level = False
    for number, line in enumerate(Path(path).read_text("utf-8-sig").splitlines(), 1):
        if _ROW.match(line) and "#" in line:
            if not in_level:
                levels.append((number, []))
                before.append("")
                after.append("")
            levels[-1][1].append(line)
            in_level = True
            continue
        in_level = False
        comment = line.strip().lstrip(";").strip()
        if comment:
            before[-1] = comment
            if after and not after[-1]:
                after[-1] = comment
    if not levels:
        raise ValueError(f"{path} has no level in it; expected rows of '{_SYMBOLS}'. Give a file in the XSB format.")
    names = after if after[-1] else before
    named = [(name or str(index), *level) for index, (name, level) in enumerate(zip(names, levels, strict=False), 1)]
    for name, number, rows in named:
        _position(_rows(rows), f"{path}, level {name}", number)
    return tuple((name, "\n".join(rows)) for name, _, rows in named)


def _rows(lines: list[str]) -> list[str]:
    """The rows without run lengths and without the white space at their ends."""
    unpacked = [_RUN.sub(lambda run: int(run[1]) * run[2], line) for line in lines]
    return [row.rstrip() for line in unpacked for row in line.split("|")]


def _position(rows: list[str], where: str, line: int) -> Position:
    height, width = len(rows), max(map(len, rows), default=0)
    if not 3 <= height <= MAX_SIDE or not 3 <= width <= MAX_SIDE:
        raise ValueError(
            f"{where}, line {line}: {height} rows of at most {width} cells; expected 3 to {MAX_SIDE} of both."
            " Give the rows of one level."
        )
    for number, row in enumerate(rows, line):
        strange = next((symbol for symbol in row if symbol not in _SYMBOLS + "_ "), None)
        if strange is not None:
            raise ValueError(
                f"{where}, line {number}: the symbol {strange!r}; expected only '{_SYMBOLS}', '_' or spaces."
                " Remove it, or begin a comment with ';'."
            )
    cells = "".join([row.ljust(width) for row in rows])
    players = [cell for cell, symbol in enumerate(cells) if symbol in "@+"]
    if len(players) != 1:
        raise ValueError(
            f"{where}, line {line + (players[1] // width if players else 0)}: {len(players)} players; expected one."
            " Mark one cell '@', or '+' if it is a goal."
        )
    return _enclosed(cells, width, players[0], where, line)


def _enclosed(cells: str, width: int, player: int, where: str, line: int) -> Position:
    """The part of a board that the player can reach, once it is checked."""
    every = (1 << len(cells)) - 1
    walls, goals, boxes = (
        sum(1 << cell for cell, symbol in enumerate(cells) if symbol in kind) for kind in ("#", ".*+", "$*")
    )
    rim = sum(1 << cell for cell in range(len(cells)) if cell % width in (0, width - 1)) | (1 << width) - 1
    rim |= every ^ every >> width
    # `region` needs a wall at the end of each run of free cells, so the rim is left out and looked at afterwards.
    inside = region(every & ~(walls | rim), 1 << player, width) if not rim >> player & 1 else 0
    leaks = (inside << 1 | inside >> 1 | inside << width | inside >> width) & rim & ~walls
    if leaks or not inside:
        row = line + (cells_of(leaks)[0] if leaks else player) // width
        raise ValueError(
            f"{where}, line {row}: the player can leave the board; expected walls all round. Close the gap with '#'."
        )
    problem = _miscounted(goals, boxes, inside)
    if problem:
        raise ValueError(f"{where}, line {line}: {problem}")
    position = Position(width, every & ~inside, goals & inside, boxes & inside, player)
    if lower_bound(position) == DEAD:
        raise ValueError(
            f"{where}, line {line}: it has no solution, as some boxes can never all reach goals; expected a level"
            " that can be solved. Move the boxes, the goals or the player."
        )
    return position


def _miscounted(goals: int, boxes: int, inside: int) -> str:
    """What is wrong with the boxes and goals, or nothing."""
    if not boxes & inside:
        return "no box that the player could reach; expected at least one. Mark one '$'."
    num_goals, num_boxes = goals.bit_count(), boxes.bit_count()
    if num_goals != num_boxes:
        return f"{num_boxes} boxes and {num_goals} goals; expected as many goals as boxes. Add or remove some."
    if (goals ^ boxes) & ~inside:
        return "a box or a goal that the player can never reach; expected them inside the room. Open a wall."
    return ""
