"""`rollout/` can be read: few lines, short files, small classes, and functions whose arguments are values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pettingllms_trl.rollout


FILES = sorted(Path(pettingllms_trl.rollout.__file__).parent.glob("*.py"))
MOST_LINES, MOST_LINES_OF_ALL, MOST_METHODS, MOST_PARAMETERS = 300, 2400, 12, 6


def nodes() -> Iterator[tuple[str, ast.AST]]:
    return ((file.name, node) for file in FILES for node in ast.walk(ast.parse(file.read_text("utf-8"))))


def test_no_file_is_long_and_all_of_them_stay_short() -> None:
    lines = {file.name: file.read_text("utf-8").count("\n") for file in FILES}
    assert {name: number for name, number in lines.items() if number > MOST_LINES} == {}
    assert sum(lines.values()) <= MOST_LINES_OF_ALL


def test_no_class_has_many_methods() -> None:
    counts = {
        f"{name}: {node.name}": sum(isinstance(each, ast.FunctionDef) for each in node.body)
        for name, node in nodes()
        if isinstance(node, ast.ClassDef)
    }
    assert {name: number for name, number in counts.items() if number > MOST_METHODS} == {}


def test_only_play_takes_many_arguments_and_nothing_takes_any_keywords() -> None:
    many = set()
    for name, node in nodes():
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            given, called = node.args, getattr(node, "name", "lambda")
            names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            assert given.kwarg is None, f"{name}: {called} takes **{given.kwarg}"
            if len([each for each in names if each not in ("self", "cls")]) > MOST_PARAMETERS:
                many.add(f"{name}: {called}")
    assert many == {"play.py: play"}
