"""Plan-Path: walk from the start to the goal on a grid with blocked cells, a list of moves at a time.

Rules: an n x n grid (10 by default) with 22% of the cells blocked. A move is a list of the letters U D L R, at most
4n of them; they are played in order, and the walk ends before the first one that is blocked or leaves the grid.
Success is *standing* on the goal when the walk ends; walking across it does not count, so a long spray of moves does
not succeed.
Potential: 1 - distance / distance at the start, both exact; from 1 down to 1 - (free cells - 1) / distance at the
start. Costs of a move: `bump` -0.1 if the walk was cut short, `steps` -0.01 for every cell walked (at least -0.04n).
Outcome: `success`; `regret` = 1 - SPL in [0, 1], SPL = success * optimal / max(moves, optimal) (Anderson et al. 2018,
arXiv:1807.06757); `moves` walked so far, `optimal` from the start, `distance` left.
Instances: a function of version, settings, split, level and seed, or a board written out. The splits are disjoint up
to the eight symmetries of the square: 80/10/10 by the SHA-256 digest of the canonical form of grid, start and goal.
Levels, on an n x n grid, by the distance and by the detour (how much longer than without blocked cells it is):
1: at most n/2, none; 2: n/2 to n, none; 3: n/2 or more, 2 or more; 4: n or more, 4 or more; 5: 3n/2 or more, 6 or
more. Levels 4 and 5 block 35% of the cells.
Source: the Plan-Path task of arXiv:2510.11062, without the loop that out-scores the shortest path there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import SPLITS, Tile, Unreadable, check_choice
from pettingllms_envs.instances import seeded, split_of
from pettingllms_envs.replies import blind_moves, read_moves, write_moves
from pettingllms_envs.tasks.grid import ways


BUMP = -0.1
STEP = -0.01
FLOOR, WALL, GOAL, WALKER = "#f4f1ea", "#4a4e57", "#3a9d5d", "#2f6fde"
_SYMBOLS = bytes.maketrans(b"01", b".#")
MAX_SIZE = 100  # the bitmask of a larger grid would pass Python's limit on the digits of a printed integer


class PlanPathState(NamedTuple):
    """A walker on a grid. Cells are numbered row by row from 0, so cell = row * size + column.

    Args:
        size: Rows and columns.
        blocked: Bit c is set when cell c is blocked.
        start: The cell where the instance began.
        goal: The cell to stand on.
        position: The cell where the walker stands.
        optimal: Length of the shortest walk from the start to the goal.
        left: Length of the shortest walk from the position to the goal.
        walked: Cells walked since the start.
    """

    size: int
    blocked: int
    start: int
    goal: int
    position: int
    optimal: int
    left: int
    walked: int = 0


@lru_cache(maxsize=32)
def _neighbours(size: int) -> tuple[dict[str, int], ...]:
    """Per cell the cell that each letter leads to, -1 for off the grid."""
    last = size - 1
    return tuple(
        {
            "U": cell - size if cell >= size else -1,
            "D": cell + size if cell < size * last else -1,
            "L": cell - 1 if cell % size else -1,
            "R": cell + 1 if cell % size < last else -1,
        }
        for cell in range(size * size)
    )


@lru_cache(maxsize=128)
def within(size: int, blocked: int, goal: int, start: int | None = None) -> tuple[int, ...]:
    """Per number of steps the cells, as a bit mask, from which the goal can be reached in that many or fewer.

    With a start the first mask that has it in is the last one.
    """
    left, right, free = _inner(size)
    free &= ~blocked
    reached, near, wanted = 1 << goal, 0, 0 if start is None else 1 << start
    masks = []
    while reached != near:
        masks.append(reached)
        if reached & wanted:
            break
        near = reached
        reached |= ((near & right) << 1 | (near & left) >> 1 | near << size | near >> size) & free
    return tuple(masks)


def distance(size: int, blocked: int, goal: int, cell: int) -> int:
    """Length of the shortest walk from the cell to the goal, -1 if there is none."""
    masks = within(size, blocked, goal, cell)
    return len(masks) - 1 if masks[-1] >> cell & 1 else -1


@lru_cache(maxsize=32)
def _inner(size: int) -> tuple[int, int, int]:
    """Bit masks of the cells that have one to their left, of those that have one to their right, of all."""
    row = (1 << size) - 1
    every = (1 << size * size) - 1
    rows = every // row
    return every - rows, every - (rows << size - 1), every


@lru_cache(maxsize=32)
def _orbits(size: int) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """The cells that rotations and reflections take to each other: per cell its orbit's number; a mask of each."""
    last = size - 1
    keys = [
        tuple(sorted((min(row, last - row), min(column, last - column))))
        for row, column in (divmod(cell, size) for cell in range(size * size))
    ]
    numbers = {key: number.to_bytes(2, "big") for number, key in enumerate(dict.fromkeys(keys))}
    masks = [sum(1 << cell for cell, own in enumerate(keys) if own == key) for key in numbers]
    return tuple(numbers[key] for key in keys), tuple(masks)


