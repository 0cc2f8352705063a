"""Sokoban: push all boxes onto goals in a room, a list of moves at a time.

Rules: an n x n room (6 by default). A move is a list of the letters U D L R, at most 4n of them; they are played in
order: a step onto a free cell, or a push of one box into a free cell. The walk ends before the first one that a wall
or a box does not allow, and as soon as all boxes are on goals.
Success: all boxes are on goals. The rest of a list is not played then, which helps no blind one: it must have put
every box where it belongs.
Potential: 1 - distance / distance at the start, in moves and exact, not below -1, and -1 where the position can no
longer be solved. In a room with more than 10,000 placements of its boxes (8 x 8 with 4 or 10 x 10 with 3 is about as
many) it counts the least number of pushes that a matching of boxes and goals needs, and is -1 where a dead position is
found out; there `exact` is False. Costs of a move: `bump` -0.1 if the walk was cut short, `steps` -0.01 for every move
played (at least -0.04n).
Outcome: `success`; `regret` = 1 - SPL in [0, 1], SPL = success * optimal / max(moves, optimal) (Anderson et al. 2018,
arXiv:1807.06757; with a lower bound where the optimum is unknown); `moves` and `pushes` so far; `optimal` moves from
the start and `distance` left (-1 if unknown or if there is no solution); `deadlock`: it is proved that there is none;
`boxes_on_goals`; `exact`.
Instances: a function of version, settings, split, level and seed, or a level in the XSB format
(`levels`). Each is solvable and its optimum known. The splits never share a room, not
even turned or mirrored (`generator`).
Levels, in an n x n room, by boxes and optimum in moves: 1: one box, 2 to n-1; 2: one, n to 2n-2; 3: two, n+2 to 2n+2;
4: two, 2n+3 to 4n-2; 5: three, 3n+2 or more, from n = 12 on 38 or more. For n = 5: one, 2 to 3; one, 4 to 5; two, 3
to 4; two, 5 to 6; two, 7 or more; so small rooms are few, a handful in the test split.
Source: the Sokoban task of arXiv:2510.11062, with exact distances, and without success by using up the moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

from pettingllms_envs.boards import Tile
from pettingllms_envs.core import SPLITS, check_choice, check_whole
from pettingllms_envs.environments.sokoban.bound import Position, cells_of, lower_bound
from pettingllms_envs.environments.sokoban.generator import Difficulty, Start, draws, levels
from pettingllms_envs.environments.sokoban.table import Table, distance, table_of
from pettingllms_envs.environments.sokoban.text import STEPS, places_of, pushed, show_room
from pettingllms_envs.instances import seeded
from pettingllms_envs.replies.moves import LETTERS
from pettingllms_envs.tasks.grid import BUMP, STEP, MovesTask, check_most


FLOOR, WALL, GOAL, BOX, PLAYER = "#f4f1ea", "#4a4e57", "#3a9d5d", "#b9783c", "#2f6fde"
MIN_SIZE, MAX_SIZE = 5, 20
MAX_BOXES = 4
ORACLE_NODES = 100_000  # of a search in a room without a table; some seconds


class SokobanState(NamedTuple):
    """A position in a room and how it was reached. See `bound.Position` for the first five.

    Args:
        width: Columns. Cells are numbered row by row from 0, so cell = row * width + column.
        walls: Bit c is set when cell c is a wall; the outermost cells all are.
        exact: Whether `left` is the distance; else it is a lower bound on the pushes.
        optimal: Fewest moves from the start of the instance to the goal, -1 if unknown.
        most: What `left` was at the start.
        left: What is left to the goal, -1 if it is proved that there is no solution.
        pushes: Those of them that pushed a box.
    """

    width: int
    walls: int
    goals: int
    boxes: int
    player: int
    exact: bool
    optimal: int
    most: int
    left: int
    moves: int = 0
    pushes: int = 0

    @property
    def position(self) -> Position:
        """Where everything is, for `solver.solve` and `levels.write_level`."""
        return Position(*self[:5])


@dataclass(frozen=True, slots=True)
class Sokoban(MovesTask[SokobanState]):
    """The task. Its state is a `SokobanState`, its move a `str` of the letters U D L R.

    Args:
        size: Rows and columns of the room with its outer walls, 5 to 20.
        boxes: Boxes and goals, 1 to 4.
        min_distance: Least optimum of an instance in moves, at least 1.
        max_distance: Greatest optimum, or None for no limit.
    """

    size: int = 6
    boxes: int = 1
    min_distance: int = 3
    max_distance: int | None = None

    name: ClassVar[str] = "sokoban"
    single_agent: ClassVar[str] = "single"
    symbols: ClassVar[str] = "@+$*.#-"
    legend: ClassVar[str] = (
        "'@' is the blue disc, '+' the same on a green cell, '$' a brown square, '*' a green one, '.' a green ring, "
        "'#' a dark cell, '-' a light one."
    )

    def __post_init__(self) -> None:
        check_whole("size", self.size, MIN_SIZE, MAX_SIZE)
        check_whole("boxes", self.boxes, 1, MAX_BOXES)
        check_whole("min_distance", self.min_distance, 1)
        check_most("distance", self.min_distance, self.max_distance)
        for split in SPLITS:
            _check_split(self.size, self._wanted(None), split)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {"value": (-1.0, 1.0), **self.cost_ranges()}

    def generate(
        self, seed: int, split: str | None = None, level: int | None = None, board: str | None = None
    ) -> SokobanState:
        """The instance of a seed in a split, at a level or else as the settings say; or the board given.

        Args:
            split: `"train"` (also for None), `"validation"` or `"test"`.
            level: 1 to 5, instead of the settings' boxes and distances.
            board: A level in the XSB format, of any size; then seed, split and level do not matter.
        """
        if board is not None:
            from pettingllms_envs.environments.sokoban.levels import read_level  # generated rooms do without

            return _loaded(read_level(str(board), "the board"))
        split = SPLITS[0] if split is None else split
        check_choice("split", split, SPLITS)
        start = next(filter(None, _draws(self.size, self._wanted(level), split, seed)))
        return _first(start.position, start.optimal)

    def _wanted(self, level: int | None) -> Difficulty:
        if level is None:
            return Difficulty(self.boxes, self.min_distance, self.max_distance)
        check_choice("level", level, self.instance_fields["level"])
        return levels(self.size)[level - 1]

    def apply(self, state: SokobanState, move: str) -> SokobanState:
        """Walk and push until the moves end, the next one is not possible, or all boxes are on goals."""
        width, walls, goals, boxes, player, exact, optimal, most, left, moves, pushes = state
        steps, solid = STEPS[width], walls | boxes
        for letter in move:
            if boxes == goals:
                break
            step = steps[letter]
            ahead = 1 << player + step
            if solid & ahead:
                if walls & ahead:
                    break
                beyond = 1 << player + 2 * step
                if solid & beyond:
                    break
                boxes ^= ahead | beyond
                solid ^= ahead | beyond
                pushes += 1
            player += step
            moves += 1
        if exact:
            table = table_of(width, walls, goals)
            assert table is not None
            left = distance(table, boxes, player)
        else:
            left = lower_bound(Position(width, walls, goals, boxes, player))
        return tuple.__new__(  # in half the time of `SokobanState(...)`
            SokobanState, (width, walls, goals, boxes, player, exact, optimal, most, left, moves, pushes)
        )

    def solved(self, state: SokobanState) -> bool:
        return state.boxes == state.goals

    def value(self, state: SokobanState) -> float:
        """1 - distance / distance at the start, not below -1; -1 if there is no solution."""
        left, most = state.left, state.most
        return -1.0 if left < 0 or left > 2 * most else 1 - left / most

    def costs(self, before: SokobanState, move: str, after: SokobanState) -> Mapping[str, float]:
        """`bump` if the walk was cut short, `steps` for the moves played."""
        played = after.moves - before.moves
        costs = {"steps": STEP * played} if played else {}
        if played < len(move) and after.left:
            costs["bump"] = BUMP
        return costs

    def rules(self) -> str:
        """The game in 120 words."""
        return (
            "Sokoban: push every box onto a goal. '@' is you, '$' a box, '.' a goal, '*' a box on a goal, '+' you on a"
            " goal, '#' a wall, '-' free floor. Places are (row, column), counted from 0 at the top left. U, D, L, R"
            " move you one cell up, down, left, right. If a box is there you push it one cell further, which takes a"
            " free cell behind it; you can push one box at a time and never pull. The moves stop before one that is"
            " not possible. A box in a corner that is no goal is lost. You succeed as soon as all boxes are on goals."
            f" At most {self.max_moves} moves."
        )

    def show(self, state: SokobanState) -> str:
        """The room row by row; where player, boxes and goals are; the letters that are steps or pushes here."""
        return show_room(state.width, state.walls, state.goals, state.boxes, state.player)

    def rows(self, state: SokobanState) -> list[str]:
        num_rows = state.walls.bit_length() // state.width
        return [row.replace(" ", "") for row in self.show(state).splitlines()[:num_rows]]

    def tiles(self, state: SokobanState) -> list[list[Tile]]:
        """Walls dark, goals ringed in green, boxes brown and on goals green, the player blue."""
        width, walls, goals, boxes, player = state.position
        cells = [Tile("", WALL if walls >> cell & 1 else FLOOR) for cell in range(walls.bit_length())]
        for cell in cells_of(goals):
            cells[cell] = Tile("", FLOOR, shape="ring", fill=GOAL)
        for cell in cells_of(boxes):
            cells[cell] = Tile("", FLOOR, shape="square", fill=GOAL if goals >> cell & 1 else BOX)
        cells[player] = Tile("@", "#cfe6d6" if goals >> player & 1 else FLOOR, "#ffffff", "disc", PLAYER)
        return [cells[at : at + width] for at in range(0, len(cells), width)]

    def describe(self, before: SokobanState, move: str, after: SokobanState, *, proposed: bool = False) -> str:
        """The letters, where they lead, what stopped them, how many pushes, and how many boxes are on goals."""
        width, walls, goals, boxes, player, _, _, _, left, moves, pushes = after
        played, pushes = moves - before.moves, pushes - before.pushes
        place = places_of(width)[player]
        if left and played < len(move):
            stop = "a wall" if walls >> player + STEPS[width][move[played]] & 1 else "a box that cannot be pushed"
            end = f"Move {played + 1} {'would be' if proposed else 'was'} stopped by {stop}, at {place}"
        else:
            end = f"They would end at {place}" if proposed else f"They ended at {place}"
        placed, num_boxes = (boxes & goals).bit_count(), goals.bit_count()
        pushed = "1 push" if pushes == 1 else f"{pushes} pushes"
        return f"{' '.join(move)}. {end}, after {pushed}, with {placed} of {num_boxes} boxes on goals."

    def oracle(self, state: SokobanState) -> str:
        """A shortest solution, as much of it as fits into one reply; empty if solved.

        In a room without a table A* looks for it, and gives up at a fixed number of positions: then it is a solution
        with fewest pushes, or if that is too far too, as in a position that cannot be solved, one possible move.
        """
        if state.left == 0:
            return ""
        moves = _plan(state.position) if state.left > 0 else ""
        return moves[: self.max_moves] or _possible(state.position)

    def outcome(self, state: SokobanState) -> Mapping[str, bool | int | float]:
        """`success`, the regret (1 - SPL), moves and pushes, the optimum, and how far the boxes are; -1 is unknown."""
        _, _, goals, boxes, _, exact, optimal, most, left, moves, pushes = state
        best = most if optimal < 0 else optimal
        return {
            "success": not left,
            "regret": 1.0 if left else 1 - best / max(moves, best),
            "moves": moves,
            "pushes": pushes,
            "optimal": optimal,
            "distance": left if exact or left <= 0 else -1,
            "deadlock": left < 0,
            "boxes_on_goals": (boxes & goals).bit_count(),
            "exact": exact,
        }


def _first(position: Position, optimal: int = -1) -> SokobanState:
    """The start of an instance; `optimal` is looked up if there is a table."""
    table = table_of(position.width, position.walls, position.goals)
    if table is None:
        most = lower_bound(position)
    else:
        most = optimal = distance(table, position.boxes, position.player)
    return SokobanState(*position, table is not None, optimal, most, most)


def _loaded(position: Position) -> SokobanState:
    state = _first(position)
    if state.left <= 0:
        what = "has no solution" if state.left < 0 else "is solved already"
        raise ValueError(
            f"the board {what}; expected boxes that can all be pushed onto goals. Move a box, a goal or the player."
        )
    return state


@lru_cache(maxsize=256)  # every role of a turn asks
def _plan(position: Position) -> str:
    """A solution; empty if it is too far. See `Sokoban.oracle`."""
    table = table_of(position.width, position.walls, position.goals)
    if table is not None:
        return _down(table, position)
    from pettingllms_envs.environments.sokoban.solver import SearchLimitError, solve  # most rooms have a table

    for by in ("moves", "pushes"):
        try:
            solution = solve(position, by, max_nodes=ORACLE_NODES)
        except SearchLimitError:
            continue
        return solution.moves if solution else ""
    return ""


def _down(table: Table, position: Position) -> str:
    """The moves that lower the distance by one each; the first of them in the order U D L R."""
    width, walls, _, boxes, player = position
    letters = ""
    for left in range(distance(table, boxes, player) - 1, -1, -1):
        for letter, step in STEPS[width].items():
            after = pushed(walls, boxes, player, step)
            if after and distance(table, after, player + step) == left:
                letters += letter
                boxes = after
                player += step
                break
    return letters


def _possible(position: Position) -> str:
    """The first letter that is possible, `"U"` if there is none."""
    width, walls, _, boxes, player = position
    return next((letter for letter, step in STEPS[width].items() if pushed(walls, boxes, player, step)), LETTERS[0])


def _draws(size: int, wanted: Difficulty, split: str, seed: int) -> Iterator[Start | None]:
    limits = wanted.boxes, wanted.min_distance, wanted.max_distance
    return draws(size, wanted, split, seeded(Sokoban.name, f"v{Sokoban.version}", size, *limits, split, seed))


@lru_cache(maxsize=256)
def _check_split(size: int, wanted: Difficulty, split: str) -> None:
    """Raise ValueError when a search for one instance gives up. An error is not cached, a success is."""
    tries = 100_000 // size**2
    if not any(start for start, _ in zip(_draws(size, wanted, split, 0), range(tries), strict=False)):
        raise ValueError(
            f"found no {split} instance in {tries} rooms of size {size} with {wanted}; expected one. Widen the"
            " distances, or change the size or the number of boxes."
        )
