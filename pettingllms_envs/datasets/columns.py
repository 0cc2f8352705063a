"""The table of layouts: the columns of a data set's rows, and the function that turns a row into a problem.

A new layout is one function and one line in `LAYOUTS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pettingllms_envs.datasets.problems import Problem
from pettingllms_envs.datasets.rows import Row


def reader(name: str, **fixed: str) -> Callable[[Row], Problem]:
    """A function of an environment's folder, which is imported at the first row: the table of layouts loads none.

    Args:
        name: The module in `pettingllms_envs.environments` and the function, such as `"coding.apps_rows:read"`.
        fixed: Its keyword arguments.
    """
    return partial(_read, name, fixed)


def _read(name: str, fixed: Mapping[str, str], row: Row) -> Problem:
    module, _, function = name.partition(":")
    found = getattr(importlib.import_module(f"pettingllms_envs.environments.{module}"), function)
    return found(row, **fixed)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How rows of a data set become problems.

    Args:
        name: Its name on the command line.
        columns: The columns of every row; for each column the names that it has in copies of the set.
        read: Turns a row into a problem, or raises `BadRow` or `LeftOut`.
        benchmark: Whether the set is for tests only and is never split.
        repeats: Whether rows repeat; then only the first row of each statement is used.
    """

    name: str
    columns: tuple[tuple[str, ...], ...]
    read: Callable[[Row], Problem]
    benchmark: bool = False
    repeats: bool = False


def answer_columns(problem: str = "problem", answer: str = "answer") -> Layout:
    """The layout of a data set with a problem and its answer in columns of these names.

    Args:
        answer: The column of the answer. If a row lacks it, the last box in its `solution` is the answer.
    """
    name = "math" if (problem, answer) == ("problem", "answer") else f"math:{problem},{answer}"
    read = reader("mathematics.answer_rows:read", source="math", problem=problem, answer=answer)
    return Layout(name=name, columns=((problem,), (answer, "solution")), read=read, repeats=True)


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(name="apps", columns=(("question",), ("input_output",)), read=reader("coding.apps_rows:read")),
        Layout(
            name="code_contests",
            columns=(("name",), ("description",), ("public_tests",)),
            read=reader("coding.code_contests_rows:read"),
        ),
        Layout(
            name="live_code_bench",
            columns=(("question_content",), ("question_id",), ("public_test_cases",), ("private_test_cases",)),
            read=reader("coding.live_code_bench_rows:read"),
            benchmark=True,
        ),
        Layout(
            name="code", columns=(("question",), ("inputs",), ("outputs",)), read=reader("coding.plain_code_rows:read")
        ),
        Layout(
            name="aime",
            columns=(("problem", "Problem", "question"), ("answer", "Answer", "solution")),
            read=reader("mathematics.aime_rows:read"),
            benchmark=True,
        ),
        Layout(
            name="olympiad_bench",
            columns=(("question", "problem"), ("final_answer",)),
            read=reader("mathematics.olympiad_bench_rows:read"),
            benchmark=True,
        ),
        Layout(
            name="polaris",
            columns=(("problem",), ("answer",)),
            read=reader("mathematics.answer_rows:polaris"),
            repeats=True,
        ),
        Layout(name="gsm8k", columns=(("question",), ("answer",)), read=reader("mathematics.answer_rows:gsm8k")),
        Layout(
            name="dapo",
            columns=(("prompt",), ("reward_model",)),
            read=reader("mathematics.answer_rows:dapo"),
            repeats=True,
        ),
        answer_columns(),
        Layout(
            name="hotpot_qa",
            columns=(("question",), ("context",), ("supporting_facts",)),
            read=reader("search.hotpot_qa_rows:read"),
        ),
        Layout(
            name="two_wiki",
            columns=(("question",), ("context",), ("supporting_facts",)),
            read=reader("search.hotpot_qa_rows:read", source="two_wiki"),
        ),
        Layout(name="musique", columns=(("question",), ("paragraphs",)), read=reader("search.musique_rows:read")),
        Layout(
            name="flash_rag", columns=(("question",), ("golden_answers",)), read=reader("search.flash_rag_rows:read")
        ),
        Layout(
            name="hidden_bench",
            columns=(
                ("description",),
                ("shared_information",),
                ("hidden_information",),
                ("possible_answers",),
                ("correct_answer",),
            ),
            read=reader("hidden_bench.rows:read"),
            benchmark=True,
        ),
    )
}
"""By name."""


def find_layout(layout: str | Layout) -> Layout:
    """A layout by its name, or itself.

    Args:
        layout: A layout, its name, or `"math:question,final"`, the layout of problems with an answer in columns of
            these two names.

    Raises:
        ValueError: There is no layout of this name.
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
