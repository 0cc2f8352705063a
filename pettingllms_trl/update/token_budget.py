"""Assigns sequences to forward passes with a bounded number of tokens, and to processes. Pure.

A pass takes sequences of similar length, as many as fit into its budget. If prompts are packed (`packing.py`),
sequences with the same prompt stay together; a group larger than the budget is divided evenly. All processes have the
same number of passes in a micro-step, and the same number of rows in a pass.
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
    """The size of a sequence.

    Args:
        group: Identifies the sequences with the same prompt.
        prompt, completion: Numbers of tokens.
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
    """Assign a policy's rows to micro-steps, to their passes, and to processes.

    Args:
        sizes: Size of each row.
        order: The indices of the rows, shuffled.
        budget: Most tokens of a pass on one process. A larger row has a pass of its own.
        is_shared: Whether a pass is packed, with each prompt once and no padding. Else it is padded to its longest
        row.
        num_steps: Micro-steps per generation.
        num_updates: Optimizer steps per generation. If there are fewer groups, they are divided, so that no optimizer
            step is without rows.
        num_processes: Number of processes. Each has the same number of rows in a pass, with padding rows (`None`).
        left_out: Rows that are in no pass. They count in their micro-step, and come last in it.
    """
    # The rows of a micro-step depend neither on the budget nor on the processes, and so neither does the update.
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
    """Tokens of a pass with these rows, padding included."""
    if not rows:
        return 0
    if not is_shared:
        return len(rows) * (max(sizes[row].prompt for row in rows) + max(sizes[row].completion for row in rows))
    groups: dict[Hashable, list[Size]] = {}
    for row in rows:
        groups.setdefault(sizes[row].group, []).append(sizes[row])
    return sum(num_tokens(own[0].prompt, [size.completion for size in own]) for own in groups.values())


def _groups(sizes: Sequence[Size], order: Sequence[int]) -> list[Unit]:
    """Groups of rows with the same prompt, in the order of their first rows."""
    groups: dict[Hashable, list[int]] = {}
    for row in order:
        groups.setdefault(sizes[row].group, []).append(row)
    return [tuple(rows) for rows in groups.values()]


def _divide(units: Sequence[Unit], sizes: Sequence[Size], budget: int, is_shared: bool) -> list[Unit]:
    """The units, with those over the budget divided evenly."""
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
    """Divide a unit as evenly as possible, without empty parts."""
    number = min(number, len(unit))
    return [unit[len(unit) * i // number : len(unit) * (i + 1) // number] for i in range(number)]


def _length(unit: Unit, sizes: Sequence[Size]) -> float:
    return statistics.fmean(sizes[row].prompt + sizes[row].completion for row in unit)


def _passes(
    units: Sequence[Unit], sizes: Sequence[Size], budget: int, is_shared: bool, num_processes: int
) -> list[list[list[int]]]:
    """For each pass the rows of each process: units of similar length, until a process would exceed its budget."""
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
    """Pad the rows of all processes to the same number."""
    most = max(map(len, parts))
    return [tuple(part) + (None,) * (most - len(part)) for part in parts]
