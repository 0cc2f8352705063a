"""A role's pictures are exchanged for those of other instances: which are shown, what is reported, the command."""

from __future__ import annotations

import base64
import io
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

from chat_server import ChatServer, serving
from pettingllms_envs import cli
from pettingllms_envs.environments.plan_path.rules import GOAL, WALKER, WALL
from pettingllms_envs.episodes.files import read
from pettingllms_envs.episodes.prompts import digests_of, messages_of
from pettingllms_envs.research.blind import BlindRole


SIZE = 3
LOOKS = {tuple(bytes.fromhex(colour[1:])): symbol for colour, symbol in ((WALL, "#"), (GOAL, "G"), (WALKER, "@"))}


def board_in(part: dict[str, Any]) -> str:
    """The board of Plan-Path in a picture, by the colour left of the middle of each cell."""
    file = io.BytesIO(base64.b64decode(part["image_url"]["url"].partition(",")[2]))
    image = Picture.open(file)
    cell = image.width // SIZE
    spots = [[(x * cell + cell // 4, y * cell + cell // 2) for x in range(SIZE)] for y in range(SIZE)]
    return "\n".join(" ".join(LOOKS.get(image.getpixel(spot), ".") for spot in row) for row in spots)  # type: ignore[arg-type]


def looks(server: ChatServer, body: dict[str, Any]) -> str:
    """The best moves of the board in the picture."""
    return server.best("\n".join(board_in(part) for part in body["messages"][-1]["content"] if "image_url" in part))


def guesses(server: ChatServer, body: dict[str, Any]) -> str:
    """Moves that depend on the seed alone."""
    return ("Moves: D", "Moves: R", "Moves: D R", "Moves: U")[body["seed"] % 4]


def answering(reply: Any, server: ChatServer, body: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": reply(server, body)}, "finish_reason": "stop"}
    return {"model": server.model, "choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}


def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reply: Any, *more: str) -> dict[str, Any]:
    """The effects that the command reports, and its run in `out`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(ChatServer, "answer", lambda server, body: answering(reply, server, body))
    with serving() as server:
        line = ["blind", "plan_path", "--set", f"size={SIZE}", "--set", "num_turns=2", "--model", "tiny"]
        line += ["--base-url", server.url, "--limit", "24", "--output", "out", *more]
        assert cli.main(line) == 0
    role = more[more.index("--role") + 1]
    found: dict[str, Any] = json.loads(Path(f"out/blind-{role}/report.json").read_text())["blind"]
    return found


ONE = ("--set", "workflow=single", "--set", "view=image", "--role", "planner")


def test_a_player_that_looks_does_worse_with_the_pictures_of_other_instances(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = play(monkeypatch, tmp_path, looks, *ONE)
    success = found["differences"]["success"]
    assert (found["role"], found["episodes"], success["own"]) == ("planner", 24, 1.0)
    assert success["mean"] == 1 - success["other"] > 0.3
    assert success["low"] > 0.1
    shown = capsys.readouterr().out
    assert "The same 24 episodes, in which planner is shown other pictures:" in shown
    assert re.search(r"own pictures +others +difference \[95% interval\]\nsuccess +1 +0\.\d+ +0\.\d+ \[0\.\d", shown)
    assert "24 pairs of episodes." in shown
    rows, again = read(Path("out")), read(Path("out/blind-planner"))
    for row, other in zip(rows, again, strict=True):
        mine, theirs = row["steps"][0], other["steps"][0]
        assert (mine["seed"], mine["state"]) == (theirs["seed"], theirs["state"])
        assert digests_of(mine) != digests_of(theirs)
        # What else the prompts have is the same.
        text = [json.dumps(messages_of(step)).replace(digests_of(step)[0], "") for step in (mine, theirs)]
        assert text[0] == text[1]
    of_rows = {digests_of(row["steps"][0])[0] for row in rows}
    assert {digest for row in again for step in row["steps"] for digest in digests_of(step)} <= of_rows | {
        digest for row in rows for step in row["steps"] for digest in digests_of(step)
    }


def test_a_player_that_does_not_look_does_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = play(monkeypatch, tmp_path, guesses, *ONE)["differences"]
    assert found["success"]["mean"] == found["return of planner_0"]["mean"] == 0.0
    assert found["success"]["low"] < 0 < found["success"]["high"]
    assert 0 < found["success"]["own"] < 1


def describes(server: ChatServer, body: dict[str, Any]) -> str:
    """A describer that copies the picture, or a solver that plays what it reads."""
    content = body["messages"][-1]["content"]
    if isinstance(content, str):
        return server.best(content.replace("> ", ""))
    return board_in(next(part for part in content if "image_url" in part))


def test_the_pictures_of_one_role_are_exchanged_and_the_describer_is_paid_less(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    more = ("--set", "workflow=describer_solver", "--role", "describer")
    found = play(monkeypatch, tmp_path, describes, *more)["differences"]
    assert found["success"]["own"] == 1.0
    assert found["success"]["low"] > 0.1
    # Success is paid to both; the describer loses what its description was paid, too.
    lost = found["return of describer_0"]["mean"] - found["return of solver_0"]["mean"]
    assert lost > 0.1


def row(seed: int, *digests: str, agent: str = "planner_0") -> dict[str, Any]:
    """A recorded row with a call for each picture."""
    part = [{"type": "image", "digest": digest, "alt": "a board"} for digest in digests]
    steps = [{"agent": agent, "messages": [{"role": "user", "content": [each]}]} for each in part]
    return {"instance": {"index": seed, "env": "e", "seed": seed, "options": {}, "problem": None}, "sample": 0,
            "steps": steps, "error": None}  # fmt: skip


def test_the_picture_is_that_of_the_next_instance_at_the_same_call_unless_it_is_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pettingllms_envs.research import blind

    monkeypatch.setattr(blind, "read_image", lambda path, digest: digest)
    rows = [row(0, "a", "b"), row(1, "c"), row(2, "a", "d"), row(3)]
    other = partial(BlindRole("planner", ["planner_0"], rows, tmp_path).other_than, agent="planner_0", number=0)
    keys = [each["instance"]["seed"] for each in rows]
    key = {seed: repr((seed, [])) for seed in keys}
    assert other("a", key=key[0], call=0) == "c"
    assert other("b", key=key[0], call=1) == "c"  # it was shown no second one
    assert other("c", key=key[1], call=0) == "a"
    assert other("c", key=key[1], call=7) == "d"
    assert other("a", key=key[2], call=0) == "c"  # neither that of the fourth, which has none, nor that of the first
    assert other("c", key=key[2], call=0) == "a"
    assert other("x", key="another instance", call=0) == "a"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--role", "planner"), "--role planner: planner_0 was shown no pictures; expected those of several inst"),
        (("--role", "drafte"), "--role is 'drafte'; expected one of 'drafter', 'planner'. Did you mean 'drafter'?"),
        (("--workflow", "single"), "the following arguments are required: --role."),
        (
            ("--workflow", "single", "--model", "a", "--model", "b", "--role", "planner"),
            "--model was given 2 times; expected one team. Ask about each by itself.",
        ),
        (
            ("--role", "planner", "--set", "view=image", "--limit", "1"),
            "--role planner: planner_0 was shown 1 picture; expected those of several instances.",
        ),
    ],
)
def test_a_mistake_ends_with_one_line_and_status_2(
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["blind", "plan_path", "--agents", "oracle", "--limit", "2", *options]) == 2
    assert message in capsys.readouterr().err
