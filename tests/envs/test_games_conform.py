"""Every game that is registered, in every workflow and at every level, passes the conformance suite."""

import ast
import importlib
import itertools
import re
from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.assembly import GAMES
from pettingllms_envs.core import SPLITS, Execution
from pettingllms_envs.registry import find
from pettingllms_envs.testing import check


_PRINT = re.compile(r"print\((.*)\)\s*", re.S)


def printed(program: str) -> Execution:
    """An executor that can run one statement: `print` of a string."""
    found = _PRINT.fullmatch(program)
    if found is None:
        return Execution("", "SyntaxError")
    try:
        return Execution(f"{ast.literal_eval(found[1])}\n")
    except (SyntaxError, ValueError):
        return Execution("", "SyntaxError")


def settings(workflow: str) -> dict[str, Any]:
    return {"workflow": workflow, **({"executor": printed} if workflow == "tool_plan" else {})}


GAMES_ON_BOARDS = ("plan_path", "sokoban", "sudoku")
games = pytest.mark.parametrize("name", GAMES_ON_BOARDS)
teams = pytest.mark.parametrize("workflow", [workflow.name for workflow in GAMES])


@games
@teams
def test_a_game_passes_every_check(name: str, workflow: str) -> None:
    parallel_env = importlib.import_module(find(name).module).parallel_env
    report = check(
        partial(pettingllms_envs.make, name, **settings(workflow)),
        make_parallel=partial(parallel_env, **settings(workflow)),
    )
    assert report.ok, str(report)
    assert [result.name for result in report if result.status == "skipped"] == [], str(report)


@games
def test_a_game_passes_at_every_level(name: str) -> None:
    levels = pettingllms_envs.make(name).metadata["reset_options"]["level"]
    make, only = partial(pettingllms_envs.make, name, workflow="single"), ["oracle", "floors", "no solution shown"]
    for level, split in zip(levels, itertools.cycle(SPLITS)):
        report = check(make, options=[{"level": level, "split": split}], seeds=range(8), only=only)
        assert report.ok, f"level {level}: {report}"