def form(size: int, blocked: int, start: int, goal: int) -> bytes:
    """What all rotations and reflections of an instance have in common: how many of each orbit's cells are blocked,
    and the orbits of start and goal."""
    orbit_of, masks = _orbits(size)
    return bytes([(blocked & mask).bit_count() for mask in masks]) + orbit_of[start] + orbit_of[goal]


class Difficulty(NamedTuple):
    """Which instances are meant: the share of blocked cells, and least and greatest distance and detour."""

    blocked: float
    min_distance: int
    max_distance: int | None = None
    min_detour: int = 0
    max_detour: int | None = None


def levels(size: int) -> Mapping[int, Difficulty]:
    """The difficulty of each level; see the top of this file."""
    half, near, far = max(2, size // 2), max(2, size), size + size // 2
    return {
        1: Difficulty(0.22, 1, half, 0, 0),
        2: Difficulty(0.22, half, near, 0, 0),
        3: Difficulty(0.22, half, None, 2),
        4: Difficulty(0.35, near, None, 4),
        5: Difficulty(0.35, far, None, 6),
    }


@dataclass(frozen=True, slots=True)
class PlanPath:
    """The task. Its state is a `PlanPathState`, its move a `str` of the letters U D L R.

    Args:
        size: Rows and columns of the grid, 3 to 100.
        blocked: Share of the cells that are blocked, in [0, 1).
        min_distance: Least number of steps from start to goal, at least 1.
        max_distance: Greatest number of steps, or None for no limit.
        min_detour: Least number of steps more than without blocked cells, at least 0.
        max_detour: Greatest number of such steps, or None for no limit.

    Raises:
        ValueError: A value is out of its range, or no instances with these values were found in some split.
    """

    size: int = 10
    blocked: float = 0.22
    min_distance: int = 2
    max_distance: int | None = None
    min_detour: int = 0
    max_detour: int | None = None

    name: ClassVar[str] = "plan_path"
    version: ClassVar[int] = 0
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "split": SPLITS,
        "level": (1, 2, 3, 4, 5),
        "board": (),
    }

    def __post_init__(self) -> None:
        wanted = Difficulty(self.blocked, self.min_distance, self.max_distance, self.min_detour, self.max_detour)
        _check(self.size, wanted)
        object.__setattr__(self, "blocked", abs(float(self.blocked)))  # -0.0 is 0.0
        for split in SPLITS:
            _check_split(self.size, self._wanted(None), split)

    @property
    def max_moves(self) -> int:
        """Most moves in one reply."""
        return 4 * self.size

    @property
    def blind_replies(self) -> tuple[str, ...]:
        """Each letter, each to the end, to and fro, rounds, every move."""
        return blind_moves(self.max_moves)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Of the potential, which is least far away from an instance of distance 1, and of the costs."""
        return {
            "value": (2.0 - self.size * self.size, 1.0),
            "bump": (BUMP, 0.0),
            "steps": (STEP * self.max_moves, 0.0),
        }

    def generate(
        self, seed: int, split: str = "train", level: int | None = None, board: str | None = None
    ) -> PlanPathState:
        """The instance of a seed in a split, at a level or else as the settings say; or the board given.

        Args:
            seed: Any whole number.
            split: `"train"`, `"validation"` or `"test"`.
            level: 1 to 5, instead of the settings' share of blocked cells, distances and detours.
            board: An instance as `show` writes its grid; then seed, split and level do not matter.

        Raises:
            ValueError: There is no such split or level, or none with this size, or the board is none.
        """
        if board is not None:
            return read_board(board, self.size)
        check_choice("split", split, SPLITS)
        wanted = self._wanted(level)
        if level is not None:
            _check_split(self.size, wanted, split)
        return next(filter(None, _draws(self.size, wanted, split, seed)))

    def _wanted(self, level: int | None) -> Difficulty:
        if level is None:
            return Difficulty(self.blocked, self.min_distance, self.max_distance, self.min_detour, self.max_detour)
        check_choice("level", level, self.instance_fields["level"])
        return levels(self.size)[level]

    def parse(self, reply: str) -> str | Unreadable:
        """See `pettingllms_envs.replies.read_moves`; at most `max_moves` moves."""
        return read_moves(reply, self.max_moves)

    def apply(self, state: PlanPathState, move: str) -> PlanPathState:
        """Walk until the moves end or the next one is blocked or leaves the grid."""
        size, blocked, start, goal, position, optimal, left, walked = state
        neighbours, masks = _neighbours(size), within(size, blocked, goal, start)
        for letter in move:
            cell = neighbours[position][letter]
            if cell < 0 or blocked >> cell & 1:
                break
            position = cell
            walked += 1
            if left > len(masks):  # farther away than the start
                masks = within(size, blocked, goal)
            # The cells of a grid alternate like a chessboard's, so a step changes the distance by exactly one.
            left += -1 if left and masks[left - 1] >> cell & 1 else 1
        return tuple.__new__(  # in half the time of `PlanPathState(...)`
            PlanPathState, (size, blocked, start, goal, position, optimal, left, walked)
        )

    def solved(self, state: PlanPathState) -> bool:
        """Whether the walker stands on the goal."""
        return state.position == state.goal

    def value(self, state: PlanPathState) -> float:
        """1 - distance / distance at the start."""
        return 1 - state.left / state.optimal

    def costs(self, before: PlanPathState, move: str, after: PlanPathState) -> Mapping[str, float]:
        """`bump` if the walk was cut short, `steps` for the cells walked."""
        walked = after.walked - before.walked
        costs = {"steps": STEP * walked} if walked else {}
        if walked < len(move):
            costs["bump"] = BUMP
        return costs

    def rules(self) -> str:
        """The game in 66 words."""
        return (
            "Walk on a grid: '@' is you, 'G' the goal, '#' blocked, '.' free. Rows count from 0 at the top, columns"
            " from 0 at the left. U, D, L, R move one cell up, down, left, right. The walk stops before a move that is"
            " blocked or leaves the grid. You succeed by standing on the goal when the moves end. At most"
            f" {self.max_moves} moves."
        )

    def reply_format(self) -> str:
        """How a reply ends."""
        return "End your reply with one line: Moves: and then U, D, L or R, separated by spaces."

    def show(self, state: PlanPathState) -> str:
        """The grid row by row, then where the walker and the goal are, then the letters that are not blocked here."""
        size, blocked, _, goal, position, _, _, _ = state
        rows, (places, edges, around, free) = _picture(size, blocked, goal), _words(size)
        taken = blocked << size >> position & around | edges[position]
        way = _way(goal // size - position // size, goal % size - position % size)
        return (
            f"{rows[: 2 * position]}@{rows[2 * position + 1 :]}\nYou are at {places[position]}. The goal is at"
            f" {places[goal]}: {way}.\nFree moves here: {free[taken]}"
        )

    def tiles(self, state: PlanPathState) -> list[list[Tile]]:
        """Blocked cells dark, the goal green, the start ringed, the walker blue."""
        cells = [Tile("", WALL if state.blocked >> cell & 1 else FLOOR) for cell in range(state.size**2)]
        cells[state.start] = Tile("", FLOOR, shape="ring", fill=WALKER)
        cells[state.goal] = Tile("G", FLOOR, "#ffffff", "square", GOAL)
        paper = GOAL if self.solved(state) else FLOOR
        cells[state.position] = Tile("@", paper, "#ffffff", "disc", WALKER)
        return [cells[at : at + state.size] for at in range(0, len(cells), state.size)]

    def describe(self, before: PlanPathState, move: str, after: PlanPathState, *, proposed: bool = False) -> str:
        """The letters and where the walk ends, or where and after how many moves it is blocked."""
        walked = after.walked - before.walked
        size, _, _, goal, position, _, _, _ = after
        place = _words(size).places[position]
        if walked < len(move):
            verb = "would be" if proposed else "was"
            end = f"It {verb} blocked after {walked} move{'' if walked == 1 else 's'}, at {place}."
        else:
            verb = "would end" if proposed else "ended"
            end = f"It {verb} {'on the goal, ' if position == goal else ''}at {place}."
        return f"{' '.join(move)}. {end}"

    def oracle(self, state: PlanPathState, rng: random.Random | None = None) -> str:
        """A shortest walk to the goal, as much of it as fits into one reply; empty on the goal.

        Args:
            state: Where to start from.
            rng: Chooses evenly among the shortest steps at each cell; without it the first in the order U D L R is
                taken.
        """
        masks, neighbours = within(state.size, state.blocked, state.goal), _neighbours(state.size)
        moves, cell = "", state.position
        for nearer in masks[: state.left][::-1][: self.max_moves]:
            closer = [letter for letter, other in neighbours[cell].items() if other >= 0 and nearer >> other & 1]
            letter = closer[0] if rng is None else rng.choice(closer)
            moves += letter
            cell = neighbours[cell][letter]
        return moves

    def write(self, move: str) -> str:
        """`"RRD"` is written `Moves: R R D`."""
        return write_moves(move)

    def outcome(self, state: PlanPathState) -> Mapping[str, bool | int | float]:
        """`success`, `regret` (1 - SPL, in [0, 1]), `moves` walked, `optimal` moves, `distance` left."""
        _, _, _, _, _, optimal, left, walked = state
        return {
            "success": not left,
            "regret": 1.0 if left else 1 - optimal / max(walked, optimal),
            "moves": walked,
            "optimal": optimal,
            "distance": left,
        }


def read_board(board: str, size: int) -> PlanPathState:
    """The instance that a grid of `@` (start), `G` (goal), `#` and `.` shows; spaces are ignored.

    Raises:
        ValueError: It is no such grid of this size, or no walk leads to the goal.
    """
    rows = ["".join(line.split()) for line in board.splitlines() if line.strip()]
    cells = "".join(rows)
    if len(rows) != size or any(len(row) != size for row in rows) or cells.strip("@G#.") or set(cells) - set("@G#."):
        raise ValueError(
            f"the board has rows of {[len(row) for row in rows]} cells; expected {size} rows of {size} of '@' (start),"
            " 'G' (goal), '#' (blocked) and '.' (free). Write it as show() does, or set size."
        )
    if cells.count("@") != 1 or cells.count("G") != 1:
        raise ValueError(
            f"the board has {cells.count('@')} '@' and {cells.count('G')} 'G'; expected one start and one goal."
        )
    start = cells.index("@")
    blocked = sum(1 << cell for cell, symbol in enumerate(cells) if symbol == "#")
    goal = cells.index("G")
    steps = distance(size, blocked, goal, start)
    if steps < 0:
        raise ValueError("no walk leads from '@' to 'G' on the board; expected one. Open a blocked cell.")
    return PlanPathState(size, blocked, start, goal, start, steps, steps)


@lru_cache(maxsize=128)
def _picture(size: int, blocked: int, goal: int) -> str:
    """The grid without the walker, a row a line, with a space after every cell but a row's last."""
    symbols = bytearray(_blank(size))
    symbols[::2] = f"{blocked | 1 << size * size:b}".encode().translate(_SYMBOLS)[:0:-1]  # cell 0 first, no cell lost
    symbols[2 * goal] = 71  # G
    return symbols.decode()


