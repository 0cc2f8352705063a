"""Assigns rows to processes for training, and to forward passes. Pure: each process gets the same.

Each process plays some of the instances. Then all episodes are gathered, and each policy's sequences are redistributed
for training: the number of decisions varies, but a forward pass must have the same number of rows on each process, or
the processes would deadlock.

    assign([4, 0, 2, 3, 1], num_steps=2, num_processes=2).rows
    #       process 0   process 1
    # (((4, 2),    (0, None)),   micro-step 0: rows 4, 0, 2
    #  ((3,),      (1,)))        micro-step 1: rows 3, 1

`None` is a padding row: its mask is zero, and it counts nowhere.

`assign_by_tokens` bounds the tokens of a pass instead of its rows. A pass takes as many sequences as fit into its
budget: of similar length where it is padded, long and short ones where prompts are packed (`packing`), so that all
processes have about as many tokens. Packed sequences of a conversation stay together, or with the same prompt where
there are no others; what is larger than the budget is divided, between turns first. All processes have the same number
of passes in a micro-step, and of rows in a pass.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TypeVar

from pettingllms_trl.update.packing.conversations import Size, arrange, num_tokens
from pettingllms_trl.update.packing.cost import LATER, cheapest


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which of a policy's rows each process trains on in which micro-step.

    Args:
        rows: For each micro-step and process the indices of its rows, `None` for a padding row. In a micro-step all
            processes have the same number.
        passes: For each micro-step the number of its rows in each forward pass, the same for each process. The rows
            after those of the last pass go through none. `None`: not decided yet.
        num_tokens: Of the rows that go through a pass, each with its prompt, if the passes were bounded by tokens.
    """

    rows: tuple[tuple[tuple[int | None, ...], ...], ...]
    passes: tuple[tuple[int, ...], ...] | None = None
    num_tokens: int = 0
    num_tokens_read: int = 0

    @property
    def num_here(self) -> tuple[int, ...]:
        """Rows of each process by micro-step, padding rows included."""
        return tuple(len(step[0]) for step in self.rows)

    @property
    def num_rows(self) -> tuple[int, ...]:
        return tuple(sum(row is not None for rows in step for row in rows) for step in self.rows)

    @property
    def num_padding_rows(self) -> int:
        """Padding rows of all processes and micro-steps."""
        return sum(len(rows) for step in self.rows for rows in step) - sum(self.num_rows)

    def rows_of(self, process: int) -> tuple[int | None, ...]:
        return tuple(row for step in self.rows for row in step[process])

    def restore_order(self, values: Sequence[T]) -> list[T]:
        """Values gathered process after process, back in the order of the rows, without those of padding rows."""
        processes = range(len(self.rows[0]))
        rows = [row for process in processes for row in self.rows_of(process)]
        back = {row: value for row, value in zip(rows, values, strict=True) if row is not None}
        return [back[row] for row in range(len(back))]


def assign(order: Sequence[int], *, num_steps: int, num_processes: int) -> Assignment:
    """Assign a policy's rows to micro-steps, as with one process, and those of a micro-step to processes.

    Args:
        num_steps: Micro-steps per generation. If the rows do not divide evenly, the first ones have one row more.
        num_processes: Number of processes. If a micro-step's rows do not divide evenly, padding rows are added.
    """
    size, longer = divmod(len(order), num_steps)
    steps = []
    start = 0
    for step in range(num_steps):
        rows = order[start : start + size + (step < longer)]
        start += len(rows)
        steps.append(tuple(_pad([rows[process::num_processes] for process in range(num_processes)])))
    return Assignment(tuple(steps))


def values_of(rows: Sequence[int | None], values: Sequence[T], padding: T) -> list[T]:
    """The values of these rows, and `padding` for padding rows."""
    return [padding if row is None else values[row] for row in rows]


Unit = Sequence[int]
"""Rows that go through the model together."""


