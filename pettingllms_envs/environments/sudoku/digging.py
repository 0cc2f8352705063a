"""Sudoku puzzles of the larger sizes: a grid and enough clues are found together, then clues are taken or given.

A random search fills an empty grid. The cells that it had to guess are clues that leave one solution, because all the
rest, dead ends included, followed from them. Spare clues are taken away, or clues added, until all but one are there.
The last one is any that brings the puzzle into the split that was asked for, so a split costs no further proof.
"""

from __future__ import annotations

import random

from pettingllms_envs.environments.sudoku.solver import BOXES, grade, has_other_digit, propagate, shape_of, written
from pettingllms_envs.instances import split_of


# Guesses after which a search is restarted: most need 30, and a few would take 10,000 times as long.
MAX_GUESSES = 40


def draw(rng: random.Random, size: int, empties: int, split: str, grades: tuple[int, ...]) -> tuple[str, str]:
    """A random puzzle and its only solution.

    Args:
        size: 6 or 9.
        split: One of `SPLITS`.
        grades: Grades that will do; empty for any, which saves the grading.
    """
    cells = size * size
    num_clues = cells - empties
    while True:
        solution, kept = _filled(rng, size)
        kept = _thinned(rng, size, solution, kept, num_clues - 1)
        if len(kept) >= num_clues:
            continue
        others = rng.sample(sorted(set(range(cells)) - set(kept)), cells - len(kept))
        missing = num_clues - 1 - len(kept)
        kept += others[:missing]
        if grades and grade(size, _left(solution, set(kept))) < min(grades):
            continue  # one more clue makes no puzzle harder
        for last in others[missing:]:
            clues = _left(solution, {*kept, last})
            if split_of(form(size, clues)) == split and (not grades or grade(size, clues) in grades):
                return clues, solution


def form(size: int, clues: str) -> bytes:
    """What a puzzle has in common with all its symmetric copies: how many clues are where, and of which digits.

    Digits are sorted by their number of clues. So are rows within their bands, and bands; columns and stacks; and
    these two, where boxes are square.
    """
    high, wide = BOXES[size]
    rows = _banded([clues[start : start + size].count("0") for start in range(0, size * size, size)], high)
    columns = _banded([clues[column::size].count("0") for column in range(size)], wide)
    digits = sorted(map(clues.count, "123456789"[:size]))
    lines = sorted((rows, columns)) if high == wide else (rows, columns)
    return repr((size, digits, *lines)).encode()


def _banded(counts: list[int], lines: int) -> list[list[int]]:
    return sorted(sorted(counts[start : start + lines]) for start in range(0, len(counts), lines))


def _filled(rng: random.Random, size: int) -> tuple[str, list[int]]:
    """A full grid, and cells whose digits leave no other."""
    shape, cells = shape_of(size), size * size
    spread = shape.kinds[0].spread
    while True:
        order = rng.sample(range(cells), cells)
        found, guesses = shape.every, []
        for _ in range(MAX_GUESSES):
            cell = next(cell for cell in order if (spread << cell & found).bit_count() > 1)
            choices = spread << cell & found
            for _ in range(rng.randrange(choices.bit_count())):
                choices &= choices - 1
            guess = choices & -choices
            guesses.append((cell, found ^ guess))
            found = propagate(shape, found & (~(spread << cell) | guess))
            while not found:
                cell, found = guesses.pop()
                found = propagate(shape, found)
            if found.bit_count() == cells:
                return written(size, found), [cell for cell, _ in guesses]


def _thinned(rng: random.Random, size: int, solution: str, kept: list[int], most: int) -> list[int]:
    """The cells without those that can be spared, in random order, until at most `most` are left, if possible."""
    for cell in rng.sample(kept, len(kept)):
        if len(kept) <= most:
            break
        fewer = [other for other in kept if other != cell]
        if not has_other_digit(size, _left(solution, set(fewer)), cell, solution[cell]):
            kept = fewer
    return kept


def _left(solution: str, kept: set[int]) -> str:
    """The clues if only these cells keep their digits."""
    return "".join([digit if cell in kept else "0" for cell, digit in enumerate(solution)])