@lru_cache(maxsize=32)
def _blank(size: int) -> bytes:
    """A grid without cells: what stands between them."""
    return b"\n".join([b" " * (2 * size - 1)] * size)


class Words(NamedTuple):
    """What the texts of a grid are made of.

    Args:
        places: How the cells are called, by number.
        edges: Per cell the ways off the grid, as a part of `around`.
        around: See `pettingllms_envs.tasks.grid.ways`.
        free: See there.
    """

    places: tuple[str, ...]
    edges: tuple[int, ...]
    around: int
    free: Mapping[int, str]


@lru_cache(maxsize=32)
def _words(size: int) -> Words:
    places = tuple(f"row {row}, column {column}" for row in range(size) for column in range(size))
    bits = {"U": 1, "D": 1 << 2 * size, "L": 1 << size - 1, "R": 1 << size + 1}
    edges = tuple(sum(bits[letter] for letter, cell in cells.items() if cell < 0) for cells in _neighbours(size))
    return Words(places, edges, *ways(size))


@lru_cache(maxsize=1024)
def _way(down: int, right: int) -> str:
    """The offset in words, `"2 down, 3 right"`: as the crow flies, whatever is blocked on the way."""
    rows = f"{abs(down)} {'down' if down > 0 else 'up'}" if down else ""
    columns = f"{abs(right)} {'right' if right > 0 else 'left'}" if right else ""
    return f"{rows}, {columns}" if rows and columns else rows or columns or "here"


