"""Workflow `describer_solver`: a describer sees the board as a picture and writes it, a solver reads that and plays.

Roles: `describer`, then `solver`, in every turn. The describer sees the picture, the turn and nothing else. The solver
sees the turn, the message, and whether its last reply was unreadable. The messages are all that tells it of the
instance, so that alone it does as well as an agent that sees nothing.
Rewards: team `progress` and `success`, and to the solver `format` or the task's costs, as in `single`. To the
describer `read`, by how many tiles its message has right: the lines of symbols at its end are compared with the board,
and its score is the share of tiles that are right, less that of the level's best answer that ignores the picture (see
`best_constant`). It is paid the change of its score, so that over an episode `read` adds up to the last score, and
longer episodes do not pay; for a board that it has described before in the episode it is paid nothing.
Outcome: `messages`, `message_chars`, and `frac_messages_with_move`: a describer can also write a move that the solver
copies, so this is to be read beside any success.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from pettingllms_envs.boards import HasSymbols
from pettingllms_envs.core import FIELDS, Role, Unreadable
from pettingllms_envs.replies.reading import NOTES
from pettingllms_envs.teams.forms import Form, Forms
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow
from pettingllms_envs.views import board_picture


_BETWEEN_CELLS = re.compile(r"[\s,|]")
DESCRIBER = Role(
    "describer",
    "You are the describer. You see the board in a picture, and the solver does not. Write the board for it: one line"
    " for each row from the top, one symbol for each cell, and no other lines after them.",
    observes="parts",
)
SOLVER = Role(
    "solver",
    "You are the solver. You do not see the board: in every turn the describer, who does, writes it. Your moves are"
    " played.",
)
NUM_BOARDS = 100
"""Instances that the best constant answer is found on, those of the seeds from 0."""


def _checked(team: Any) -> Mapping[str, Any]:
    if not isinstance(team.task, HasSymbols):
        raise ValueError(
            f"the task {team.task.name!r} has no symbols to describe a board with; expected symbols, legend and "
            "rows(state), see boards.HasSymbols. Write them, or take another workflow."
        )
    return {}


def _roles(team: Any) -> tuple[Role, ...]:
    fate = f"Your reply is shown to those who act after you, up to {team.capacity} characters."
    return replace(DESCRIBER, reply_format=f"{fate}\nIn the picture: {team.task.legend}"), SOLVER


@function_workflow(
    _roles,
    name="describer_solver",
    ranges={"read": (-2.0, 2.0)},  # the change of a score in [-1, 1]
    cyclic=True,
    completed=_checked,
    forms=lambda team: Forms(
        # One agent that sees the picture and plays, and the solver without messages.
        full=Form({"workflow": "single", "view": "image"}, f"{DESCRIBER.name}_0"),
        cut=Form({"delivers": False}),
    ),
    state_form=3,
    bonuses=(),
)
def DescriberSolver(game: Game, capacity: int = 1000, delivers: bool = True) -> Questions:
    """One agent sees the board, the other one plays.

    Args:
        delivers: Whether messages arrive. Without them the solver is alone.
    """
    task, boards, score, num_moves = game.task, set[tuple[str, ...]](), 0.0, 0
    level = game.once(_level)  # kept, for where the function is run again
    game.report(frac_messages_with_move=0.0)

    def described() -> str:
        return "\n".join(" ".join(row) for row in task.rows(game.state))

    while game.turns_left:
        turn, board = f"Turn {game.turn} of {game.num_turns}.", tuple(task.rows(game.state))
        kept = sorted(boards), score, *level
        seen = board_picture(task, game.state), turn
        sent = game.send(DESCRIBER.name, (yield Ask(DESCRIBER.name, seen, described, kept)))
        num_moves += _holds_move(task, sent.text)
        game.report(frac_messages_with_move=num_moves / dict(game.reported)["messages"])
        if board not in boards:
            before, score = score, share_right(board, read_rows(sent.text, task)) - best_constant(task, *level).share
            boards.add(board)
            game.pay(DESCRIBER.name, "read", score - before)
        message = sent.shown if delivers else ""
        shown = "\n".join(filter(None, (turn, game.feedback, message)))
        reply = yield Ask(SOLVER.name, shown, keeps=(sorted(boards), score, *level))
        game.play(reply, SOLVER.name)
        if not isinstance(_quietly(task, reply), Unreadable):
            game.feedback = ""


def _level() -> tuple[Any, ...]:
    """The level in play; () where the settings say what an instance is like, or a board is given."""
    fields = FIELDS.get() or {}
    return (fields["level"],) if fields.get("level") is not None and fields.get("board") is None else ()


def _quietly(task: Any, text: str) -> Any:
    """The move that is read in a text that is none."""
    outside = NOTES.set(None)
    try:
        return task.parse(text)
    finally:
        NOTES.reset(outside)


def _holds_move(task: Any, text: str) -> bool:
    return not all(isinstance(_quietly(task, each), Unreadable) for each in (text, *text.splitlines()))


def read_rows(text: str, task: HasSymbols) -> list[str]:
    """The rows of symbols in a message: its lines of nothing but symbols, spaces, commas and bars."""
    lines = (_BETWEEN_CELLS.sub("", line) for line in text.splitlines())
    return [line for line in lines if line and not line.strip(task.symbols)]


def share_right(board: Sequence[str], rows: Sequence[str]) -> float:
    """The share of a board's tiles that the last rows of an answer have right; what is missing is wrong."""
    pairs = zip(board, rows[-len(board) :], strict=False)
    num_right = sum(one == other for row, own in pairs for one, other in zip(row, own, strict=False))
    return num_right / sum(map(len, board))


class Constant(NamedTuple):
    """An answer that ignores the picture, and the mean share of tiles that it has right."""

    rows: tuple[str, ...]
    share: float


@lru_cache(maxsize=64)
def best_constant(task: Any, level: Any = None) -> Constant:
    """For each tile the symbol that it has most often, of `NUM_BOARDS` instances: no constant has more tiles right."""
    fields = {} if level is None else {"level": level}
    boards = [task.rows(task.generate(seed, **fields)) for seed in range(NUM_BOARDS)]
    rows = tuple(
        "".join(Counter(symbols).most_common(1)[0][0] for symbols in zip(*own, strict=False))
        for own in zip(*boards, strict=False)
    )
    return Constant(rows, sum(share_right(board, rows) for board in boards) / NUM_BOARDS)
