"""The simplest layout for a code data set: columns `question`, `inputs`, `outputs`, and optional others.

It has lists instead of JSON texts. `inputs` and `outputs` are texts or, with `fn_name`, lists of arguments and results
of calls.
"""

from __future__ import annotations

from pettingllms_envs.datasets import normalization, rows
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.datasets.rows import DataRow
from pettingllms_envs.environments.coding.apps_rows import LEVELS as APPS_LEVELS
from pettingllms_envs.environments.coding.apps_rows import code_problem
from pettingllms_envs.environments.coding.live_code_bench_rows import LEVELS


def read(row: DataRow) -> CodeProblem:
    """A row: `question`, `inputs`, `outputs`; `id`, `fn_name`, `starter_code`, `solutions`, `difficulty`, `date`."""
    statement = rows.statement(row, "question")
    solutions = row.get("solutions")
    if solutions is None:
        solutions = [row["solution"]] if row.get("solution") else []
    return code_problem(
        source="code",
        id=rows.words(row, "id") or normalization.name(statement),
        statement=statement,
        tests=rows.pairs(row.get("inputs"), row.get("outputs"), "the row"),
        fn_name=rows.text(row, "fn_name", default="") or None,
        starter_code=rows.text(row, "starter_code", default=""),
        solutions=rows.texts(solutions, "'solutions'"),
        level={**APPS_LEVELS, **LEVELS}.get(rows.words(row, "difficulty").lower(), 1),
        date=rows.text(row, "date", default=""),
    )
