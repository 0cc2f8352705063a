"""The two packages have as many lines of code as `code_lines.txt` says, so that a reviewer sees growth.

A line counts if it has a token of code: no blank lines, comments or docstrings. `python tests/test_code_lines.py`
rewrites that file; CONTRIBUTING.md says when a number may grow.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path


ROOT = Path(__file__).resolve().parents[1]
RECORDED = Path(__file__).with_name("code_lines.txt")
PACKAGES = ("pettingllms_envs", "pettingllms_trl")
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str) -> int:
    """Lines of `source` that have code."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, WITH_DOCSTRINGS) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def counted() -> str:
    """One line for each sub-package, modules of a package itself under its name, and one for the sum."""
    lines: Counter[str] = Counter()
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            parts = file.relative_to(ROOT).parts
            lines["/".join(parts[: min(2, len(parts) - 1)])] += code_lines(file.read_text(encoding="utf-8"))
    rows = [*sorted(lines.items()), ("sum", sum(lines.values()))]
    return "".join(f"{name:32}{number:6}\n" for name, number in rows)


def test_a_line_counts_when_it_has_code_that_is_no_docstring():
    source = '"""A\nmodule."""\n\n# a comment\nX = """two\nlines"""  # 2\ndef f():\n    """Doc."""\n    return 1\n'
    assert code_lines(source) == 4


def test_the_packages_have_as_many_lines_of_code_as_is_recorded():
    assert counted() == RECORDED.read_text(encoding="utf-8"), (
        "run `python tests/test_code_lines.py`; see CONTRIBUTING.md"
    )


if __name__ == "__main__":
    RECORDED.write_text(counted(), encoding="utf-8")
