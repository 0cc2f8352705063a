"""Regular expressions read texts of others: each is compiled at module level, and timed, see `patterns.py`."""

import ast
import importlib
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import patterns


ROOT = Path(__file__).parents[2]
# Patterns of words that are known at runtime only, all of them escaped, without a repeat.
ESCAPED_WORDS = {"pettingllms_trl/policies/escaping.py": 1, "pettingllms_envs/commands/new.py": 1}
IMPORT = re.compile(r"^ *(?:import|from) re\b", re.M)
ANCHORED = {"match", "fullmatch"}


def files() -> list[Path]:
    """Those that import `re`."""
    found = (each for name in ("pettingllms_envs", "pettingllms_trl") for each in sorted((ROOT / name).rglob("*.py")))
    return [each for each in found if IMPORT.search(each.read_text("utf-8"))]


def is_call_of_re(node: ast.AST, *names: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and (not names or node.func.attr in names)
    )


def calls_elsewhere(tree: ast.Module) -> list[int]:
    """Lines with a call of `re` that compiles a pattern within a function or a class."""
    outside = {id(node) for each in tree.body if not is_scope(each) for node in ast.walk(each)}
    return [
        node.lineno
        for node in ast.walk(tree)
        if is_call_of_re(node) and not is_call_of_re(node, "escape") and id(node) not in outside
        if isinstance(node, ast.Call)
    ] + [node.lineno for node in ast.walk(tree) if id(node) in outside and is_uncompiled(node)]


def is_scope(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def is_uncompiled(node: ast.AST) -> bool:
    return is_call_of_re(node) and not is_call_of_re(node, "escape", "compile")


def patterns_of(path: Path) -> Iterator[tuple[str, re.Pattern[Any], str]]:
    """Where each pattern of a file stands, its value, and how it is used: by a search, or only from a text's start."""
    tree = ast.parse(path.read_text("utf-8"))
    statements = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and any(is_call_of_re(each, "compile") for each in ast.walk(node))
    ]
    if not statements:
        return
    level = logging.root.manager.disable
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    logging.disable(level)  # a module of a grader's worker, which has a process to itself, turns it off
    for node in statements:
        (target,) = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [each.id for each in ast.walk(target) if isinstance(each, ast.Name)]
        found = [each for name in names for each in held(vars(module)[name])]
        assert len(found) >= sum(is_call_of_re(each, "compile") for each in ast.walk(node)), (path, node.lineno)
        for name in names:
            for pattern in held(vars(module)[name]):
                method = "fullmatch" if is_anchored(name, tree) else "search"
                yield f"{path.relative_to(ROOT)}:{node.lineno} {name}", pattern, method


def held(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from (each for inner in value.values() for each in held(inner))
    elif isinstance(value, tuple | list):
        yield from (each for inner in value for each in held(inner))


def is_anchored(name: str, tree: ast.Module) -> bool:
    """Whether a file matches a pattern only from the start of a text, and hands it to nobody who may search."""
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
    known = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ANCHORED and isinstance(node.value, ast.Name)
    ] + [
        node.args[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "match_last_line"
    ]
    known += [  # of a table, each of whose patterns is matched so
        node.generators[0].iter
        for node in ast.walk(tree)
        if isinstance(node, ast.GeneratorExp)
        and {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)} <= ANCHORED
    ]
    read = [each for each in uses if isinstance(each.ctx, ast.Load)]
    return bool(read) and all(any(each is other for other in known) for each in read)


def test_every_pattern_is_compiled_at_module_level() -> None:
    found = {}
    for path in files():
        tree = ast.parse(path.read_text("utf-8"))
        imported = {each for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for each in [node.module]}
        assert "re" not in imported, f"{path}: write `import re`, by which this test finds patterns"
        found[str(path.relative_to(ROOT))] = len(calls_elsewhere(tree))
    assert {name: number for name, number in found.items() if number} == ESCAPED_WORDS


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import re\nA = re.compile('a')\nB = (re.compile('b'),)", []),
        ("def f(x):\n    return re.sub('a', 'b', x)", [2]),
        ("class A:\n    X = re.compile('a')", [2]),
        ("X = re.sub('a', 'b', 'c')", [1]),
        ("def f(x):\n    return re.escape(x)", []),
    ],
)
def test_a_pattern_within_a_function_or_a_class_is_found(source: str, lines: list[int]) -> None:
    assert calls_elsewhere(ast.parse(source)) == lines


def test_every_pattern_of_both_packages_takes_at_most_six_times_as_long_for_four_times_the_text() -> None:
    given = []
    for path in files():
        for where, pattern, method in patterns_of(path):
            is_bytes = isinstance(pattern.pattern, bytes)
            text = pattern.pattern.decode("latin-1") if is_bytes else pattern.pattern
            given.append([where, text, pattern.flags & ~re.UNICODE, is_bytes, method])
    assert len(given) > 150
    run = subprocess.run(
        [sys.executable, patterns.__file__], input=json.dumps(given), capture_output=True, text=True, timeout=300
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("pattern", "method", "is_linear"),
    [
        (r"\s*b", "fullmatch", True),
        (r"\s*b", "search", False),
        (r"(?:(?<!\s)\s+)?b", "search", True),
        (r"(?:a+)+b", "fullmatch", False),
        (r"(<!--.*?-->\s*)*<body", "fullmatch", False),
        (r"<title\b[^>]*>", "search", False),
        (r"<title\b[^<>]*>", "search", True),
        (r"a\s*\s*b", "fullmatch", False),
        (r"x[^y]*x|ab", "search", True),
        (r"[ \t]*(`{3,}|~{3,})[ \t]*([^`]*)", "fullmatch", False),
        (r"[ \t]*(`{3,}+|~{3,}+)([^`]*)", "fullmatch", True),
    ],
)
def test_what_is_quadratic_or_worse_is_found(pattern: str, method: str, is_linear: bool) -> None:
    compiled = re.compile(pattern)
    faults = (patterns.fault(compiled, method, given) for given in patterns.texts(pattern, 0))
    assert (not any(faults)) is is_linear
