"""A film of one training episode, `pettingllms view RUN --film FILE.gif`: at each decision its candidates, each on the
board that it leads to, then the one that is played on, and its moves.

The boards are those of a replay, as on the page, so a task without boards (`pettingllms_envs.boards.Board`) has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw

from pettingllms_envs import rendering
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.boards import Board
from pettingllms_envs.episodes import files
from pettingllms_envs.page.boards import Boards, replayed
from pettingllms_envs.printable import printable
from pettingllms_envs.replies.moves import between


BOARD: Final = 300  # pixels
SMALL: Final = 116
GAP: Final = 14
COLUMNS: Final = 4
SOFT, MARK, LINE = "#57606a", "#1a7f37", "#d0d7de"
FRAMES_OF_CANDIDATES: Final = 4
"""How often the frame of a decision's candidates, and of its best, is repeated: each stays as long as four moves."""


def film(run: Path, number: int | None = None) -> list[Image.Image]:
    """The frames of an episode of a run.

    Args:
        run: The folder of a run with the candidates of its decisions, which a training with `log_rollouts` writes.
        number: The episode's place in its file, from 1. None: the last success with most decisions.

    Raises:
        ValueError: There is no such episode, its decisions have no candidates, or its task has no boards here.
    """
    header, rows = files.read_header(run / files.EPISODES), files.read(run / files.EPISODES)
    told = [row for row in rows if row["error"] is None and any(step.get("candidates") for step in row["steps"])]
    if not told:
        raise ValueError(f"{run} has no episode with candidates; expected a training's, with log_rollouts=True.")
    if number is None:
        row = max(told, key=lambda row: (bool(row["success"]), len(row["steps"]), rows.index(row)))
    elif 1 <= number <= len(rows):
        row = rows[number - 1]
    else:
        raise ValueError(f"--episode is {number}; expected 1 to {len(rows)}, the episodes of {run}.")
    env = Boards(header).env(row)
    if env is None or not isinstance(env.workflow.task, Board):
        raise ValueError(f"{row['instance']['env']} has no boards; expected a run of an environment that draws them.")
    return list(_frames(env, row))


def _frames(env: TextEnv, row: Mapping[str, Any]) -> Iterator[Image.Image]:
    task: Any = env.workflow.task
    for step in replayed(env, row):
        before = env.snapshot()
        state = before.play.task
        board = rendering.picture(task, state, side=BOARD)
        if step is None:
            yield _frame(board, env.standing().capitalize(), [], [])
            return
        candidates = step.get("candidates") or [{"reply": step["reply"], "reward": 0.0, "chosen": True}]
        after = []
        for candidate in candidates:
            env.step(candidate["reply"])
            after.append(rendering.picture(task, env.snapshot().play.task, side=SMALL))
            env.restore(before)
        title = f"Turn {step['turn']}: {step['agent']}"
        for chosen in (False, True):
            yield from [_frame(board, title, candidates, after, chosen=chosen)] * FRAMES_OF_CANDIDATES
        for moved in between(task, state, step["reply"]):
            yield _frame(rendering.picture(task, moved, side=BOARD), title, candidates, after, chosen=True)
    raise ValueError("the replay differs from the record; expected the version that recorded it.")


def _frame(
    board: Image.Image,
    title: str,
    candidates: Sequence[Mapping[str, Any]],
    after: Sequence[Image.Image],
    *,
    chosen: bool = False,
) -> Image.Image:
    """The board at the left, and at the right what each candidate would make of it, with its reward."""
    cell, rows = SMALL + 44, 2
    # The best one is shown, too, where there are more than have room.
    pairs = sorted(zip(candidates, after, strict=False), key=lambda each: not each[0]["chosen"])[: rows * COLUMNS]
    pairs.sort(key=lambda each: candidates.index(each[0]))
    page = Image.new("RGB", (BOARD + COLUMNS * (SMALL + GAP) + 3 * GAP, rows * cell + 64), rendering.PAPER)
    pen = ImageDraw.Draw(page)
    pen.text((GAP, GAP), title, fill=rendering.INK, font=rendering.font_of(20))
    page.paste(board, (GAP, 52))
    if candidates:
        best = ", the best is played on" if chosen else ", each on a branch of its own"
        words = f"{len(candidates)} candidates from one prompt{best}"
        pen.text((BOARD + 2 * GAP, GAP + 4), words, fill=SOFT, font=rendering.font_of(15))
    for at, (candidate, picture) in enumerate(pairs):
        x, y = BOARD + 2 * GAP + at % COLUMNS * (SMALL + GAP), 52 + at // COLUMNS * cell
        is_best = chosen and candidate["chosen"]
        page.paste(picture, (x, y))
        ends = (x - 4, y - 4, x + SMALL + 3, y + SMALL + 38)
        pen.rounded_rectangle(ends, 6, outline=MARK if is_best else LINE, width=4 if is_best else 1)
        reply = candidate["reply"].strip().splitlines()[-1:] or [""]
        pen.text((x + 2, y + SMALL + 3), printable(reply[0])[:18], fill=rendering.INK, font=rendering.font_of(12))
        reward = f"reward {candidate['reward']:+.2f}"
        pen.text((x + 2, y + SMALL + 18), reward, fill=MARK if is_best else SOFT, font=rendering.font_of(13))
    return page
