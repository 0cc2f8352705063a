"""A recorded game per task and workflow, played again word for word.

If one of these fails, play has changed: raise the version of the task, and record the new one by

    python tests/envs/test_recorded_games.py

which writes the files that are missing and never one that is there.
"""

import ast
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import ToolResult
from pettingllms_envs.testing.recording import record


RECORDED = Path(__file__).parent / "recorded"
GAMES = ("plan_path_v0", "sokoban_v0", "sudoku_v0")
WORKFLOWS = ("single", "draft_plan", "tool_plan")
FORMS = ("team", "cut", "alone", "full")
DEFAULT = "default"
"""Instead of a workflow: the environment is made without any setting."""
RECORDINGS = (
    *itertools.product((*GAMES, "blocksworld_v0", "eight_queens_v0"), WORKFLOWS),
    *itertools.product(("laws_v0", "causal_graphs_v0"), ("lab", "single")),
    *itertools.product(("benches_v0",), ("team", "alone", "full")),
    *itertools.product(GAMES, ("describer_solver",)),
    ("kuhn_poker_v0", "match"),
    *itertools.product(("hanabi_v0",), ("team", "ad_hoc")),
    *itertools.product(("archives_v0", "note_taking_v0"), FORMS),
    ("archives_v0", "pair"),
    ("archives_v0", DEFAULT),
    ("search_v0", "team"),
    ("search_v0", "single"),
    *itertools.product(("hidden_bench_v0",), ("team", "cut", "full")),
    ("silos_v0", "team"),
    ("two_arms_v0", "team"),
    *itertools.product(("service_v0",), ("team", "scripted", "specialist", "single", "cut", "alone")),
    *itertools.product(("sql_v0",), ("explorer_writer", "linker_writer", "writer_checker", "single")),
    *itertools.product(("verilog_v0",), ("designer_tester", "architect_implementer", "single")),
)


def print_executor(program: str) -> ToolResult:
    """Runs the one program that the recorded tool writes, `print('...')`, by reading it."""
    inside = program.removeprefix("print(").removesuffix(")")
    return ToolResult(f"{ast.literal_eval(inside)}\n")


def maker(name: str, workflow: str) -> Callable[[], TextEnv]:
    settings: dict[str, Any] = {"executor": print_executor} if workflow == "tool_plan" else {}
    if name == "hanabi_v0":
        settings = {"level": 2}  # a long game would make a long file
    if workflow == DEFAULT:
        return lambda: pettingllms_envs.make(name)
    if name == "archives_v0":
        settings = {"facts": 1, "order": "question"}
    return lambda: pettingllms_envs.make(name, workflow=workflow, **settings)


@pytest.mark.parametrize(("name", "workflow"), RECORDINGS)
def test_the_recorded_game_is_played_again_word_for_word(name: str, workflow: str) -> None:
    recorded = (RECORDED / f"{name}_{workflow}.txt").read_text(encoding="utf-8")
    assert record(maker(name, workflow)) == recorded


if __name__ == "__main__":
    for name, workflow in RECORDINGS:
        path = RECORDED / f"{name}_{workflow}.txt"
        if not path.exists():
            path.write_text(record(maker(name, workflow)), encoding="utf-8")
