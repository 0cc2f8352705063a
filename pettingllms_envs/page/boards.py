"""Computes the boards of an episode by replaying it without a model; only for tasks that have boards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pettingllms_envs
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import Tool, ToolResult
from pettingllms_envs.episodes.files import made_with
from pettingllms_envs.features import Board
from pettingllms_envs.tools import make_tool


Picture = list[list[int]]
"""Rows of a board, each tile by its index in the palette."""


class Boards:
    """Replays the episodes of one run.

    Args:
        header: The run's `run.json`, with the settings of each environment.
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        self._header = header
        self._envs: dict[str, TextEnv | None] = {}
        self._tiles: dict[Any, int] = {}

    @property
    def palette(self) -> list[dict[str, str]]:
        """Every tile that was drawn so far."""
        return [tile._asdict() for tile in self._tiles]

    def of(self, row: Mapping[str, Any]) -> list[Picture | None]:
        """The board before each step and at the end; None from the step on where the replay differs."""
        try:
            name, settings = made_with(self._header, row)
        except ValueError:  # it would start a program of the record's
            return [None] * (len(row["steps"]) + 1)
        key = json.dumps([name, settings])
        if key not in self._envs:
            self._envs[key] = _made(name, settings)
        env = self._envs[key]
        pictures: list[Picture | None] = []
        if env is not None:
            pictures.extend(self._replayed(env, row))
        return pictures + [None] * (len(row["steps"]) + 1 - len(pictures))

    def _replayed(self, env: TextEnv, row: Mapping[str, Any]) -> Iterator[Picture]:
        # What a program or another tool returned is a part of the state, but not of the board.
        exact = not hasattr(env.workflow, "executor") and "tool_calls" not in env.metadata["settings"]
        env.reset(seed=row["instance"]["seed"], options=row["instance"]["options"])
        for step in row["steps"]:
            if not env.agents or env.agent_selection != step["agent"] or (exact and env.state_hash() != step["state"]):
                return
            yield self._picture(env)
            env.step(step["reply"])
        yield self._picture(env)

    def _picture(self, env: TextEnv) -> Picture:
        rows = env.workflow.task.tiles(env.snapshot().play.task)  # type: ignore[attr-defined]  # a Board
        return [[self._tiles.setdefault(tile, len(self._tiles)) for tile in line] for line in rows]


def _made(env: str, settings: dict[str, Any]) -> TextEnv | None:
    """The environment, if it is known here and has boards. Tools are not called, since they change no board."""
    try:
        pettingllms_envs.find(env)
    except ValueError:
        return None
    if settings.get("workflow") == "tool_plan":
        settings["executor"] = lambda program: ToolResult("")
    if given := settings.get("role_tools"):
        by_role = given.items() if isinstance(given, Mapping) else [("", given)]
        idle = {role: [_Idle(make_tool(tool)) for tool in tools] for role, tools in by_role}
        settings["role_tools"] = idle if isinstance(given, Mapping) else idle[""]
    made = pettingllms_envs.make(env, **settings)
    return made if isinstance(made, TextEnv) and isinstance(made.workflow.task, Board) else None


class _Idle:
    """A tool that is called in the same way as another one, and returns nothing."""

    deterministic = True

    def __init__(self, tool: Tool) -> None:
        self.spec, self.digest = tool.spec, tool.digest

    def __call__(self, request: str) -> ToolResult:
        return ToolResult("")
