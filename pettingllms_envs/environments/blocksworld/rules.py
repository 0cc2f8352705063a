"""Blocksworld: rebuild towers of blocks, a list of moves at a time.

Rules: blocks lie on the table or on one another. A move takes a block with nothing on it and puts it on another such
block or on the table. A reply is a list of at most 12 moves, played in order until one is not possible.
Success: every block lies where the goal has it, when the moves end.
Potential: 1 - distance / distance at the start, in moves and exact, not below -1. Costs of a reply: `bump` -0.1 if its
moves were cut short, `steps` -0.01 for each move played.
Outcome: `success`; `regret` = 1 - optimal / max(moves, optimal), 1 without success; `moves`; `optimal`; `distance`.
Instances: a function of version, split, level and seed. The splits never share an instance, not even with
other names of the blocks.
Levels, by blocks and distance: 1: four, 2 to 3; 2: four, 4 or more; 3: five, 4 to 5; 4: six, 5 to 6; 5: six, 7 or
more.
Source: the Blocksworld task of arXiv:2510.11062, with exact distances; N. Gupta and D. Nau, "On the complexity of
blocks-world planning", 1992.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pettingllms_envs.boards import Tile
from pettingllms_envs.core import SPLITS, Unreadable, check_choice
from pettingllms_envs.environments.blocksworld.towers import (
    ON_TABLE,
    Move,
    Placement,
    distance,
    draw,
    moved,
    moves_of,
    towers,
)
from pettingllms_envs.instances import seeded
from pettingllms_envs.replies.moves import match_last_line
from pettingllms_envs.tasks.grid import BUMP, STEP, DistanceTask


NAMES, TABLE = "abcdef", "table"
MAX_MOVES = 12
AIR, GAP, BLOCK, PLACED, INK = "#f4f1ea", "#4a4e57", "#b9783c", "#3a9d5d", "#ffffff"
LEVELS = ((4, 2, 3), (4, 4, 9), (5, 4, 5), (6, 5, 6), (6, 7, 99))
"""Blocks, and the least and greatest distance, of each level."""

_MOVE = rf"[{NAMES}][ \t]*>[ \t]*(?:[{NAMES}]|{TABLE})"
_LINE = re.compile(rf"moves:[ \t]*({_MOVE}(?:[ \t,]+{_MOVE})*)", re.I | re.A)
_ONE = re.compile(rf"([{NAMES}])[ \t]*>[ \t]*({TABLE}|[{NAMES}])", re.I | re.A)


class BlocksState(NamedTuple):
    """A placement, the goal, and how far it is; see `towers`.

    Args:
        most: The distance at the start.
    """

    placed: Placement
    goal: Placement
    most: int
    left: int
    moves: int = 0


@dataclass(frozen=True, slots=True)
class Blocksworld(DistanceTask[BlocksState]):
    """The task. Its state is a `BlocksState`, its move a tuple of pairs: a block, and what it is put on."""

    name: ClassVar[str] = "blocksworld"
    single_agent: ClassVar[str] = "single"
    symbols: ClassVar[str] = f"{NAMES}.|"
    legend: ClassVar[str] = (
        "The towers are at the left, those of the goal at the right of the dark columns; blocks where the goal has "
        "them, with all below, are green."
    )

    @property
    def blind_replies(self) -> tuple[str, ...]:  # type: ignore[override]
        """Everything on the table, a tower, to and fro."""
        down = [(block, ON_TABLE) for block in range(4)]
        up = [(block, block - 1) for block in range(1, 4)]
        return tuple(self.write(tuple(each)) for each in (down, up, down + up, [(0, 1), (0, ON_TABLE)] * 2))

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {"value": (-1.0, 1.0), "bump": (BUMP, 0.0), "steps": (STEP * MAX_MOVES, 0.0)}

    def generate(self, seed: int, split: str = "train", level: int = 1) -> BlocksState:
        """The instance of a seed in a split, at a level from 1 to 5."""
        check_choice("split", split, SPLITS)
        check_choice("level", level, self.instance_fields["level"])
        wanted = LEVELS[level - 1]
        placed, goal = draw(seeded(self.name, f"v{self.version}", *wanted, split, seed), *wanted, split)
        far = distance(placed, goal)
        return BlocksState(placed, goal, far, far)

    def parse(self, reply: str) -> tuple[Move, ...] | Unreadable:
        """The moves, if the last line is `Moves:` and a list of them such as `a>b c>table`."""
        found = match_last_line(_LINE, reply, "'Moves:' and a list such as a>b c>table")
        if isinstance(found, Unreadable):
            return found
        pairs = _ONE.findall(found[1].lower())
        if len(pairs) > MAX_MOVES:
            return Unreadable(f"it has {len(pairs)} moves, and at most {MAX_MOVES} are allowed")
        return tuple((NAMES.index(block), ON_TABLE if on == TABLE else NAMES.index(on)) for block, on in pairs)

    def apply(self, state: BlocksState, move: tuple[Move, ...]) -> BlocksState:
        """Move blocks until the moves end or one is not possible."""
        placed, moves = state.placed, state.moves
        for each in move:
            after = moved(placed, each)
            if after is None:
                break
            placed, moves = after, moves + 1
        return BlocksState(placed, state.goal, state.most, distance(placed, state.goal), moves)

    def costs(self, before: BlocksState, move: tuple[Move, ...], after: BlocksState) -> Mapping[str, float]:
        """`bump` if the moves were cut short, `steps` for those played."""
        played = after.moves - before.moves
        costs = {"steps": STEP * played} if played else {}
        return {**costs, "bump": BUMP} if played < len(move) else costs

    def rules(self) -> str:
        """The game in about 90 words."""
        return (
            "Blocks are called by letters, and lie on the table or on one another. Each tower is written from its"
            " lowest block up, such as 'a c b': a on the table, c on a, b on c. A move takes a block that has nothing"
            " on it, and puts it on another block that has nothing on it, or on the table, which has room for all. The"
            " moves are played in order, and stop before one that is not possible. You succeed if every block lies"
            f" where the goal has it when they end. At most {MAX_MOVES} moves."
        )

    def reply_format(self) -> str:
        return "End your reply with one line such as Moves: b>a c>table (b is put on a, then c on the table)."

    def show(self, state: BlocksState) -> str:
        """The towers, and those of the goal."""
        return f"Towers: {_written(state.placed)}\nGoal: {_written(state.goal)}"

    def describe(
        self, before: BlocksState, move: tuple[Move, ...], after: BlocksState, *, proposed: bool = False
    ) -> str:
        """The moves, what stopped them, and the towers after them."""
        played, words = after.moves - before.moves, self.write(move).removeprefix("Moves: ")
        stop = (
            f" Move {played + 1} {'would not be' if proposed else 'was not'} possible." if played < len(move) else ""
        )
        return f"{words}.{stop} {'They would leave' if proposed else 'They left'} {_written(after.placed)}."

    def write(self, move: tuple[Move, ...]) -> str:
        """Such as `Moves: a>b c>table`."""
        names = (*NAMES, TABLE)  # the last one is number ON_TABLE
        return "Moves: " + " ".join(f"{names[block]}>{names[on]}" for block, on in move)

    def oracle(self, state: BlocksState) -> tuple[Move, ...]:
        """A shortest solution; at the goal, one possible move."""
        return _plan(state.placed, state.goal)

    def rows(self, state: BlocksState) -> list[str]:
        """The towers side by side, then a gap, then those of the goal; the table is below the last row."""
        now, goal = _columns(state.placed), _columns(state.goal)
        return [f"{left}|{right}" for left, right in zip(now, goal, strict=True)]

    def tiles(self, state: BlocksState) -> list[list[Tile]]:
        """Blocks brown, or green where they lie as the goal has them."""
        settled = {NAMES[block] for block in range(len(state.goal)) if _is_settled(state, block)}
        return [
            [
                Tile("", AIR if symbol == "." else GAP)
                if symbol in ".|"
                else Tile(symbol, PLACED if symbol in settled else BLOCK, INK)
                for symbol in row
            ]
            for row in self.rows(state)
        ]


def _is_settled(state: BlocksState, block: int) -> bool:
    """Whether a block and all below it lie where the goal has them."""
    while block != ON_TABLE:
        if state.placed[block] != state.goal[block]:
            return False
        block = state.goal[block]
    return True


def _written(placed: Placement) -> str:
    return ", ".join(" ".join(NAMES[block] for block in tower) for tower in towers(placed))


def _columns(placed: Placement) -> list[str]:
    """The rows of a placement from the top, a column for each tower and as many of both as blocks."""
    number, found = len(placed), towers(placed)
    columns = ["".join(NAMES[block] for block in tower).ljust(number, ".") for tower in found]
    columns += ["." * number] * (number - len(found))
    return ["".join(row) for row in zip(*columns, strict=True)][::-1]


def _plan(placed: Placement, goal: Placement) -> tuple[Move, ...]:
    """The moves that lower the distance by one each, the first of several."""
    plan, left = list[Move](), distance(placed, goal)
    while left:
        for move in moves_of(placed):
            after = moved(placed, move)
            if after is not None and distance(after, goal) == left - 1:
                placed, left = after, left - 1
                plan.append(move)
                break
    return tuple(plan or [next(moves_of(placed))])
