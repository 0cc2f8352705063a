"""Sudoku's solver, grades and 4 x 4 table, against sets of digits, plain backtracking and rows of known verdict."""

import json
import random
import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, permutations, product

import numpy as np
import pytest

from data_files import SHIPPED
from pettingllms_envs.core import SPLITS
from pettingllms_envs.environments.sudoku import table as sudoku_table
from pettingllms_envs.environments.sudoku.digging import draw, form
from pettingllms_envs.environments.sudoku.solver import (
    candidates,
    grade,
    has_other_digit,
    propagate,
    shape_of,
    solutions,
    written,
)


SAMPLE = SHIPPED / "sudoku4_sample.jsonl"
BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3)}

EASY = "530070000600195000098000060800060003400803001700020006060000280000419005000080079"
EASY_SOLVED = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
HIDDEN = "000000010400000000020000000000050407008000300001090000300400200050100000000806000"  # 17 clues
INKALA = "800000000003600000070090200050007000000045700000100030001000068008500010090000400"
# Norvig's puzzle without a solution, which took his solver 1,439 seconds (norvig.com/sudoku.html).
IMPOSSIBLE = "000005080000601043000000000010500000000106000300000005530000061000000004000000000"


def is_unique(size: int, clues: str, solution: str) -> bool:
    """Whether the clues have this solution and no other."""
    return [*islice(solutions(size, candidates(size, clues)), 2)] == [solution]


