"""Runs the code of a page, and holds what it prints to what the page shows."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blocks import Block, blocks, commands
from pettingllms_envs import cli


README_MARKS = {
    "make quickstart": ("tested by", "tests/examples/test_quickstart.py"),
    "pip install": ("not run", "it installs"),
    "pettingllms bench": ("not run", "needs a model behind a server"),
    "pettingllms new": ("tested by", "tests/envs/test_cli.py"),
    "make test": ("not run", "it is this"),
}
"""Marks of the README's blocks, by how their first command begins; the first counts. It is kept free of comments."""


def marks_of(page: str, block: Block) -> dict[str, str]:
    """What a block's comments say, or for the README's the table."""
    if page == "README.md" and not block.marks:
        first = block.code.removeprefix("$ ")
        return dict([mark for begin, mark in README_MARKS.items() if first.startswith(begin)][:1])
    return block.marks


def runs(page: str, block: Block) -> bool:
    """Whether a block is to be run here."""
    return not marks_of(page, block).keys() & {"not run", "tested by"}


def run_page(
    page: str, text: str, *, closing: contextlib.ExitStack, shorter: Callable[[str], str] = lambda code: code
) -> dict[str, Any]:
    """Run a page's blocks from top to bottom in one namespace, which is returned.

    What a page has in comments to be run first may use two names besides: `closing`, and `instead`, a dictionary from
    words of the page's commands to what stands for them here, such as a server's address; it has `benchmarks/results`.

    Args:
        page: Its path from the root of the repository.
        text: Of the page.
        closing: Holds what the page starts.
        shorter: Python of a block to what is run of it.

    Raises:
        AssertionError: Something printed or evaluated to anything else than the page says.
    """
    results = {"benchmarks/results": str(Path(__file__).parents[2] / "benchmarks" / "results")}
    namespace: dict[str, Any] = {"__name__": "__main__", "closing": closing, "instead": results}
    for block in blocks(text):
        if runs(page, block):
            run_block(block, f"{page}:{block.line}", namespace, shorter)
    return namespace


def run_block(block: Block, where: str, namespace: dict[str, Any], shorter: Callable[[str], str]) -> None:
    """Run what a block has in a comment to be run first, then the block."""
    varies = "output varies" in block.marks
    if "first" in block.marks:
        run_python(block.marks["first"], f"before {where}", namespace)
    if block.language == "python":
        printed = run_python(shorter(block.code), where, namespace)
        if block.shown is not None:
            same(printed, block.shown, where, varies=varies)
        return
    for command in commands(block):
        line = command.words
        for given, here in namespace["instead"].items():
            line = line.replace(given, here)
        printed = run_command(line, where)
        if command.shown:
            same(printed, command.shown, f"{where}: {command.words}", varies=varies)


def run_python(code: str, where: str, namespace: dict[str, Any]) -> str:
    """Run a block, hold `expression  # value` to the value, and return what it printed."""
    namespace["_says"] = says
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        compiled = compile(checking(code), where, "exec", dont_inherit=True)  # without this file's `annotations`
        exec(compiled, namespace)  # noqa: S102  # our own documentation, not a model's
    return printed.getvalue()


def checking(code: str) -> ast.Module:
    """The code, in which `expression  # literal` compares the two, and `print(expression)  # literal` does so, too."""
    comments = {
        token.end[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type == tokenize.COMMENT
    }
    tree = ast.parse(code)
    for statement in tree.body:
        if isinstance(statement, ast.Expr) and (said := comments.get(statement.end_lineno or 0)) is not None:
            with contextlib.suppress(ValueError, SyntaxError):  # most comments are words
                ast.literal_eval(said)
                value = statement.value
                printed = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"
                compared = value.args[0] if printed else value  # type: ignore[attr-defined]
                call = ast.Call(ast.Name("_says", ast.Load()), [compared, ast.Constant(said)], [])
                statement.value = ast.copy_location(call, value)
    return ast.fix_missing_locations(tree)


def says(value: object, said: str) -> None:
    """Raise AssertionError unless a value is what the page says."""
    assert value == ast.literal_eval(said), f"the page says {said}, and it is {value!r}"


def run_command(line: str, where: str) -> str:
    """Run a `pettingllms` command in this process, and return what it printed, errors too."""
    program, *arguments = shlex.split(line, comments=True)
    assert program == "pettingllms", f"{where}: {line!r} is no command of ours; mark its block `not run: why`"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = cli.main(arguments)
    assert status in (0, 1), f"{where}: {line!r} ended with {status}:\n{printed.getvalue()}"
    return printed.getvalue()


def same(printed: str, shown: str, where: str, *, varies: bool) -> None:
    """Compare line by line, without blanks at the ends and wall times; a line `...` stands for any lines."""
    ours, theirs = (
        [re.sub(r"wall time [\d.]+ s", "wall time", line.rstrip()) for line in text.strip("\n").split("\n")]
        for text in (printed, shown)
    )
    if varies:
        ours, theirs = ([re.sub(r"\d[\d.,:]*", "0", line) for line in lines] for lines in (ours, theirs))
        ours, theirs = ([re.sub(r" +", " ", line) for line in lines] for lines in (ours, theirs))
    pattern = "\n".join(re.escape(line) if line != "..." else r"(?s:.*)" for line in theirs)
    assert re.fullmatch(pattern, "\n".join(ours)), f"{where} prints\n\n{printed}"
