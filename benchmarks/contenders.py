"""Who is timed by bench_envs.py: our environments and their peers, each behind the same few methods.

Nothing here takes the time. A peer is imported when its class is called, and `ImportError` then says that it is not
installed. What a peer needs so that the work is equal is said in its class.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol


Cell = tuple[int, int]

LETTERS: dict[str, Cell] = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}


class Room(NamedTuple):
    """A board of Sokoban, or of Plan-Path (no boxes, the one goal is the walker's); cells are (row, column)."""

    walls: frozenset[Cell]
    goals: frozenset[Cell]
    boxes: frozenset[Cell]
    player: Cell


class Starts(Protocol):
    """What can begin an instance."""

    def start(self, seed: int) -> None:
        """Make the seed's instance and its first text."""
        ...


class Walks(Starts, Protocol):
    """What can also be walked through, a letter a reply."""

    @property
    def replies(self) -> Mapping[str, str]:
        """How each of U D L R is said."""
        ...

    def room(self) -> Room:
        """The board as it is now."""
        ...

    def play(self, replies: Sequence[str]) -> None:
        """For each reply: parse it, play it, make the next text."""
        ...


def legal_walk(room: Room, rng: random.Random, limit: int) -> tuple[str, Room]:
    """Random legal letters until the board is solved, nothing is legal or the limit is reached, and the board then.

    Written for the harness, so that each contender plays by the same choice, and is known to have played it.
    """
    walls, goals, boxes, player = room
    letters = ""
    while len(letters) < limit and not (boxes or {player}) <= goals:
        legal = []
        for letter, (down, right) in LETTERS.items():
            cell = player[0] + down, player[1] + right
            beyond = cell[0] + down, cell[1] + right
            if cell not in walls and not (cell in boxes and (beyond in walls or beyond in boxes)):
                legal.append((letter, cell, beyond))
        if not legal:
            break
        letter, player, beyond = rng.choice(legal)
        if player in boxes:
            boxes = boxes - {player} | {beyond}
        letters += letter
    return letters, Room(walls, goals, boxes, player)


class Ours:
    """One of our environments, `env.last()` before each `env.step(reply)`, as PettingZoo's loop has it.

    Args:
        env: The environment, wrapped or not.
        options: Reset options.
    """

    replies: Mapping[str, str] = {letter: f"Moves: {letter}" for letter in LETTERS}

    def __init__(self, env: Any, options: Mapping[str, Any] | None = None) -> None:
        self.env = env
        self.options = options

    def start(self, seed: int) -> None:
        self.env.reset(seed=seed, options=self.options)
        self.env.last()

    def room(self) -> Room:
        """Read from the text that the player gets; at the end, when it is asked no more, from that of the task."""
        env = self.env.unwrapped
        is_over = all(env.terminations[agent] or env.truncations[agent] for agent in env.agents)
        text = env.workflow.task.show(env.snapshot().play.task) if is_over else self.env.last()[0]["text"]
        rows = [line.split() for line in text.splitlines()]
        rows = [row for row in rows if len(row) > 2 and all(len(word) == 1 for word in row)]
        free, goals = (".", "G") if self.env.metadata["name"].startswith("plan_path") else ("-", ".*+")
        cells = {(r, c): symbol for r, row in enumerate(rows) for c, symbol in enumerate(row)}
        edge = {(r, c) for r in range(-1, len(rows) + 1) for c in range(-1, len(rows[0]) + 1)} - cells.keys()
        unknown = set(cells.values()) - set(f"#@$*+{free}{goals}")
        if unknown:
            raise RuntimeError(
                f"the board has {sorted(unknown)}; expected the symbols of {self.env.metadata['name']}."
            )
        return Room(
            frozenset(edge | {cell for cell, symbol in cells.items() if symbol == "#"}),
            frozenset(cell for cell, symbol in cells.items() if symbol in goals),
            frozenset(cell for cell, symbol in cells.items() if symbol in "$*"),
            next(cell for cell, symbol in cells.items() if symbol in "@+"),
        )

    def play(self, replies: Sequence[str]) -> None:
        env = self.env
        for reply in replies:
            env.last()
            env.step(reply)


class TextArenaSokoban:
    """TextArena's Sokoban, 6x6.

    Its observation wrappers keep the history of earlier episodes; it is cleared here at each start, in its favour.
    """

    replies: Mapping[str, str] = {"U": "[up]", "D": "[down]", "L": "[left]", "R": "[right]"}

    def __init__(self, name: str, boxes: int) -> None:
        self.env = import_module("textarena").make(name, num_boxes=boxes)

    def start(self, seed: int) -> None:
        self.env.full_observations.clear()
        self.env.reset(num_players=1, seed=seed)
        self.env.get_observation()

    def room(self) -> Room:
        return _numbered_room(self.env.room_fixed, self.env.room_state)

    def play(self, replies: Sequence[str]) -> None:
        env = self.env
        for reply in replies:
            env.step(reply)
            env.get_observation()


class Gem:
    """One of GEM's games; its texts are made by `reset` and `step`."""

    replies: Mapping[str, str] = {
        "U": "\\boxed{up}",
        "D": "\\boxed{down}",
        "L": "\\boxed{left}",
        "R": "\\boxed{right}",
    }

    def __init__(self, name: str, **settings: Any) -> None:
        self.env = import_module("gem").make(name, **settings)

    def start(self, seed: int) -> None:
        self.env.reset(seed=seed)

    def room(self) -> Room:
        return _numbered_room(self.env.room_fixed, self.env.room_state)

    def play(self, replies: Sequence[str]) -> None:
        env = self.env
        for reply in replies:
            env.step(reply)


class ReasoningGymMiniSudoku:
    """reasoning-gym's `mini_sudoku`; an item is puzzle, question and answer."""

    def __init__(self, **settings: Any) -> None:
        self.items = import_module("reasoning_gym").create_dataset("mini_sudoku", seed=0, size=10**9, **settings)

    def start(self, seed: int) -> None:
        self.items[seed]


class Reference:
    """The state classes of the reference implementation, with its own parser and prompt.

    Only its modules `env_state`, `utils` and `prompt` are imported, which need numpy alone: nothing is stubbed. Its
    agents are left out, and with them the coroutine and the deep copies around each step, in its favour.

    Args:
        checkout: Folder of its repository, or None if there is none.
        game: `"plan_path"` or `"sokoban"`.
        size: Rows and columns.
    """

    replies: Mapping[str, str] = {letter: f'#### ["{letter}"]' for letter in LETTERS}

    def __init__(self, checkout: Path | None, game: str, size: int) -> None:
        if checkout is None:
            raise ImportError("no checkout of the reference implementation was given")
        if str(checkout) not in sys.path:
            sys.path.append(str(checkout))
        package = "pettingllms.multi_agent_env.stateful"
        self.game = game
        self.config = {"env": {"map_size": size}}
        self.make = import_module(f"{package}.env_state").get_state_class_by_benchmark(game)
        self.parse = import_module(f"{package}.utils").extract_final_action
        self.prompt = import_module(f"{package}.prompt").build_plan_prompt

    def start(self, seed: int) -> None:
        self.state = self.make(seed=seed, config=self.config)
        self.prompt(self.game, 0, self.state)

    def room(self) -> Room:
        state = self.state
        if self.game == "sokoban":
            return Room(*map(_cells, (state.walls, state.goals, state.boxes)), _cell(state.player_pos))
        rows = ["#" * (state.w + 2), *(f"#{row}#" for row in state.grid_list), "#" * (state.w + 2)]
        walls = ((r - 1, c - 1) for r, row in enumerate(rows) for c, symbol in enumerate(row) if symbol == "#")
        return Room(frozenset(walls), _cells([state.goal]), frozenset(), _cell(state.pos))

    def play(self, replies: Sequence[str]) -> None:
        state, game = self.state, self.game
        for turn, reply in enumerate(replies, 1):
            state.step(self.parse(reply, game))
            self.prompt(game, turn, state)


def _numbered_room(fixed: Any, now: Any) -> Room:
    """A board of gym-sokoban's descendants: 0 wall, 1 floor, 2 goal, 3 box on goal, 4 box, 5 player."""
    walls, goals = (_cells(zip(*(fixed == number).nonzero(), strict=True)) for number in (0, 2))
    boxes = _cells(zip(*((now == 3) | (now == 4)).nonzero(), strict=True))
    (player,) = _cells(zip(*(now == 5).nonzero(), strict=True))
    return Room(walls, goals, boxes, player)


def _cells(pairs: Iterable[Any]) -> frozenset[Cell]:
    return frozenset(map(_cell, pairs))


def _cell(pair: Any) -> Cell:
    row, column = pair
    return int(row), int(column)