def _draws(size: int, wanted: Difficulty, split: str, seed: int) -> Iterator[PlanPathState | None]:
    """Random grids without end: the state where it is as wanted and in the split, else None."""
    rng = seeded(f"{_stem(size, *wanted, split)} {seed}")
    num_cells, num_blocked = size * size, _num_blocked(size, wanted.blocked)
    while True:
        blocked = _mask(rng, num_cells, num_blocked)
        start = _free(rng, num_cells, blocked)
        goal = _free(rng, num_cells, blocked | 1 << start)
        if split_of(form(size, blocked, start, goal)) == split:
            steps = distance(size, blocked, goal, start)
            if _fits(size, wanted, start, goal, steps):
                yield PlanPathState(size, blocked, start, goal, start, steps, steps)
                continue
        yield None


def _fits(size: int, wanted: Difficulty, start: int, goal: int, steps: int) -> bool:
    """Whether an instance with this distance is as wanted."""
    low, high, least, most = wanted.min_distance, wanted.max_distance, wanted.min_detour, wanted.max_detour
    if steps < low or (high is not None and steps > high):
        return False
    if not least and most is None:
        return True
    detour = steps - abs(start // size - goal // size) - abs(start % size - goal % size)
    return detour >= least and (most is None or detour <= most)


@lru_cache(maxsize=256, typed=True)
def _stem(*settings: object) -> str:
    """What decides an instance besides its seed."""
    return " ".join(map(str, (PlanPath.name, f"v{PlanPath.version}", *settings)))


def _free(rng: random.Random, num_cells: int, blocked: int) -> int:
    """A cell that is not blocked."""
    while True:
        cell = int(rng.random() * num_cells)
        if not blocked >> cell & 1:
            return cell


def _mask(rng: random.Random, num_cells: int, num_set: int) -> int:
    """A bit mask with that many of its bits set, all such masks being as likely.

    Random words are combined to about the right share, then random bits are set or cleared; no bit is ever preferred.
    """
    mask = 0
    for more in _shares(num_cells, num_set):
        word = rng.getrandbits(num_cells)
        mask = mask | word if more else mask & word
    surplus = mask.bit_count() - num_set
    every = (1 << num_cells) - 1
    pool = mask if surplus > 0 else mask ^ every  # the bits to choose from
    for _ in range(abs(surplus)):
        while not pool & (bit := 1 << int(rng.random() * num_cells)):
            pass
        pool ^= bit
    return pool if surplus > 0 else pool ^ every


@lru_cache(maxsize=256)
def _shares(num_cells: int, num_set: int) -> tuple[bool, ...]:
    """The share of set bits in sixteenths: its binary digits, the last one first."""
    return tuple(digit == "1" for digit in f"{int(16 * num_set / num_cells):04b}"[::-1])


def _num_blocked(size: int, blocked: float) -> int:
    return round(blocked * size * size)


def _check(size: Any, wanted: Difficulty) -> None:
    """Raise ValueError for settings that no grid can meet."""
    blocked, low, high = wanted.blocked, wanted.min_distance, wanted.max_distance
    if not isinstance(size, int) or not 3 <= size <= MAX_SIZE:
        raise ValueError(f"size is {size!r}; expected a whole number from 3 to {MAX_SIZE}. Choose another.")
    if not isinstance(blocked, int | float) or not 0 <= blocked < 1:
        raise ValueError(f"blocked is {blocked!r}; expected a share of the cells in [0, 1), such as 0.22.")
    free = size * size - _num_blocked(size, blocked)
    if free < 2:
        raise ValueError(
            f"blocked is {blocked!r}, which leaves {free} of {size * size} cells free; expected 2. Lower it."
        )
    if not isinstance(low, int) or not 1 <= low < free:
        raise ValueError(
            f"min_distance is {low!r}; expected 1 to {free - 1}, the longest walk over the {free} free cells of a"
            f" {size} x {size} grid with a share of {blocked} blocked. Lower it, or block less."
        )
    _check_most("distance", low, high)
    if not isinstance(wanted.min_detour, int) or wanted.min_detour < 0:
        raise ValueError(f"min_detour is {wanted.min_detour!r}; expected a whole number of at least 0.")
    _check_most("detour", wanted.min_detour, wanted.max_detour)


def _check_most(name: str, low: int, high: Any) -> None:
    if high is not None and (not isinstance(high, int) or high < low):
        raise ValueError(f"max_{name} is {high!r}; expected None or at least min_{name}, {low}. Raise it.")


@lru_cache(maxsize=256)
def _check_split(size: int, wanted: Difficulty, split: str) -> None:
    """Raise ValueError when a search for one instance gives up. An error is not cached, a success is."""
    tries = max(500, min(20_000, 2_000_000 // (size * size)))
    if not any(state for state, _ in zip(_draws(size, wanted, split, 0), range(tries), strict=False)):
        raise ValueError(
            f"found no {split} instance in {tries} draws with size {size} and {wanted}; expected one. Widen the"
            " distances, ask for less of a detour, block less, or take a larger grid."
        )
