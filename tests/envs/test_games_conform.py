"""Every game that is registered, in every workflow and at every level, passes the conformance suite."""

import ast
import importlib
import itertools
import re
from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from optional_checks import skipped_checks
from pettingllms_envs.assembly import GAMES
from pettingllms_envs.core import SPLITS, ToolResult
from pettingllms_envs.registry import find
from pettingllms_envs.testing import check, replies


_PRINT = re.compile(r"print\((.*)\)\s*", re.S)


def printed(program: str) -> ToolResult:
    """An executor that can run one statement: `print` of a string."""
    found = _PRINT.fullmatch(program)
    if found is None:
        return ToolResult("", "SyntaxError")
    try:
        return ToolResult(f"{ast.literal_eval(found[1])}\n")
    except (SyntaxError, ValueError):
        return ToolResult("", "SyntaxError")


def settings(workflow: str) -> dict[str, Any]:
    return {"workflow": workflow, **({"executor": printed} if workflow == "tool_plan" else {})}


GAMES_ON_BOARDS = ("plan_path", "sokoban", "sudoku", "blocksworld", "eight_queens")
WORKFLOWS = tuple(workflow.name for workflow in GAMES)


def pairs() -> list[Any]:
    """Every game in every workflow; by default each game once and each workflow once."""
    return [
        pytest.param(name, workflow, marks=() if i == k % len(GAMES_ON_BOARDS) else pytest.mark.slow)
        for k, workflow in enumerate(WORKFLOWS)
        for i, name in enumerate(GAMES_ON_BOARDS)
    ]


@pytest.mark.parametrize(("name", "workflow"), pairs())
def test_a_game_passes_every_check(name: str, workflow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "LONGEST", 2**16)  # sixteen times as long in the slow test below
    parallel_env = importlib.import_module(find(name).module).parallel_env
    report = check(
        partial(pettingllms_envs.make, name, **settings(workflow)),
        make_parallel=partial(parallel_env, **settings(workflow)),
        seeds=range(12),
    )
    assert report.ok, str(report)
    skipped = sorted(result.name for result in report if result.status == "skipped")
    assert skipped == skipped_checks(pettingllms_envs.make(name, **settings(workflow))), str(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES_ON_BOARDS)
def test_a_game_that_is_paid_at_the_end_passes_every_check(name: str) -> None:
    report = check(partial(pettingllms_envs.make, name, step_rewards=False))
    assert report.ok, str(report)


@pytest.mark.parametrize("name", GAMES_ON_BOARDS)
@pytest.mark.parametrize(
    ("seeds", "only"),
    [
        (range(4), ("oracle", "no solution shown")),
        pytest.param(range(8), ("oracle", "floors", "no solution shown"), marks=pytest.mark.slow),
    ],
    ids=["the oracle", "floors"],
)
def test_a_game_passes_at_every_level(name: str, seeds: range, only: tuple[str, ...]) -> None:
    levels = pettingllms_envs.make(name).metadata["reset_options"]["level"]
    make = partial(pettingllms_envs.make, name, workflow="single")
    for level, split in zip(levels, itertools.cycle(SPLITS)):
        report = check(make, options=[{"level": level, "split": split}], seeds=seeds, only=only)
        assert report.ok, f"level {level}: {report}"
