"""The table of layouts: the columns of a data set's rows, and the function that turns a row into a problem.

A new layout is one function and one line in `LAYOUTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pettingllms_envs.datasets import (
    aime,
    answers,
    apps,
    code_contests,
    flash_rag,
    hidden_bench,
    hotpot_qa,
    live_code_bench,
    musique,
    olympiad_bench,
    plain_code,
)
from pettingllms_envs.datasets.problems import Problem
from pettingllms_envs.datasets.rows import Row


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
    read = partial(answers.read, source="math", problem=problem, answer=answer)
    return Layout(name=name, columns=((problem,), (answer, "solution")), read=read, repeats=True)


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(name="apps", columns=(("question",), ("input_output",)), read=apps.read),
        Layout(
            name="code_contests", columns=(("name",), ("description",), ("public_tests",)), read=code_contests.read
        ),
        Layout(
            name="live_code_bench",
            columns=(("question_content",), ("question_id",), ("public_test_cases",), ("private_test_cases",)),
            read=live_code_bench.read,
            benchmark=True,
        ),
        Layout(name="code", columns=(("question",), ("inputs",), ("outputs",)), read=plain_code.read),
        Layout(
            name="aime",
            columns=(("problem", "Problem", "question"), ("answer", "Answer", "solution")),
            read=aime.read,
            benchmark=True,
        ),
        Layout(
            name="olympiad_bench",
            columns=(("question", "problem"), ("final_answer",)),
            read=olympiad_bench.read,
            benchmark=True,
        ),
        Layout(name="polaris", columns=(("problem",), ("answer",)), read=answers.polaris, repeats=True),
        Layout(name="gsm8k", columns=(("question",), ("answer",)), read=answers.gsm8k),
        Layout(name="dapo", columns=(("prompt",), ("reward_model",)), read=answers.dapo, repeats=True),
        answer_columns(),
        Layout(name="hotpot_qa", columns=(("question",), ("context",), ("supporting_facts",)), read=hotpot_qa.read),
        Layout(
            name="two_wiki",
            columns=(("question",), ("context",), ("supporting_facts",)),
            read=partial(hotpot_qa.read, source="two_wiki"),
        ),
        Layout(name="musique", columns=(("question",), ("paragraphs",)), read=musique.read),
        Layout(name="flash_rag", columns=(("question",), ("golden_answers",)), read=flash_rag.read),
        Layout(
            name="hidden_bench",
            columns=(
                ("description",),
                ("shared_information",),
                ("hidden_information",),
                ("possible_answers",),
                ("correct_answer",),
            ),
            read=hidden_bench.read,
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
