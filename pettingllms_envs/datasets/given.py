"""A row that a user gives by itself, as a problem: in the columns of a layout, or a question, perhaps with its answer.

A question without an answer becomes a problem that nothing is compared with, so that it has no verdict.
"""

from __future__ import annotations

from typing import TypeVar

from pettingllms_envs.datasets import normalization
from pettingllms_envs.datasets.columns import Layout, find_layout
from pettingllms_envs.datasets.problems import NO_ANSWER, MathProblem, Problem
from pettingllms_envs.datasets.rows import BadRow, DataRow, LeftOut, missing, statement


Kind = TypeVar("Kind", bound=Problem)


def given_problem(row: object, kind: type[Kind], layout: Layout) -> Kind:
    """The problem of a row with the columns of the layout or of `Problem.simple`, or with `question` alone."""
    columns: DataRow = row if isinstance(row, dict) else {}
    try:
        for each in (layout, find_layout(kind.simple) if kind.simple else layout):
            if columns and not missing(each.columns, columns):
                found = each.read(columns)
                if isinstance(found, kind):
                    return found
        if set(columns) == {"question"} and kind.unanswered is not None:
            asked = statement(columns, "question")
            name = normalization.name(asked)
            return kind(source="row", id=name, statement=asked, unjudged=NO_ANSWER, **kind.unanswered)
    except (BadRow, LeftOut) as reason:
        raise ValueError(f"the row is {row!r}: {reason}. Fix it.") from None
    forms = [" and ".join(" or ".join(names) for names in layout.columns)]
    forms += ["question and answer"] if kind is MathProblem else []
    forms += ["question alone, for no verdict"] if kind.unanswered is not None else []
    raise ValueError(f"the row is {row!r}; expected an object with the columns {', or '.join(forms)}. Fix it.")
