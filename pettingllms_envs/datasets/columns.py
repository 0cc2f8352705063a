"""The table of layouts: the columns of a data set's rows, and the function that turns a row into a problem.

A new layout is one function and one line in `LAYOUTS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pettingllms_envs.datasets.problems import Problem
from pettingllms_envs.datasets.rows import DataRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How rows of a data set become problems.

    Args:
        columns: The columns of every row; for each column the names that it has in copies of the set.
        read: Turns a row into a problem, or raises `BadRow` or `LeftOut`.
        benchmark: Whether the set is for tests only and is never split.
        repeats: Whether rows repeat; then only the first row of each statement is used.
    """

    name: str
    columns: tuple[tuple[str, ...], ...]
    read: Callable[[DataRow], Problem]
    benchmark: bool = False
    repeats: bool = False


def layout_of(name: str, reader: str, *columns: str | tuple[str, ...], **options: bool) -> Layout:
    """A layout whose reader lies in an environment's folder and is imported at the first row.

    Args:
        reader: The module in `pettingllms_envs.environments` and its function, such as `"coding.apps_rows:read"`.
        columns: Each by its name, or by those that it has in copies of the set.
    """
    named = tuple((each,) if isinstance(each, str) else each for each in columns)
    return Layout(name=name, columns=named, read=partial(_read, reader), **options)


def _read(reader: str, row: DataRow, **fixed: str) -> Problem:
    module, _, function = reader.partition(":")
    found = getattr(importlib.import_module(f"pettingllms_envs.environments.{module}"), function)
    return found(row, **fixed)  # type: ignore[no-any-return]


def answer_columns(problem: str = "problem", answer: str = "answer") -> Layout:
    """The layout of a data set with a problem and its answer in columns of these names.

    Args:
        answer: The column of the answer. If a row lacks it, the last box in its `solution` is the answer.
    """
    name = "math" if (problem, answer) == ("problem", "answer") else f"math:{problem},{answer}"
    read = partial(_read, "mathematics.answer_rows:read", source="math", problem=problem, answer=answer)
    return Layout(name=name, columns=((problem,), (answer, "solution")), read=read, repeats=True)


_SUPPORTED = ("question", "context", "supporting_facts")
_LIVE = ("question_content", "question_id", "public_test_cases", "private_test_cases")
_HIDDEN = ("description", "shared_information", "hidden_information", "possible_answers", "correct_answer")
_AIME = (("problem", "Problem", "question"), ("answer", "Answer", "solution"))
_OLYMPIAD = (("question", "problem"), "final_answer")

LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        layout_of("apps", "coding.apps_rows:read", "question", "input_output"),
        layout_of("code_contests", "coding.code_contests_rows:read", "name", "description", "public_tests"),
        layout_of("live_code_bench", "coding.live_code_bench_rows:read", *_LIVE, benchmark=True),
        layout_of("code", "coding.plain_code_rows:read", "question", "inputs", "outputs"),
        layout_of("aime", "mathematics.aime_rows:read", *_AIME, benchmark=True),
        layout_of("olympiad_bench", "mathematics.olympiad_bench_rows:read", *_OLYMPIAD, benchmark=True),
        layout_of("polaris", "mathematics.answer_rows:polaris", "problem", "answer", repeats=True),
        layout_of("gsm8k", "mathematics.answer_rows:gsm8k", "question", "answer"),
        layout_of("dapo", "mathematics.answer_rows:dapo", "prompt", "reward_model", repeats=True),
        answer_columns(),
        layout_of("hotpot_qa", "search.hotpot_qa_rows:read", *_SUPPORTED),
        layout_of("two_wiki", "search.hotpot_qa_rows:two_wiki", *_SUPPORTED),
        layout_of("musique", "search.musique_rows:read", "question", "paragraphs"),
        layout_of("flash_rag", "search.flash_rag_rows:read", "question", "golden_answers"),
        layout_of("hidden_bench", "hidden_bench.rows:read", *_HIDDEN, benchmark=True),
        layout_of("spider", "sql.rows:spider", "db_id", "question", "query"),
        layout_of("bird", "sql.rows:bird", "db_id", "question", "evidence", ("SQL", "sql")),
        layout_of("synsql", "sql.rows:synsql", "db_id", "question", "sql", "sql_complexity"),
    )
}
"""By name."""


def find_layout(layout: str | Layout) -> Layout:
    """A layout by its name, or itself.

    Args:
        layout: A layout, its name, or `"math:question,final"`, that of problems with an answer in these two columns.
    """
    if isinstance(layout, Layout):
        return layout
    name, colon, columns = layout.partition(":")
    names = [column.strip() for column in columns.split(",")]
    if name == "math" and colon and len(names) == 2 and all(names):
        return answer_columns(*names)
    if layout not in LAYOUTS:
        raise ValueError(
            f"no layout {layout!r}; expected one of {', '.join(map(repr, LAYOUTS))}, or 'math:PROBLEM,ANSWER' with the"
            " names of two columns. Name one of them."
        )
    return LAYOUTS[layout]
