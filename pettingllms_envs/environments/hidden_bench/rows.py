"""HiddenBench (YuxuanLi1225/HiddenBench): 65 hidden profiles, which a group can solve and none of its members alone.

The columns `id`, `name`, `description`, `shared_information`, `hidden_information`, `possible_answers` and
`correct_answer` were read in github.com/Yassellee/HiddenBench (`sim.py`) and in the README of
github.com/jonradoff/hiddenbench. 7 tasks are said to have 3 hidden facts, and 58 to have 4. No file of it was loaded
here.
Source: Li, Naito and Shirado 2025, arXiv:2505.11556 (MIT).
"""

from __future__ import annotations

from dataclasses import dataclass

from pettingllms_envs.datasets import normalization, rows
from pettingllms_envs.datasets.problems import Problem
from pettingllms_envs.datasets.rows import BadRow, DataRow, LeftOut


MOST_MEMBERS = 4
"""Most hidden facts, each of which is known to one agent."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class HiddenProfile(Problem):
    """A choice between at least two options for a group of agents, each of whom knows one fact that the others do not.

    Args:
        hidden: The facts that one agent knows, one for each agent.
    """

    shared: tuple[str, ...]
    hidden: tuple[str, ...]
    options: tuple[str, ...]
    answer: str


def read(row: DataRow) -> HiddenProfile:
    """A row of HiddenBench as a problem.

    Raises:
        LeftOut: It has more than `MOST_MEMBERS` hidden facts.
    """
    hidden = _texts(row, "hidden_information", 2, 1000)
    if len(hidden) > MOST_MEMBERS:
        raise LeftOut(f"it has more than {MOST_MEMBERS} hidden facts")
    description = rows.statement(row, "description")
    options = _texts(row, "possible_answers", 2, 26)
    answer = rows.statement(row, "correct_answer")
    spelled = [normalization.short_answer(option) for option in options]
    if spelled.count(normalization.short_answer(answer)) != 1 or len(set(spelled)) < len(spelled):
        raise BadRow(f"'correct_answer' is {answer!r}; expected one of the options, {options}")
    return HiddenProfile(
        source="hidden_bench",
        id=rows.words(row, "id") or normalization.name(description),
        statement=description,
        subject=rows.text(row, "name", default=""),
        shared=_texts(row, "shared_information", 0, 1000),
        hidden=hidden,
        options=options,
        answer=options[spelled.index(normalization.short_answer(answer))],
    )


def _texts(row: DataRow, column: str, least: int, most: int) -> tuple[str, ...]:
    found = rows.items(row.get(column), repr(column))
    if not all(isinstance(each, str) and each.strip() for each in found) or not least <= len(found) <= most:
        raise BadRow(f"{column!r} is {str(found)[:200]}; expected {least} to {most} texts")
    return tuple(each.strip() for each in found)
