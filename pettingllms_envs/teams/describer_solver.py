"""Workflow `describer_solver`: a describer sees the board as a picture and writes it, a solver reads that and plays.

Roles: `describer`, then `solver`, in every turn. The describer sees the picture, the turn and nothing else. The solver
sees the turn, the message, and whether its last reply was unreadable: no prompt of its depends on the instance but by
messages, so that alone it does as well as an agent that sees nothing.
Rewards: team `progress` and `success`, and to the solver `format` or the task's costs, as in `single`. To the
describer `read`, by how many tiles its message has right: the lines of symbols at its end are compared with the board,
and its score is the share of tiles that are right, less that of the best answer that ignores the picture (see
`best_constant`). It is paid the change of its score, so that over an episode `read` adds up to the last score, and
longer episodes do not pay; for a board that it has described before in the episode it is paid nothing.
Outcome: `messages`, `message_chars`, and `frac_messages_with_move`: a describer can also write a move that the solver
copies, so this is to be read beside any success.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import Role, Transition, Unreadable
from pettingllms_envs.features import Form, Forms, HasSymbols
from pettingllms_envs.observations import Observation
from pettingllms_envs.replies.reading import NOTES
from pettingllms_envs.state_digest import Reported
from pettingllms_envs.teams.base import BaseWorkflow, TurnWorkflow
from pettingllms_envs.teams.channels import LimitedMessages, Sent
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


class DescriberState(NamedTuple):
    """A moment of an episode: a `workflows.base.TurnState` with what was described.

    Args:
        reported: Also how many messages held a move.
        boards: The boards that were described.
        score: Of the last message that was scored.
    """

    task: Any
    turn: int = 1
    feedback: str = ""
    messages: tuple[Sent, ...] = ()
    reported: Reported = Reported(messages=0, message_chars=0, with_move=0)
    boards: tuple[tuple[str, ...], ...] = ()
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class DescriberSolver(LimitedMessages, TurnWorkflow[Any, Any]):  # type: ignore[override]  # its channel
    """One agent sees the board, the other one plays.

    Args:
        delivers: Whether messages arrive. Without them the solver is alone.

    Raises:
        ValueError: A value is out of its range, or the task's tiles have no symbols.
    """

    task: Any  # with symbols
    capacity: int = 1000
    delivers: bool = True

    name: ClassVar[str] = "describer_solver"
    roles: ClassVar[tuple[Role, ...]] = (DESCRIBER, SOLVER)

    def __post_init__(self) -> None:
        BaseWorkflow.__post_init__(self)
        LimitedMessages.__post_init__(self)
        if not isinstance(self.task, HasSymbols):
            raise ValueError(
                f"the task {self.task.name!r} has no symbols to describe a board with; expected symbols, legend and "
                "rows(state), see features.HasSymbols. Write them, or take another workflow."
            )

    @property
    def forms(self) -> Forms:
        """One agent that sees the picture and plays, and the solver without messages."""
        full = Form({"workflow": "single", "view": "image"}, f"{DESCRIBER.name}_0")
        return Forms(full=full, cut=Form({"delivers": False}))

    def start(self, task_state: Any) -> Any:
        """Turn 1 on this instance, the describer to act."""
        return DescriberState(task_state)

    def system(self, role: str) -> str:
        """As in any `TurnWorkflow`; the describer's with what the symbols look like."""
        system = TurnWorkflow.system(self, role)
        return f"{system}\nIn the picture: {self.task.legend}" if role == DESCRIBER.name else system

    def observe(self, state: Any, role: str) -> Observation:
        """The turn, and for the describer the picture, for the solver the message."""
        turn = f"Turn {state.turn} of {self.num_turns}."
        if role == SOLVER.name:
            messages = [sent.shown for sent in state.messages if self.delivers]
            return "\n".join(filter(None, (turn, state.feedback, *messages)))
        return board_picture(self.task, state.task), turn

    def step(self, state: Any, reply: str) -> Transition[Any]:
        """Send the description and score it, or play the solver's move and end the turn."""
        played: Transition[Any] = TurnWorkflow.step(self, state, reply)
        after, parts, terminated, truncated = played
        if state.messages:
            feedback = after.feedback if "format" in parts[SOLVER.name] else ""
            return after._replace(feedback=feedback), parts, terminated, truncated
        text, board = after.messages[0].text, tuple(self.task.rows(state.task))
        outside = NOTES.set(None)  # it is no move
        try:
            holds_move = not all(isinstance(self.task.parse(each), Unreadable) for each in (text, *text.splitlines()))
        finally:
            NOTES.reset(outside)
        after = after._replace(reported=after.reported.plus(with_move=holds_move))
        if board in state.boards:
            return after, parts, terminated, truncated
        score = share_right(board, read_rows(text, self.task)) - best_constant(self.task).share
        after = after._replace(boards=(*state.boards, board), score=score)
        return after, {DESCRIBER.name: {"read": score - state.score}}, terminated, truncated

    def oracle(self, state: Any) -> str:
        """The board, or the task's best move."""
        if state.messages:
            return BaseWorkflow.oracle(self, state)
        return "\n".join(" ".join(row) for row in self.task.rows(state.task))

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format, the task's costs, and `read`, the change of a score in [-1, 1]."""
        return {**BaseWorkflow.ranges(self), "read": (-2.0, 2.0)}

    def outcome(self, state: Any) -> Mapping[str, Any]:
        """How many messages arrived, their characters in total, and the share of them that hold a move."""
        figures = dict(state.reported)
        frac = figures.pop("with_move") / max(1, figures["messages"])
        return {**figures, "frac_messages_with_move": frac}


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
def best_constant(task: Any) -> Constant:
    """For each tile the symbol that it has most often, of `NUM_BOARDS` instances: no constant has more tiles right."""
    boards = [task.rows(task.generate(seed)) for seed in range(NUM_BOARDS)]
    rows = tuple(
        "".join(Counter(symbols).most_common(1)[0][0] for symbols in zip(*own, strict=False))
        for own in zip(*boards, strict=False)
    )
    return Constant(rows, sum(share_right(board, rows) for board in boards) / NUM_BOARDS)
