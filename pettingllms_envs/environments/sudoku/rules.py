"""Sudoku: fill a grid so that each row, column and box has every digit once; the clues stay.

Rules: a grid of 4 x 4 cells (boxes of 2 x 2; the default), 6 x 6 (2 rows x 3 columns) or 9 x 9 (3 x 3) with clues that
leave exactly one solution. A move is a list of fills or a whole grid. A move that contradicts a clue is not played at
all; one may overwrite what an earlier move filled. Success is *this* puzzle's solution: a valid grid with other digits
where the clues are does not count.
Potential: (right - wrong) / cells empty at the start, in [-1, 1]: an empty cell is one change away from its digit, a
wrong one two (erase and fill). So a guess among two or more digits gains nothing on average.
Costs of a move: `clue` -0.1 if it contradicts a clue.
Outcome: `success`; `empty` and `wrong` cells; `conflicts`, how often a row, column or box has a digit twice; `clues`.
Instances: a function of version, size, empty cells, split, level and seed, or a board written out. That the solution
is the only one is proved by a search (`solver`), for 4 x 4 by a table of all puzzles (`table`). The
splits, 80/10/10 by SHA-256, are disjoint up to all symmetries of Sudoku: the digits; rows within bands, bands, columns
within stacks, stacks; transposition where boxes are square. What is hashed is the exact canonical form for 4 x 4, else
how the clues are spread over bands, stacks and digits (`digging.form`).
Levels: by the number of empty cells and the hardest step that a solver needs (`solver.GRADES`), see `LEVELS`.
Every 4 x 4 puzzle with one solution can be solved by naked singles alone, so there only the empty cells differ.
Source: the Sudoku task of arXiv:2510.11062, whose checker takes any valid grid and whose puzzles mostly have no
solution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from operator import eq
from typing import ClassVar, NamedTuple

from pettingllms_envs.boards import Tile
from pettingllms_envs.core import SPLITS, Unreadable, check_choice, check_whole
from pettingllms_envs.environments.sudoku import digging, table, text
from pettingllms_envs.environments.sudoku.solver import BOXES, candidates, solutions
from pettingllms_envs.instances import seeded
from pettingllms_envs.tasks.base import OpenTask
from pettingllms_envs.tasks.grid import BOARD_FIELDS


CLUE = -0.1
MOST_NAMED = 5  # contradicted clues in one description
PAPERS, CLUE_INK, FILL_INK, CONFLICT_INK = ("#ffffff", "#e4e0d6"), "#1c1c1c", "#2f6fde", "#c62828"

# Empty cells by size: the fewest and most that a task may ask for, and the fewest and most without a wish.
EMPTIES = {4: (3, 11, 6, 10), 6: (6, 24, 14, 20), 9: (10, 54, 41, 45)}


class Level(NamedTuple):
    """A difficulty: the fewest and most empty cells, and the grades that will do (none named: any)."""

    min_empty: int
    max_empty: int
    grades: tuple[int, ...] = ()


LEVELS = {
    4: (Level(3, 5), Level(6, 7), Level(8, 9), Level(10, 10), Level(11, 11)),
    6: (Level(8, 11, (1,)), Level(12, 15, (1,)), Level(16, 19, (1,)), Level(20, 23, (1,)), Level(23, 24, (2, 3, 4))),
    9: (Level(28, 34, (1,)), Level(36, 42, (1,)), Level(46, 51, (2,)), Level(52, 54, (3,)), Level(52, 54, (4,))),
}


class SudokuState(NamedTuple):
    """A puzzle and what was filled so far; each a text of digits row by row, 0 for an empty cell.

    Args:
        grid: The clues and the player's digits.
        solution: The only full grid with these clues. It is never shown.
    """

    clues: str
    grid: str
    solution: str


@dataclass(frozen=True, slots=True)
class Sudoku(OpenTask[SudokuState]):
    """The task. Its state is a `SudokuState`, its move the fills as pairs (cell, digit) sorted by cell.

    Args:
        size: Rows, columns and digits: 4, 6 or 9.
        min_empty: Fewest cells that are empty at the start, 3 to 11 for size 4, 6 to 24 for 6, 10 to 54 for 9; None
            for 6, 14 or 41 (or `max_empty`, if that is less).
        max_empty: Most such cells, in the same range; None for 10, 20 or 45 (or `min_empty`, if that is more).
    """

    size: int = 4
    min_empty: int | None = None
    max_empty: int | None = None

    name: ClassVar[str] = "sudoku"
    single_agent: ClassVar[str] = "single"
    symbols: ClassVar[str] = ".123456789"
    legend: ClassVar[str] = "A cell without a digit is '.', and boxes are in two shades."
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = BOARD_FIELDS

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or self.size not in BOXES:
            raise ValueError(f"size is {self.size!r}; expected one of {', '.join(map(str, BOXES))}. Choose one.")
        least, most, low, high = EMPTIES[self.size]
        for name, value in (("min_empty", self.min_empty), ("max_empty", self.max_empty)):
            if value is not None:
                check_whole(f"{name} of a grid of size {self.size}", value, least, most)
        fewest, greatest = self.min_empty, self.max_empty
        if fewest is None:
            fewest = low if greatest is None else min(low, greatest)
        if greatest is None:
            greatest = max(high, fewest)
        if greatest < fewest:
            raise ValueError(f"max_empty is {greatest}; expected at least min_empty, {fewest}. Raise it.")
        object.__setattr__(self, "min_empty", fewest)
        object.__setattr__(self, "max_empty", greatest)

    @property
    def blind_replies(self) -> tuple[str, ...]:  # type: ignore[override]
        """Valid grids that were drawn for no puzzle, grids of one digit, a row, the first cell, the last cell."""
        size, digits = self.size, "123456789"[: self.size]
        whole = [*table.GRIDS] if size == 4 else [_regular(size)]
        whole += [grid[::-1] for grid in whole] + [digit * size * size for digit in digits]
        fills: list[text.Fills] = [tuple(enumerate(grid)) for grid in dict.fromkeys(whole)]
        fills += [tuple(enumerate(digits)), *(((cell, digit),) for cell in (0, size * size - 1) for digit in digits)]
        return tuple(map(self.write, fills))

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """All empty cells filled wrongly, or all rightly; the cost of a move."""
        return {"value": (-1.0, 1.0), "clue": (CLUE, 0.0)}

    def generate(
        self, seed: int, split: str = "train", level: int | None = None, board: str | None = None
    ) -> SudokuState:
        """The instance of a seed in a split, with as many empty cells as the settings or the level say.

        Args:
            level: 1 to 5, instead of the settings; None for these.
            board: A puzzle written out, whatever its split: digits, with 0, `.` or `_` for empty cells. White space
                and box lines do not matter. Seed, split and level are not used then.
        """
        if board is not None:
            return _puzzle(self.size, board)
        check_choice("split", split, SPLITS)
        if level is None:
            assert self.min_empty is not None
            assert self.max_empty is not None
            wanted = Level(self.min_empty, self.max_empty)
        else:
            check_choice("level", level, self.instance_fields["level"])
            wanted = LEVELS[self.size][int(level) - 1]
        fewest, greatest, grades = wanted
        rng = seeded("sudoku", "v0", self.size, fewest, greatest, grades, split, seed)
        if self.size == 4:
            number, extra = divmod(rng.getrandbits(64), greatest - fewest + 1)
            clues, solution = table.draw(number, fewest + extra, split)
        else:
            empties = rng.randint(fewest, greatest)
            clues, solution = digging.draw(rng, self.size, empties, split, grades)
        return SudokuState(clues, clues, solution)

    def parse(self, reply: str) -> text.Fills | Unreadable:
        """The fills, or the digits of the whole grid, that the reply ends with; see `text.read_reply`."""
        return text.read_reply(self.size, reply)

    def apply(self, state: SudokuState, move: text.Fills) -> SudokuState:
        """Fill the cells; nothing at all if a clue is contradicted."""
        clues, grid = state.clues, list(state.grid)
        for cell, digit in move:
            if clues[cell] != digit and clues[cell] != "0":
                return state
            grid[cell] = digit
        return SudokuState(clues, "".join(grid), state.solution)

    def solved(self, state: SudokuState) -> bool:
        """Whether the grid is the puzzle's solution."""
        return state.grid == state.solution

    def value(self, state: SudokuState) -> float:
        """(right - wrong) / cells empty at the start."""
        clues, grid, solution = state
        to_fill = clues.count("0")
        filled = to_fill - grid.count("0")
        right: int = sum(map(eq, grid, solution)) - len(grid) + to_fill
        return (2 * right - filled) / to_fill

    def costs(self, before: SudokuState, move: text.Fills, after: SudokuState) -> Mapping[str, float]:
        """`clue` if the move contradicts a clue."""
        return {"clue": CLUE} if _broken(before, move) else {}

    def rules(self) -> str:
        """The game in about 100 words."""
        high, wide = BOXES[self.size]
        return (
            f"Sudoku: fill the {self.size} x {self.size} grid so that every row, every column and every box has each"
            f" of the digits 1 to {self.size} once. A box is {high} rows high and {wide} columns wide; lines are drawn"
            " between boxes. '.' is an empty cell. Rows count from 1 at the top, columns from 1 at the left: r1c2 is"
            " the second cell of the top row. The digits given at the start are clues: they stay, and a reply that"
            " contradicts one is not played at all. You may overwrite what was filled since. There is exactly one"
            " solution."
        )

    def reply_format(self) -> str:
        return (
            "End your reply with one line such as Fill: r1c2=3 r2c4=1 (each cell with its digit), or with Grid: and"
            " then all the rows from the top, separated by /, with . for a cell left as it is."
        )

    def show(self, state: SudokuState) -> str:
        """The grid, how many cells are empty, what was filled so far, and which digits are twice where."""
        clues, grid, _ = state
        size = self.size
        lines = f"{text.lay_out(size, grid)}\nEmpty cells: {grid.count('0')}."
        if grid != clues:
            filled = tuple([(cell, grid[cell]) for cell in text.filled_cells(clues, grid)])
            lines += f" Filled since the start: {text.name_fills(size, filled)}."
            twice = text.conflicts(size, clues, grid)
            if twice:
                lines += f"\nAgainst the rules, twice: {', '.join(twice)}."
        return lines

    def describe(self, before: SudokuState, move: text.Fills, after: SudokuState, *, proposed: bool = False) -> str:
        """What is filled, and which digits are now twice somewhere; or which clues the move contradicts."""
        names, would = text.cell_names(self.size), "would be" if proposed else "was"
        broken = _broken(before, move)
        if broken:
            clues = ", ".join(f"{names[cell]} is the clue {before.clues[cell]}" for cell in broken[:MOST_NAMED])
            more = f", and {len(broken) - MOST_NAMED} more" if len(broken) > MOST_NAMED else ""
            return f"Nothing {would} filled, because clues are contradicted: {clues}{more}."
        filled = tuple((cell, digit) for cell, digit in move if before.grid[cell] != digit)
        if not filled:
            return f"Nothing {would} changed: these digits are there already."
        twice = text.conflicts(self.size, after.clues, after.grid)
        if twice:
            earlier = text.conflicts(self.size, before.clues, before.grid)
            twice = tuple(each for each in twice if each not in earlier)
        end = f" {'Then' if proposed else 'Now'} twice, against the rules: {', '.join(twice)}." if twice else ""
        return f"{text.name_fills(self.size, filled)}.{end}"

    def oracle(self, state: SudokuState) -> text.Fills:
        """The fills of all cells that are empty or wrong; of all cells if there are none."""
        pairs = enumerate(zip(state.grid, state.solution, strict=True))
        return tuple((cell, right) for cell, (now, right) in pairs if now != right) or tuple(enumerate(state.solution))

    def write(self, move: text.Fills) -> str:
        """`Fill: r1c2=3 r2c4=1`, or `Grid: 1234/3412/2143/4321` if every cell has a fill."""
        return text.write_fills(self.size, move)

    def outcome(self, state: SudokuState) -> Mapping[str, bool | int | float]:
        """`success`; cells `empty` and `wrong`; `conflicts`, digits twice in a row, column or box; `clues`."""
        clues, grid, solution = state
        empty = grid.count("0")
        return {
            "success": grid == solution,
            "empty": empty,
            "wrong": len(grid) - empty - sum(map(eq, grid, solution)),
            "conflicts": len(text.conflicts(self.size, clues, grid)),
            "clues": len(clues) - clues.count("0"),
        }

    def rows(self, state: SudokuState) -> list[str]:
        """The grid's symbols, without lines between the boxes."""
        cells, size = state.grid.replace("0", "."), self.size
        return [cells[start : start + size] for start in range(0, len(cells), size)]

    def tiles(self, state: SudokuState) -> list[list[Tile]]:
        """Boxes in two shades, clues dark, the player's digits blue, those in conflict red."""
        size, (high, wide) = self.size, BOXES[self.size]
        conflicting = text.conflict_cells(size, state.clues, state.grid)
        cells = []
        for cell, (clue, digit) in enumerate(zip(state.clues, state.grid, strict=True)):
            row, column = divmod(cell, size)
            ink = CLUE_INK if clue == digit else CONFLICT_INK if cell in conflicting else FILL_INK
            cells.append(Tile("" if digit == "0" else digit, PAPERS[(row // high + column // wide) % 2], ink))
        return [cells[start : start + size] for start in range(0, size * size, size)]


def _broken(state: SudokuState, move: text.Fills) -> list[int]:
    """The clue cells for which the move has another digit."""
    clues = state.clues
    return [cell for cell, digit in move if clues[cell] != digit and clues[cell] != "0"]


def _regular(size: int) -> str:
    """A valid grid: each row is the one above, shifted."""
    high, wide = BOXES[size]
    shifts = [row % high * wide + row // high for row in range(size)]
    return "".join("123456789"[(shift + column) % size] for shift in shifts for column in range(size))


def _puzzle(size: int, board: str) -> SudokuState:
    """The start state of a board written out."""
    clues = text.read_board(size, board)
    expected = "expected a puzzle with exactly one solution. Correct the board."
    if "0" not in clues:
        raise ValueError(f"board {clues} has no empty cell; {expected}")
    twice = text.conflicts(size, "0" * len(clues), clues)
    if twice:
        raise ValueError(f"board {clues} has a digit twice: {', '.join(twice)}; {expected}")
    found = [*islice(solutions(size, candidates(size, clues)), 2)]
    if len(found) != 1:
        raise ValueError(f"board {clues} has {'more than one' if found else 'no'} solution; {expected}")
    return SudokuState(clues, clues, found[0])