@cache
def units(size: int) -> list[list[int]]:
    high, wide = BOXES[size]
    cells = list(product(range(size), range(size)))
    keys = [lambda r, c: ("row", r), lambda r, c: ("column", c), lambda r, c: ("box", r // high, c // wide)]
    groups: dict[object, list[int]] = {}
    for key in keys:
        for r, c in cells:
            groups.setdefault(key(r, c), []).append(r * size + c)
    return list(groups.values())


@cache
def peers(size: int) -> list[set[int]]:
    return [set().union(*(u for u in units(size) if cell in u)) - {cell} for cell in range(size * size)]


def by_trying(size: int, grid: str) -> Iterator[str]:
    """Every solution, by plain backtracking over the cell with the fewest digits."""
    free = {
        cell: [d for d in "123456789"[:size] if d not in {grid[other] for other in peers(size)[cell]}]
        for cell in range(size * size)
        if grid[cell] == "0"
    }
    if not free:
        yield grid
        return
    cell = min(free, key=lambda cell: len(free[cell]))
    for digit in free[cell]:
        yield from by_trying(size, grid[:cell] + digit + grid[cell + 1 :])


def by_sets(size: int, clues: str) -> int:
    """The grade, with a set of digits per cell."""
    left = [set("123456789"[:size]) if clue == "0" else {clue} for clue in clues]

    def naked() -> bool:
        changed = False
        for cell in range(size * size):
            if len(left[cell]) == 1:
                for other in peers(size)[cell]:
                    changed |= bool(left[other] & left[cell])
                    left[other] = left[other] - left[cell]
        return changed

    def hidden() -> bool:
        changed = False
        for unit, digit in product(units(size), "123456789"[:size]):
            places = [cell for cell in unit if digit in left[cell]]
            if len(places) == 1 and len(left[places[0]]) > 1:
                left[places[0]] = {digit}
                changed = True
        return changed

    def locked_or_paired() -> bool:
        changed = False
        for one, other, digit in product(units(size), units(size), "123456789"[:size]):
            shared = set(one) & set(other)
            places = {cell for cell in one if digit in left[cell]}
            if one != other and places and places <= shared:
                for cell in set(other) - shared:
                    changed |= digit in left[cell]
                    left[cell] = left[cell] - {digit}
        for unit in units(size):
            for a, b in product(unit, unit):
                if a < b and left[a] == left[b] and len(left[a]) == 2:
                    for cell in set(unit) - {a, b}:
                        changed |= bool(left[cell] & left[a])
                        left[cell] = left[cell] - left[a]
        return changed

    for number, steps in enumerate(((naked,), (naked, hidden), (naked, hidden, locked_or_paired)), 1):
        while any(step() for step in steps):
            pass
        if all(len(digits) == 1 for digits in left):
            return number
    return 4


@pytest.mark.parametrize(("size", "rows", "columns"), [(4, 2, 2), (6, 2, 3), (9, 3, 3)])
def test_units_and_peers_are_those_of_the_rules(size: int, rows: int, columns: int) -> None:
    shape = shape_of(size)
    assert (shape.rows, shape.columns) == (rows, columns)
    assert sorted(map(sorted, shape.units)) == sorted(map(sorted, units(size)))
    assert [set(seen) for seen in shape.peers] == peers(size)


def test_what_a_digit_leaves_is_read_off_the_grid() -> None:
    found = candidates(4, "3" + "0" * 15)
    assert found == (1 << 64) - 1 - sum(1 << digit * 16 for digit in (0, 1, 3))
    # 3 at r1c1 is crossed out in the 3 + 3 + 1 other cells of its row, column and box; nothing else follows.
    assert propagate(shape_of(4), found).bit_count() == 64 - 3 - 7


@pytest.mark.parametrize(
    ("puzzle", "expected"),
    [
        ("4300000000320200", ["4321214314323214"]),
        ("1234341221434321", ["1234341221434321"]),
        ("1234341200000000", ["1234341221434321", "1234341223414123", "1234341241232341", "1234341243212143"]),
        ("1100000000000000", []),  # a digit twice in a row
        ("1230000400000000", []),  # no digit is left for r1c4
    ],
)
def test_solutions_of_small_puzzles_are_those_found_by_hand(puzzle: str, expected: list[str]) -> None:
    assert sorted(solutions(4, candidates(4, puzzle))) == expected


@pytest.mark.parametrize(
    ("puzzle", "solution"),
    [
        (EASY, EASY_SOLVED),
        (HIDDEN, "693784512487512936125963874932651487568247391741398625319475268856129743274836159"),
        (INKALA, "812753649943682175675491283154237896369845721287169534521974368438526917796318452"),
    ],
)
def test_known_puzzles_have_their_known_solution_and_no_other(puzzle: str, solution: str) -> None:
    assert list(solutions(9, candidates(9, puzzle))) == [solution]
    assert is_unique(9, puzzle, solution)


def test_a_notorious_puzzle_without_solution_is_done_at_once() -> None:
    start = time.process_time()
    assert list(solutions(9, candidates(9, IMPOSSIBLE))) == []
    assert time.process_time() - start < 1  # 1.5 ms where it was measured


def test_there_are_288_grids_of_4_by_4_and_all_are_valid() -> None:
    found = list(solutions(4, candidates(4, "0" * 16)))
    assert len(found) == len(set(found)) == 288
    assert all({grid[cell] for cell in unit} == set("1234") for grid in found for unit in units(4))


def some_puzzle(rng: random.Random, size: int, empties: int) -> tuple[str, str]:
    if size == 4:
        return sudoku_table.draw(rng.getrandbits(64), empties, "train")
    return draw(rng, size, empties, "train", ())


@pytest.mark.parametrize(
    ("size", "clues", "most", "rounds"), [(4, (2, 8), 300, 200), (6, (8, 20), 200, 60), (9, (34, 50), 2, 40)]
)
def test_the_solver_agrees_with_plain_backtracking(size: int, clues: tuple[int, int], most: int, rounds: int) -> None:
    rng = random.Random(f"agree {size}")
    counts = []
    for _ in range(rounds):
        _, solution = some_puzzle(rng, size, size * size // 2)
        kept = set(rng.sample(range(size * size), rng.randint(*clues)))
        puzzle = "".join(digit if cell in kept else "0" for cell, digit in enumerate(solution))
        found = sorted(islice(solutions(size, candidates(size, puzzle)), most))
        expected = sorted(islice(by_trying(size, puzzle), most))
        assert found == expected if len(found) < most else len(expected) == most
        counts.append(len(found))
    assert counts.count(1) > 3
    assert sum(count > 1 for count in counts) > 3


@pytest.mark.parametrize("size", [4, 6, 9])
def test_with_a_wrong_clue_there_is_no_solution(size: int) -> None:
    rng = random.Random(f"wrong {size}")
    for _ in range(20):
        clues, solution = some_puzzle(rng, size, size * size // 2)
        cell = rng.choice([cell for cell, clue in enumerate(clues) if clue != "0"])
        wrong = rng.choice([digit for digit in "123456789"[:size] if digit != solution[cell]])
        others = [(each, digit) for each, digit in enumerate(clues) if each != cell and digit != "0"]
        changed = "".join(wrong if each == cell else digit for each, digit in enumerate(clues))
        valid = all(each not in peers(size)[cell] for each, digit in others if digit == wrong)
        expected = sorted(islice(by_trying(size, changed), 2)) if valid else []
        assert sorted(islice(solutions(size, candidates(size, changed)), 2)) == expected


@pytest.mark.parametrize(
    ("clues", "cell", "digit", "other"),
    [
        ("0034341200434321", 0, "1", True),  # 1 2 over 2 1 in rows 1 and 3 may as well be 2 1 over 1 2
        ("0234341200434321", 0, "1", False),  # the 2 settles it
        ("1204341221434321", 2, "3", False),  # the rest of row 1 leaves 3
    ],
)
def test_a_clue_is_needed_if_some_solution_has_another_digit_there(
    clues: str, cell: int, digit: str, other: bool
) -> None:
    assert has_other_digit(4, clues, cell, digit) is other


@pytest.mark.parametrize(
    ("size", "puzzle", "expected"),
    [(4, "4300000000320200", 1), (9, EASY, 1), (9, HIDDEN, 2), (9, INKALA, 4)],
)
def test_known_puzzles_have_the_grade_of_their_hardest_step(size: int, puzzle: str, expected: int) -> None:
    assert grade(size, puzzle) == by_sets(size, puzzle) == expected


@pytest.mark.parametrize(
    ("size", "empties", "grades", "rounds"), [(6, 24, (2, 3, 4), 12), (9, 53, (3, 4), 12), (9, 50, (), 8)]
)
def test_grades_agree_with_sets_of_digits(size: int, empties: int, grades: tuple[int, ...], rounds: int) -> None:
    for number in range(rounds):
        clues, _ = draw(random.Random(f"grades {number}"), size, empties, "train", grades)
        assert grade(size, clues) == by_sets(size, clues)


def test_a_row_of_the_sample_is_judged_as_it_is_labelled() -> None:
    rows = [json.loads(line) for line in SAMPLE.read_text("ascii").splitlines()]
    assert {row["kind"] for row in rows} == {"unique", "unsolvable", "ambiguous"}
    for row in rows:
        found = list(solutions(4, candidates(4, row["puzzle"])))
        assert len(found) == row["n_solutions"], row["id"]
        assert row["kind"] == ("unsolvable" if not found else "unique" if len(found) == 1 else "ambiguous")
        if row["kind"] == "unique":
            assert found == [row["solution"]]
            assert is_unique(4, row["puzzle"], row["solution"])


def image(grid: str, order: Sequence[int]) -> str:
    """The grid with cell i taken from order[i], its digits renamed in the order in which they appear."""
    names: dict[str, str] = {"0": "0"}
    return "".join([names.setdefault(grid[cell], str(len(names))) for cell in order])


@cache
def symmetries(size: int) -> list[tuple[int, ...]]:
    """All ways to move the cells that keep rows, columns and boxes together."""

    def lines(thick: int) -> list[tuple[int, ...]]:
        bands = [range(start, start + thick) for start in range(0, size, thick)]
        within = [list(permutations(band)) for band in bands]
        return [sum(rows, ()) for order in permutations(within) for rows in product(*order)]

    high, wide = BOXES[size]
    kept = [tuple(r * size + c for r in rows for c in columns) for rows in lines(high) for columns in lines(wide)]
    transposed = [tuple(cell % size * size + cell // size for cell in order) for order in kept]
    return kept + transposed if high == wide else kept


def test_the_symmetries_are_as_many_as_they_should_be_and_keep_units_together() -> None:
    assert [len(set(symmetries(size))) for size in (4, 6)] == [2 * 8 * 8, 48 * 72]
    for size in (4, 6):
        together = set(map(frozenset, units(size)))
        assert all(
            {frozenset(order[c] for c in u) for u in units(size)} == together for order in symmetries(size)[::7]
        )


def test_the_288_grids_are_copies_of_the_two_of_the_table_96_and_192() -> None:
    grids = list(by_trying(4, "0" * 16))
    assert len(grids) == 288
    copies = [{image(grid, order) for order in symmetries(4)} for grid in sudoku_table.GRIDS]
    num = [sum(image(grid, range(16)) in each for grid in grids) for each in copies]
    assert num == [96, 192] == [*sudoku_table.COPIES]
    assert not copies[0] & copies[1]


def test_the_table_agrees_with_all_288_grids_about_every_clue_set() -> None:
    grids = list(by_trying(4, "0" * 16))
    masks = np.arange(1 << 16)
    for grid, puzzles in zip(sudoku_table.GRIDS, sudoku_table.table(), strict=True):
        num_solutions = np.zeros(1 << 16, int)
        for other in grids:
            differ = sum(1 << cell for cell in range(16) if grid[cell] != other[cell])
            num_solutions += masks & differ == 0
        assert (puzzles.unique == (num_solutions == 1)).all()
        assert (puzzles.empty == [16 - int(mask).bit_count() for mask in masks]).all()


def test_the_table_agrees_with_the_solver_on_thousands_of_clue_sets() -> None:
    rng = random.Random(0)
    for grid, puzzles in zip(sudoku_table.GRIDS, sudoku_table.table(), strict=True):
        for mask in rng.sample(range(1 << 16), 1500):
            clues = "".join(digit if mask >> cell & 1 else "0" for cell, digit in enumerate(grid))
            assert puzzles.unique[mask] == is_unique(4, clues, grid)


def test_orbits_are_the_classes_of_puzzles_under_all_symmetries() -> None:
    rng = random.Random(1)
    canonical: dict[str, tuple[int, int]] = {}
    for which, (grid, puzzles) in enumerate(zip(sudoku_table.GRIDS, sudoku_table.table(), strict=True)):
        unique = np.flatnonzero(puzzles.unique)
        orbits = puzzles.orbit[unique]
        assert (puzzles.split[unique] == puzzles.split[orbits]).all()
        # Few empty cells, so that many masks are symmetric; the rest of the sample is spread over all of them.
        sample = [*unique[puzzles.empty[unique] <= 3].tolist(), *rng.sample(unique.tolist(), 500)]
        for mask in sample:
            clues = "".join(digit if mask >> cell & 1 else "0" for cell, digit in enumerate(grid))
            least = min(image(clues, order) for order in symmetries(4))
            assert canonical.setdefault(least, (which, int(puzzles.orbit[mask]))) == (which, puzzles.orbit[mask])
    assert len(set(canonical.values())) == len(canonical) > 500


def test_all_4_by_4_puzzles_with_one_solution_need_naked_singles_only() -> None:
    num = 0
    for grid, puzzles in zip(sudoku_table.GRIDS, sudoku_table.table(), strict=True):
        for mask in set(puzzles.orbit[puzzles.unique].tolist()):
            clues = "".join(digit if mask >> cell & 1 else "0" for cell, digit in enumerate(grid))
            assert grade(4, clues) == 1
            num += 1
    assert num == 4710


def test_no_4_by_4_puzzle_has_fewer_than_4_clues() -> None:
    most = [int(puzzles.empty[puzzles.unique].max()) for puzzles in sudoku_table.table()]
    assert max(most) == 12


@pytest.mark.parametrize("size", [6, 9])
def test_the_form_of_a_puzzle_is_that_of_all_its_copies(size: int) -> None:
    rng = random.Random(f"form {size}")
    high, wide = BOXES[size]

    def lines(thick: int) -> list[int]:
        starts = rng.sample(range(0, size, thick), size // thick)
        return [line for start in starts for line in rng.sample(range(start, start + thick), thick)]

    for number in range(40):
        clues, _ = draw(random.Random(number), size, rng.randint(size, 2 * size * size // 3 - 6), "train", ())
        for _ in range(10):
            rows, columns = lines(high), lines(wide)
            digits = str.maketrans("123456789"[:size], "".join(rng.sample("123456789"[:size], size)))
            order = [r * size + c for r in rows for c in columns]
            if high == wide and rng.random() < 0.5:
                order = [cell % size * size + cell // size for cell in order]
            assert form(size, "".join(clues[cell] for cell in order).translate(digits)) == form(size, clues)


def test_the_form_tells_most_puzzles_apart() -> None:
    # Else a split would be a few kinds of puzzles, and might be easier than another.
    for size, empties, least in ((6, 18, 180), (9, 43, 199)):
        drawn = [draw(random.Random(number), size, empties, "train", ())[0] for number in range(200)]
        assert len({form(size, clues) for clues in drawn}) >= least


@pytest.mark.parametrize(("size", "empties"), [(6, 6), (6, 17), (6, 24), (9, 10), (9, 43), (9, 54)])
@pytest.mark.parametrize("split", SPLITS)
def test_a_dug_puzzle_has_one_solution_and_as_many_empty_cells_as_asked(size: int, empties: int, split: str) -> None:
    for number in range(5):
        clues, solution = draw(random.Random(number), size, empties, split, ())
        assert clues.count("0") == empties
        assert all(clue in ("0", digit) for clue, digit in zip(clues, solution, strict=True))
        assert list(islice(by_trying(size, clues), 2)) == [solution]


def test_what_is_written_is_read_back_as_the_same_candidates() -> None:
    assert written(9, candidates(9, EASY_SOLVED)) == EASY_SOLVED
    assert written(4, propagate(shape_of(4), candidates(4, "4300000000320200"))) == "4321214314323214"
