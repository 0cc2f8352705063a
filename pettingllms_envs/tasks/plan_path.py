"""Plan-Path: walk from the start to the goal on a grid with blocked cells, a list of moves at a time.

Rules: an n x n grid (10 by default) with 22% of the cells blocked. A move is a list of the letters U D L R, at most
4n of them; they are played in order, and the walk ends before the first one that is blocked or leaves the grid.
Success is *standing* on the goal when the walk ends; walking across it does not count, so a long spray of moves does
not succeed.
Potential: 1 - distance / distance at the start, both exact; from 1 down to 1 - (free cells - 1) / distance at the
start. Costs of a move: `bump` -0.1 if the walk was cut short, `steps` -0.01 for every cell walked (at least -0.04n).
Outcome: `success`; `regret` = 1 - SPL in [0, 1], SPL = success * optimal / max(moves, optimal) (Anderson et al. 2018,
arXiv:1807.06757); `moves` walked so far, `optimal` from the start, `distance` left.
Instances: a function of version, size, blocked share, distance range, split and seed. The splits are disjoint up to
the eight symmetries of the square: 80/10/10 by the SHA-256 digest of the canonical form of grid, start and goal.
Source: the Plan-Path task of arXiv:2510.11062, without the loop that out-scores the shortest path there.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from pettingllms_envs.core import Unreadable


Moves = tuple[str, ...]

LETTERS = "UDLR"
SPLITS = ("train", "validation", "test")
BUMP = -0.1
STEP = -0.01
MAX_SIZE = 100  # the bitmask of a larger grid would pass Python's limit on the digits of a printed integer

_NO_SEPARATORS = str.maketrans("", "", " \t,")
_LIST = r"[UDLR](?:[ \t]*(?:,[ \t]*)?[UDLR])*"
_ANSWER = re.compile(rf"moves:[ \t]*(?:\[[ \t]*({_LIST})[ \t]*\]|\([ \t]*({_LIST})[ \t]*\)|({_LIST}))", re.I | re.A)


@dataclass(frozen=True, slots=True)
class PlanPathState:
    """A walker on a grid. Cells are numbered row by row from 0, so cell = row * size + column.

    Args:
        size: Rows and columns.
        blocked: Bit c is set when cell c is blocked.
        start: The cell where the instance began.
        goal: The cell to stand on.
        position: The cell where the walker stands.
        walked: Cells walked since the start.
    """

    size: int
    blocked: int
    start: int
    goal: int
    position: int
    walked: int = 0


@lru_cache(maxsize=32)
def _neighbours(size: int) -> tuple[tuple[int, ...], ...]:
    """Per cell the cells up, down, left and right of it, -1 for off the grid."""
    last = size - 1
    return tuple(
        (
            cell - size if cell >= size else -1,
            cell + size if cell < size * last else -1,
            cell - 1 if cell % size else -1,
            cell + 1 if cell % size < last else -1,
        )
        for cell in range(size * size)
    )


@lru_cache(maxsize=32)
def _symmetries(size: int) -> tuple[tuple[int, ...], ...]:
    """Per symmetry of the square, where each cell goes."""
    last = size - 1
    cells = [divmod(cell, size) for cell in range(size * size)]
    turned = [
        [(r, c) for r, c in cells],
        [(c, last - r) for r, c in cells],
        [(last - r, last - c) for r, c in cells],
        [(last - c, r) for r, c in cells],
    ]
    return tuple(tuple(r * size + c for r, c in t) for t in turned) + tuple(
        tuple(r * size + last - c for r, c in t) for t in turned
    )


@lru_cache(maxsize=1024)
def distances(size: int, blocked: int, goal: int) -> tuple[int, ...]:
    """Length of the shortest walk from each cell to the goal, -1 where there is none. Breadth-first, cached."""
    neighbours = _neighbours(size)
    field = [-2 if blocked >> cell & 1 else -1 for cell in range(size * size)]
    field[goal] = 0
    queue = [goal]
    for cell in queue:
        further = field[cell] + 1
        for other in neighbours[cell]:
            if other >= 0 and field[other] == -1:
                field[other] = further
                queue.append(other)
    return tuple(max(distance, -1) for distance in field)


def split_of(size: int, cells: list[int], start: int, goal: int) -> str:
    """The split of an instance, the same for all its rotations and reflections. `cells` are the blocked ones."""
    form = min((sorted(map(to.__getitem__, cells)), to[start], to[goal]) for to in _symmetries(size))
    bucket = int.from_bytes(hashlib.sha256(repr((size, *form)).encode()).digest()[:8], "big") % 10
    return "train" if bucket < 8 else SPLITS[bucket - 7]


@dataclass(frozen=True, slots=True)
class PlanPath:
    """The task. Its state is a `PlanPathState`, its move a tuple of the letters U D L R.

    Args:
        size: Rows and columns of the grid, 3 to 100.
        blocked: Share of the cells that are blocked, in [0, 1).
        min_distance: Least number of steps from start to goal, at least 1.
        max_distance: Greatest number of steps, or None for no limit.

    Raises:
        ValueError: A value is out of its range, or no instances with these values were found in some split.
    """

    size: int = 10
    blocked: float = 0.22
    min_distance: int = 2
    max_distance: int | None = None

    name: ClassVar[str] = "plan_path"
    version: ClassVar[int] = 0
    instance_fields: ClassVar[tuple[str, ...]] = ("split",)

    def __post_init__(self) -> None:
        _check(self.size, self.blocked, self.min_distance, self.max_distance)
        object.__setattr__(self, "blocked", float(self.blocked))
        for split in SPLITS:
            _check_split(self.size, self.blocked, self.min_distance, self.max_distance, split)

    @property
    def max_moves(self) -> int:
        """Most moves in one reply."""
        return 4 * self.size

    def generate(self, seed: int, split: str = "train") -> PlanPathState:
        """The instance of a seed in a split: `"train"`, `"validation"` or `"test"`.

        Raises:
            ValueError: There is no such split.
        """
        if split not in SPLITS:
            raise ValueError(f"split is {split!r}; expected one of {', '.join(SPLITS)}. Change the option or column.")
        draws = _draws(self.size, self.blocked, self.min_distance, self.max_distance, split, seed)
        return next(state for state in draws if state is not None)

    def parse(self, reply: str) -> Moves | Unreadable:
        """Read the last line with anything on it, which must be `Moves:` and a list of U D L R and nothing else.

        Case does not matter; the letters may be separated by spaces, tabs and single commas or not at all, and the
        list may be in round or square brackets. Linear in the length of the reply.
        """
        line = reply.rstrip()
        line = line[max(line.rfind("\n"), line.rfind("\r")) + 1 :].strip()
        found = _ANSWER.fullmatch(line)
        if found is None:
            return Unreadable(_why_unreadable(line))
        letters = found[found.lastindex or 0].upper().translate(_NO_SEPARATORS)
        if len(letters) > self.max_moves:
            return Unreadable(f"it has {len(letters)} moves, and at most {self.max_moves} are allowed")
        return tuple(letters)

    def apply(self, state: PlanPathState, move: Moves) -> PlanPathState:
        """Walk until the moves end or the next one is blocked or leaves the grid."""
        neighbours, blocked = _neighbours(state.size), state.blocked
        position, walked = state.position, state.walked
        for letter in move:
            cell = neighbours[position][LETTERS.index(letter)]
            if cell < 0 or blocked >> cell & 1:
                break
            position = cell
            walked += 1
        return PlanPathState(state.size, blocked, state.start, state.goal, position, walked)

    def solved(self, state: PlanPathState) -> bool:
        """Whether the walker stands on the goal."""
        return state.position == state.goal

    def value(self, state: PlanPathState) -> float:
        """1 - distance / distance at the start."""
        field = distances(state.size, state.blocked, state.goal)
        return 1 - field[state.position] / field[state.start]

    def costs(self, before: PlanPathState, move: Moves, after: PlanPathState) -> Mapping[str, float]:
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
        size, position = state.size, state.position
        cells = ["#" if state.blocked >> cell & 1 else "." for cell in range(size * size)]
        cells[state.goal] = "G"
        cells[position] = "@"
        rows = "\n".join(" ".join(cells[start : start + size]) for start in range(0, size * size, size))
        free = " ".join(
            letter
            for letter, cell in zip(LETTERS, _neighbours(size)[position], strict=True)
            if cell >= 0 and not state.blocked >> cell & 1
        )
        here, there = _where(position, size), _where(state.goal, size)
        way = _way(state.goal // size - position // size, state.goal % size - position % size)
        return f"{rows}\nYou are at {here}. The goal is at {there}: {way}.\nFree moves here: {free}"

    def describe(self, before: PlanPathState, move: Moves, after: PlanPathState, *, proposed: bool = False) -> str:
        """The letters and where the walk ends, or where and after how many moves it is blocked."""
        walked, where = after.walked - before.walked, _where(after.position, after.size)
        if walked < len(move):
            verb = "would be" if proposed else "was"
            end = f"It {verb} blocked after {walked} move{'' if walked == 1 else 's'}, at {where}."
        else:
            verb = "would end" if proposed else "ended"
            end = f"It {verb} {'on the goal, ' if self.solved(after) else ''}at {where}."
        return f"{' '.join(move)}. {end}"

    def oracle(self, state: PlanPathState, rng: random.Random | None = None) -> Moves:
        """A shortest walk to the goal, as much of it as fits into one reply; empty on the goal.

        Args:
            state: Where to start from.
            rng: Chooses evenly among the shortest steps at each cell; without it the first in the order U D L R is
                taken.
        """
        field, neighbours = distances(state.size, state.blocked, state.goal), _neighbours(state.size)
        moves: list[str] = []
        cell = state.position
        while field[cell] and len(moves) < self.max_moves:
            closer = [i for i, other in enumerate(neighbours[cell]) if other >= 0 and field[other] == field[cell] - 1]
            step = closer[0] if rng is None else rng.choice(closer)
            moves.append(LETTERS[step])
            cell = neighbours[cell][step]
        return tuple(moves)

    def write(self, move: Moves) -> str:
        """`("R", "R", "D")` is written `Moves: R R D`."""
        return "Moves: " + " ".join(move)

    def outcome(self, state: PlanPathState) -> Mapping[str, bool | int | float]:
        """`success`, `regret` (1 - SPL, in [0, 1]), `moves` walked, `optimal` moves, `distance` left."""
        field = distances(state.size, state.blocked, state.goal)
        optimal, success = field[state.start], self.solved(state)
        return {
            "success": success,
            "regret": 1 - optimal / max(state.walked, optimal) if success else 1.0,
            "moves": state.walked,
            "optimal": optimal,
            "distance": field[state.position],
        }


def _way(down: int, right: int) -> str:
    """The offset in words, `"2 down, 3 right"`: as the crow flies, whatever is blocked on the way."""
    rows = f"{abs(down)} {'down' if down > 0 else 'up'}" if down else ""
    columns = f"{abs(right)} {'right' if right > 0 else 'left'}" if right else ""
    return ", ".join(filter(None, (rows, columns))) or "here"


def _where(cell: int, size: int) -> str:
    row, column = divmod(cell, size)
    return f"row {row}, column {column}"


def _why_unreadable(line: str) -> str:
    """A reason in fixed words: a prompt must not carry text that a model made up."""
    if not line:
        return "it is empty"
    if line[:6].lower() != "moves:":
        return "its last line does not begin with 'Moves:'"
    if not line[6:].strip(" \t,[]()"):
        return "its list of moves is empty"
    if "moves:" in line[6:].lower():
        return "its last line has more than one list of moves"
    return "its last line has something other than U, D, L and R after 'Moves:'"


def _draws(
    size: int, blocked: float, low: int, high: int | None, split: str, seed: int
) -> Iterator[PlanPathState | None]:
    """Random grids without end: the state where it is in range and in the split, else None."""
    rng = random.Random(f"plan_path v{PlanPath.version} size={size} blocked={blocked} split={split} seed={seed}")
    cells = size * size
    while True:
        *walls, start, goal = rng.sample(range(cells), _num_blocked(size, blocked) + 2)
        mask = sum(1 << cell for cell in walls)
        distance = distances(size, mask, goal)[start]
        in_range = distance >= low and (high is None or distance <= high)
        fits = in_range and split_of(size, walls, start, goal) == split
        yield PlanPathState(size, mask, start, goal, start) if fits else None


def _num_blocked(size: int, blocked: float) -> int:
    return round(blocked * size * size)


def _check(size: Any, blocked: Any, low: Any, high: Any) -> None:
    """Raise ValueError for settings that no grid can meet."""
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
    if high is not None and (not isinstance(high, int) or high < low):
        raise ValueError(f"max_distance is {high!r}; expected None or at least min_distance, {low}. Raise it.")


@lru_cache(maxsize=256)
def _check_split(size: int, blocked: float, low: int, high: int | None, split: str) -> None:
    """Raise ValueError when a search for one instance gives up. An error is not cached, a success is."""
    tries = max(200, min(5000, 500_000 // (size * size)))
    if not any(state for state, _ in zip(_draws(size, blocked, low, high, split, 0), range(tries), strict=False)):
        raise ValueError(
            f"found no {split} instance in {tries} draws with size {size}, blocked {blocked}, min_distance {low},"
            f" max_distance {high}; expected one. Widen the distances, block less, or take a larger grid."
        )
