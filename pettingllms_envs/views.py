"""What agents are shown of a board: its text, its picture, or both.

With `"image"` a line takes the place of what the task's `show` writes, and the picture precedes the text. An
observation without that text, such as of an agent from whom the workflow hides the board, is shown no picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pettingllms_envs.core import Task, Workflow, check_choice
from pettingllms_envs.observations import Image, Part


VIEWS = ("text", "image", "both")
SIDE: Final = 224
"""Pixels of a picture's longer side, or a little less; more only where a board has more than 56 rows or columns."""


def board_picture(task: Task[Any, Any], state: Any) -> Image:
    """The board of a state for a prompt, with a description that does not tell what is on it."""
    from pettingllms_envs.rendering import observed  # Pillow is loaded only by those who look

    return observed(task, state, side=SIDE, alt="the board")


def check_view(view: object, workflow: Workflow[Any]) -> None:
    """Raise ValueError unless agents of the workflow can be shown their boards that way."""
    check_choice("view", view, VIEWS)
    if view == "text":
        return
    from pettingllms_envs.boards import Board  # only those pay for it who look

    if not isinstance(workflow.task, Board):
        raise ValueError(
            f"view is {view!r}, but the task {workflow.task.name!r} draws no board; expected a task with tiles(). "
            "Leave view out."
        )
    if own := [role.name for role in workflow.roles if role.observes != "text"]:
        raise ValueError(
            f"view is {view!r}, but the role {own[0]!r} observes more than a text; expected roles that are shown the "
            "board as text. Leave out view, or what makes it so (tool_calls='native')."
        )


def apply_view(seen: str | Sequence[Part], view: str, workflow: Workflow[Any], task_state: Any) -> Sequence[Part]:
    """What a workflow shows an agent, with the picture of the board if its text is there; `view` is not `"text"`."""
    task, parts = workflow.task, (seen,) if isinstance(seen, str) else seen
    board = task.show(task_state)
    if not any(isinstance(part, str) and board in part for part in parts):
        return parts
    if view == "image":
        from pettingllms_envs.boards import HasLegend

        legend = f" {task.legend}" if isinstance(task, HasLegend) else ""
        words = f"The board is in the picture.{legend}"
        parts = [part.replace(board, words) if isinstance(part, str) else part for part in parts]
    return board_picture(task, task_state), *parts
