"""Sequences to passes of bounded size, by their tokens: which go through the model together, and where. Pure.

A pass takes sequences of like length, as many as fit into its budget. Sequences with the same prompt stay together,
where a prompt is read once for all of them (`packing.py`); a group that is larger than the budget is divided evenly.
With several processes each has as many passes in a micro-step, and as many rows in a pass.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from pettingllms_trl.update.assignment import Assignment
from pettingllms_trl.update.packing import num_tokens


@dataclass(frozen=True, slots=True)
class Size:
    """Of a sequence.

    Args:
        group: Of those with the same prompt.
        prompt, completion: Tokens.
    """

    group: Hashable
    prompt: int
    completion: int


Unit = tuple[int, ...]
"""Rows that go through the model together."""


def assign_by_tokens(
    sizes: Sequence[Size],
    order: Sequence[int],
    *,
    budget: int,
    is_shared: bool,
    num_steps: int,
    num_updates: int = 1,
    num_processes: int = 1,
    left_out: Collection[int] = (),
) -> Assignment:
    """Deal a policy's rows to micro-steps, to their passes, and to processes.

    Args:
        sizes: Of each row.
        order: The indices of the rows, shuffled.
        budget: Most tokens of a pass on one process. A row that is larger has a pass of its own.
        is_shared: A pass is one row without padding, each prompt once. Else it is padded to its longest.
        num_steps: Micro-steps per generation.
        num_updates: Optimizer steps per generation. Where there are fewer groups they are divided, that none of the
            steps be without rows.
        num_processes: Of each pass, each process has as many rows; `None` fills up.
        left_out: Rows that go through no pass. They count in their micro-step, and come last in it.
    """
    # Which rows a micro-step has depends neither on the budget nor on the processes, nor does then what is learned.
    units = _groups(sizes, order) if is_shared else [(row,) for row in order]
    if len(units) < num_updates:
        units = [part for unit in units for part in _parts(unit, math.ceil(num_updates / len(units)))]
    steps: list[list[Unit]] = [[] for _ in range(num_steps)]
    for i, unit in enumerate(units):
        steps[i * num_steps // len(units)].append(unit)
    rows, passes = [], []
    for step in steps:
        own = [kept for unit in step if (kept := tuple(row for row in unit if row not in left_out))]
        by_length = sorted(_divide(own, sizes, budget, is_shared), key=lambda unit: _length(unit, sizes))
        of_pass = _passes(by_length, sizes, budget, is_shared, num_processes)
        padded = [_pad(each) for each in of_pass]
        rest = [row for unit in step for row in unit if row in left_out]
        parts = [*padded, _pad([rest[p::num_processes] for p in range(num_processes)])]
        rows.append(tuple(tuple(row for each in parts for row in each[p]) for p in range(num_processes)))
        passes.append(tuple(len(each[0]) for each in padded))
    return Assignment(tuple(rows), tuple(passes))


def cost(rows: Sequence[int], sizes: Sequence[Size], *, is_shared: bool) -> int:
    """Tokens of a pass with these rows; padding is some."""
    if not rows:
        return 0
    if not is_shared:
        return len(rows) * (max(sizes[row].prompt for row in rows) + max(sizes[row].completion for row in rows))
    groups: dict[Hashable, list[Size]] = {}
    for row in rows:
        groups.setdefault(sizes[row].group, []).append(sizes[row])
    return sum(num_tokens(own[0].prompt, [size.completion for size in own]) for own in groups.values())


def _groups(sizes: Sequence[Size], order: Sequence[int]) -> list[Unit]:
    """Rows with the same prompt, in the order in which the first of each comes."""
    groups: dict[Hashable, list[int]] = {}
    for row in order:
        groups.setdefault(sizes[row].group, []).append(row)
    return [tuple(rows) for rows in groups.values()]


def _divide(units: Sequence[Unit], sizes: Sequence[Size], budget: int, is_shared: bool) -> list[Unit]:
    """Those that fit into the budget, and the parts of those that do not."""
    divided = []
    for unit in units:
        number = 1
        while number < len(unit) and any(
            cost(part, sizes, is_shared=is_shared) > budget for part in _parts(unit, number)
        ):
            number += 1
        divided += _parts(unit, number)
    return divided


def _parts(unit: Unit, number: int) -> list[Unit]:
    """As even as can be, none of them empty."""
    number = min(number, len(unit))
    return [unit[len(unit) * i // number : len(unit) * (i + 1) // number] for i in range(number)]


def _length(unit: Unit, sizes: Sequence[Size]) -> float:
    return statistics.fmean(sizes[row].prompt + sizes[row].completion for row in unit)


def _passes(
    units: Sequence[Unit], sizes: Sequence[Size], budget: int, is_shared: bool, num_processes: int
) -> list[list[list[int]]]:
    """For each pass the rows of each process: neighbours in length, until a process would be over its budget."""
    passes: list[list[list[int]]] = []
    for start in range(0, len(units), num_processes):
        column = list(units[start : start + num_processes])
        # The last may be fewer than there are processes: then each goes to several.
        column = [part for unit in column for part in _parts(unit, num_processes // len(column))]
        if start // num_processes % 2:
            column.reverse()  # or one process would always have the longest
        column += [()] * (num_processes - len(column))
        grown = [rows + list(unit) for rows, unit in zip(passes[-1], column, strict=True)] if passes else []
        if grown and all(cost(rows, sizes, is_shared=is_shared) <= budget for rows in grown):
            passes[-1] = grown
        else:
            passes.append([list(unit) for unit in column])
    return passes


def _pad(parts: Sequence[Sequence[int]]) -> list[tuple[int | None, ...]]:
    """As many for each process."""
    most = max(map(len, parts))
    return [tuple(part) + (None,) * (most - len(part)) for part in parts]
