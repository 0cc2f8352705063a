"""Makes a run's environments again: boards are computed by replaying an episode, limits of designs are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pettingllms_envs
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.boards import Board, Sheet
from pettingllms_envs.core import Tool, ToolResult
from pettingllms_envs.episodes.files import remade
from pettingllms_envs.episodes.observing import has_states_of, workflow_of
from pettingllms_envs.teams.designed import Designed
from pettingllms_envs.teams.designs import Limits
from pettingllms_envs.tools import make_tool


Picture = list[list[int]] | str
"""Rows of a board, each tile by its index in the palette; or tables as text."""


class Boards:
    """Replays the episodes of one run, whose header has the settings of each environment."""

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
        env, pictures = self.env(row), list[Picture | None]()
        if env is not None and isinstance(env.workflow.task, Board | Sheet):
            pictures.extend(self._replayed(env, row))
        return pictures + [None] * (len(row["steps"]) + 1 - len(pictures))

    def limits(self, row: Mapping[str, Any]) -> Limits | None:
        """What the designs of the row's environment may ask for; None where nobody designs."""
        workflow = workflow_of(self.env(row)) if self.env(row) else None
        return workflow.limits if isinstance(workflow, Designed) else None

    def env(self, row: Mapping[str, Any]) -> TextEnv | None:
        """The row's environment, made once; None if it cannot be made here."""
        try:
            name, settings = remade(self._header, row)
        except ValueError:  # it would start a program of the record's
            return None
        key = json.dumps([name, settings])
        if key not in self._envs:
            self._envs[key] = _made(name, settings)
        return self._envs[key]

    def _replayed(self, env: TextEnv, row: Mapping[str, Any]) -> Iterator[Picture]:
        for _ in replayed(env, row):
            yield self._picture(env)

    def _picture(self, env: TextEnv) -> Picture:
        task, state = env.workflow.task, env.snapshot().play.task
        if isinstance(task, Sheet):
            return task.sheet(state)
        rows = task.tiles(state)  # type: ignore[attr-defined]  # a Board
        return [[self._tiles.setdefault(tile, len(self._tiles)) for tile in line] for line in rows]


def replayed(env: TextEnv, row: Mapping[str, Any]) -> Iterator[Mapping[str, Any] | None]:
    """The steps of a row, the environment standing before each, and None at its end; ends where the replay differs."""
    # What a program or another tool returned is a part of the state, but not of the board.
    exact = not hasattr(env.workflow, "executor") and "tool_calls" not in env.metadata["settings"]
    env.reset(seed=row["instance"]["seed"], options=row["instance"]["options"])
    exact = exact and has_states_of(row, env.metadata)
    for step in row["steps"]:
        if not env.agents or env.agent_selection != step["agent"] or (exact and env.state_hash() != step["state"]):
            return
        yield step
        env.step(step["reply"])
    yield None


def _made(env: str, settings: dict[str, Any]) -> TextEnv | None:
    """The environment, if it is here and still has these settings. Tools are not called; they change no board."""
    if settings.get("workflow") == "tool_plan":
        settings["executor"] = lambda program: ToolResult("")
    try:
        if given := settings.get("role_tools"):
            by_role = given.items() if isinstance(given, Mapping) else [("", given)]
            idle = {role: [_Idle(make_tool(tool)) for tool in tools] for role, tools in by_role}
            settings["role_tools"] = idle if isinstance(given, Mapping) else idle[""]
        made = pettingllms_envs.make(env, **settings)
    except (ValueError, TypeError, ImportError):
        return None
    return made if isinstance(made, TextEnv) else None


class _Idle:
    """A tool that is called in the same way as another one, and returns nothing."""

    deterministic = True

    def __init__(self, tool: Tool) -> None:
        self.spec, self.digest = tool.spec, tool.digest

    def __call__(self, request: str) -> ToolResult:
        return ToolResult("")
