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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.boards import Tile
from pettingllms_envs.core import SPLITS, check_choice
from pettingllms_envs.environments.plan_path import generator
from pettingllms_envs.environments.plan_path.grid import PlanPathState, neighbours_of, within
from pettingllms_envs.environments.plan_path.text import picture, read_board, way_to, words_of
from pettingllms_envs.instances import seeded
from pettingllms_envs.tasks.grid import BUMP, STEP, MovesTask


FLOOR, WALL, GOAL, WALKER = "#f4f1ea", "#4a4e57", "#3a9d5d", "#2f6fde"


@dataclass(frozen=True, slots=True)
class PlanPath(MovesTask[PlanPathState]):
    """The task. Its state is a `PlanPathState`, its move a `str` of the letters U D L R.

    Args:
        size: Rows and columns of the grid, 3 to 100.
        blocked: Share of the cells that are blocked, in [0, 1).
        min_distance: Least number of steps from start to goal, at least 1.
        max_distance: Greatest number of steps, or None for no limit.
        min_detour: Least number of steps more than without blocked cells, at least 0.
        max_detour: Greatest number of such steps, or None for no limit.
    """

    size: int = 10
    blocked: float = 0.22
    min_distance: int = 2
    max_distance: int | None = None
    min_detour: int = 0
    max_detour: int | None = None

    name: ClassVar[str] = generator.NAME
    version: ClassVar[int] = generator.VERSION
    single_agent: ClassVar[str] = "single"
    symbols: ClassVar[str] = "@G#."
    legend: ClassVar[str] = (
        "'@' is the blue disc, 'G' the green square, '#' a dark cell, '.' a light one, with or without a ring."
    )

    def __post_init__(self) -> None:
        generator.check_settings(self.size, self._wanted(None))
        object.__setattr__(self, "blocked", abs(float(self.blocked)))  # -0.0 is 0.0
        for split in SPLITS:
            generator.check_split(self.size, self._wanted(None), split)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Of the potential, which is least far away from an instance of distance 1, and of the costs."""
        return {"value": (2.0 - self.size * self.size, 1.0), **self.cost_ranges()}

    def generate(
        self, seed: int, split: str = "train", level: int | None = None, board: str | None = None
    ) -> PlanPathState:
        """The instance of a seed in a split, at a level or else as the settings say; or the board given.

        Args:
            level: 1 to 5, instead of the settings' share of blocked cells, distances and detours.
            board: An instance as `show` writes its grid; then seed, split and level do not matter.
        """
        if board is not None:
            return read_board(str(board), self.size)
        check_choice("split", split, SPLITS)
        wanted = self._wanted(level)
        if level is not None:
            generator.check_split(self.size, wanted, split)
        return next(filter(None, generator.draws(self.size, wanted, split, seed)))

    def _wanted(self, level: int | None) -> generator.Difficulty:
        if level is None:
            return generator.Difficulty(
                self.blocked, self.min_distance, self.max_distance, self.min_detour, self.max_detour
            )
        check_choice("level", level, self.instance_fields["level"])
        return generator.levels(self.size)[level]

    def apply(self, state: PlanPathState, move: str) -> PlanPathState:
        """Walk until the moves end or the next one is blocked or leaves the grid."""
        size, blocked, start, goal, position, optimal, left, walked = state
        neighbours, masks = neighbours_of(size), within(size, blocked, goal, start)
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

    def show(self, state: PlanPathState) -> str:
        """The grid row by row, then where the walker and the goal are, then the letters that are not blocked here."""
        size, blocked, _, goal, position, _, _, _ = state
        rows, (places, edges, around, free) = picture(size, blocked, goal), words_of(size)
        taken = blocked << size >> position & around | edges[position]
        way = way_to(goal // size - position // size, goal % size - position % size)
        return (
            f"{rows[: 2 * position]}@{rows[2 * position + 1 :]}\nYou are at {places[position]}. The goal is at"
            f" {places[goal]}: {way}.\nFree moves here: {free[taken]}"
        )

    def disguised(self, state: PlanPathState) -> str:
        """Another map of the task's settings."""
        return self.show(self.generate(seeded("plan_path disguised", state).getrandbits(32)))

    def rows(self, state: PlanPathState) -> list[str]:
        return [row.replace(" ", "") for row in self.show(state).splitlines()[: state.size]]

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
        place = words_of(size).places[position]
        if walked < len(move):
            verb = "would be" if proposed else "was"
            end = f"It {verb} blocked after {walked} move{'' if walked == 1 else 's'}, at {place}."
        else:
            verb = "would end" if proposed else "ended"
            end = f"It {verb} {'on the goal, ' if position == goal else ''}at {place}."
        return f"{' '.join(move)}. {end}"

    def oracle(self, state: PlanPathState, rng: random.Random | None = None) -> str:
        """A shortest walk to the goal, as much of it as fits into one reply; empty on the goal.

        `rng` chooses evenly among the shortest steps at each cell; without it the first in the order U D L R is taken.
        """
        masks, neighbours = within(state.size, state.blocked, state.goal), neighbours_of(state.size)
        moves, cell = "", state.position
        for nearer in masks[: state.left][::-1][: self.max_moves]:
            closer = [letter for letter, other in neighbours[cell].items() if other >= 0 and nearer >> other & 1]
            letter = closer[0] if rng is None else rng.choice(closer)
            moves += letter
            cell = neighbours[cell][letter]
        return moves

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