def assign_by_tokens(
    sizes: Sequence[Size],
    order: Sequence[int],
    *,
    budget: int,
    token_price: float | None,
    num_steps: int,
    num_updates: int = 1,
    num_movable: int = 1,
    num_processes: int = 1,
    left_out: Collection[int] = (),
) -> Assignment:
    """Assign a policy's rows to micro-steps, to their passes, and to processes.

    Args:
        budget: Most tokens of a pass on one process. A larger row has a pass of its own.
        token_price: Of the model, where passes are packed in the cheapest way; `None`: padded to their longest row.
        num_updates: Optimizer steps per generation. Too few groups are divided, so that each step has rows.
        num_movable: Micro-steps, from the first on, among which rows may move so that conversations stay together.
        num_processes: Number of processes. Each has the same number of rows in a pass, with padding rows (`None`).
        left_out: Rows that are in no pass. They count in their micro-step, and come last in it.
    """
    # The rows of a micro-step depend neither on the budget nor on the processes, and so neither does the update.
    units = _groups(sizes, order) if token_price is not None else [(row,) for row in order]
    if len(units) < num_updates:
        units = [part for unit in units for part in _parts(unit, math.ceil(num_updates / len(units)))]
    steps: list[list[Unit]] = [[] for _ in range(num_steps)]
    for i, unit in enumerate(units):
        steps[i * num_steps // len(units)].append(unit)
    if token_price is not None and any(map(LATER, sizes)):
        for start in range(0, num_steps, num_movable):
            steps[start : start + num_movable] = _together(steps[start : start + num_movable], sizes)
    lengths = [size.prompt + size.completion for size in sizes]
    rows, passes, num_tokens_read = [], [], 0
    for step in steps:
        own = [kept for unit in step if (kept := tuple(row for row in unit if row not in left_out))]
        pieces = _divide(own, sizes, budget, token_price)
        by_length = sorted(pieces, key=lambda unit: fmean(lengths[row] for row in unit))
        of_pass = _passes(by_length, sizes, budget, token_price, num_processes)
        num_tokens_read += sum(cost(part, sizes, token_price=token_price) for each in of_pass for part in each)
        padded = [_pad(each) for each in of_pass]
        rest = [row for unit in step for row in unit if row in left_out]
        parts = [*padded, _pad([rest[p::num_processes] for p in range(num_processes)])]
        rows.append(tuple(sum(of_process, ()) for of_process in zip(*parts, strict=True)))
        passes.append(tuple(len(each[0]) for each in padded))
    num_of_passes = sum(lengths[row] for row in order if row not in left_out)
    return Assignment(tuple(rows), tuple(passes), num_of_passes, num_tokens_read)


def cost(rows: Sequence[int], sizes: Sequence[Size], *, token_price: float | None) -> int:
    """Tokens of a pass with these rows, padding included."""
    if not rows:
        return 0
    own = [sizes[row] for row in rows]
    if token_price is not None and not any(map(LATER, own)):  # then every way reads as many
        return sum(size.branch for size in own) + sum({size.group: size.prompt - 1 for size in own}.values())
    if token_price is not None:
        return num_tokens(own, cheapest(own, token_price)[1])
    return len(rows) * (max(size.prompt for size in own) + max(size.completion for size in own))


def _together(steps: Sequence[list[Unit]], sizes: Sequence[Size]) -> list[list[Unit]]:
    """The rows of these micro-steps, those of a conversation as a unit, by turn. Unchanged where there is none."""
    rows = [row for step in steps for unit in step for row in unit]
    trunks = arrange([sizes[row] for row in rows], by_conversation=True)
    if len(trunks) == len({sizes[row].group for row in rows}):
        return [*steps]
    moved: list[list[Unit]] = [[] for _ in steps]
    for i, trunk in enumerate(trunks):
        own = [rows[each] for each in sorted(trunk.inside + trunk.branches)]
        moved[i * len(steps) // len(trunks)].append(tuple(sorted(own, key=lambda row: sizes[row].prompt)))
    return moved


def _groups(sizes: Sequence[Size], order: Sequence[int]) -> list[Unit]:
    """Groups of rows with the same prompt, in the order of their first rows."""
    groups: dict[Hashable, list[int]] = {}
    for row in order:
        groups.setdefault(sizes[row].group, []).append(row)
    return [*map(tuple, groups.values())]


def _divide(units: Sequence[Unit], sizes: Sequence[Size], budget: int, token_price: float | None) -> list[Unit]:
    """The units, with those over the budget divided: between turns, the last ones together as far as they fit, since
    every piece has the whole prompt of its last turn; and a turn that is still too large evenly."""

    def is_over(rows: Unit) -> bool:
        return cost(rows, sizes, token_price=token_price) > budget

    divided: list[Unit] = []
    for unit in units:
        pieces: list[Unit] = []
        for turn in reversed(_groups(sizes, unit) if token_price is not None else [unit]):
            if pieces and not is_over(joined := (*turn, *pieces[-1])):
                pieces[-1] = joined
            else:
                pieces.append(turn)
        for piece in pieces:
            number = 1
            while number < len(piece) and any(map(is_over, _parts(piece, number))):
                number += 1
            divided += _parts(piece, number)
    return divided


def _parts(unit: Sequence[T], number: int) -> list[Sequence[T]]:
    """Divide a unit as evenly as possible, without empty parts."""
    number = min(number, len(unit))
    return [unit[len(unit) * i // number : len(unit) * (i + 1) // number] for i in range(number)]


def _passes(
    units: Sequence[Unit], sizes: Sequence[Size], budget: int, token_price: float | None, num_processes: int
) -> list[list[list[int]]]:
    """For each pass the rows of each process, a unit for each after another until one would exceed its budget.

    Processes wait for each other after a pass, so each is given about as many tokens: the longest unit goes to the one
    with the fewest so far. Where passes are padded to their longest row they are of units of similar length; where
    they are packed long units and short ones are mixed, which leaves more to choose from.
    """
    is_packed = token_price is not None

    tokens = partial(cost, sizes=sizes, token_price=token_price)

    def fits(parts: Sequence[Sequence[int]]) -> bool:
        """Of the rows of each process. Where passes are padded a padding row is as long as the others beside it."""
        most = max(map(len, parts))
        return all(tokens(rows) * (1 if is_packed else most / len(rows)) <= budget for rows in parts if rows)

    columns = [units[start : start + num_processes] for start in range(0, len(units), num_processes)]
    if is_packed and num_processes > 1:
        columns = [columns[i // 2] if i % 2 else columns[-1 - i // 2] for i in range(len(columns))]
    passes: list[list[list[int]]] = []
    for column in columns:
        # One may have fewer than there are processes: then each goes to several.
        parts = [part for unit in column for part in _parts(unit, num_processes // len(column))]
        parts = sorted(parts, key=tokens, reverse=True) + [()] * (num_processes - len(parts))
        grown: list[list[int]] = []
        if passes:
            grown = list(passes[-1])
            for process, part in zip(sorted(range(num_processes), key=lambda p: tokens(grown[p])), parts, strict=True):
                grown[process] = grown[process] + list(part)
        if grown and fits(grown):
            passes[-1] = grown
        else:
            passes.append([list(part) for part in parts])
    return passes


def _pad(parts: Sequence[Sequence[int]]) -> list[tuple[int | None, ...]]:
    most = max(map(len, parts))
    return [tuple(part) + (None,) * (most - len(part)) for part in parts]
