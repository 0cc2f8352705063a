"""Grids: the ways that are free from a cell."""

import pytest

from pettingllms_envs.tasks.grid import ways


@pytest.mark.parametrize(
    ("rows", "letters"),
    [
        (("...", ".@.", "..."), "U D L R"),
        ((".#.", ".@.", "..."), "D L R"),
        (("...", ".@.", ".#."), "U L R"),
        (("...", "#@.", "..."), "U D R"),
        (("...", ".@#", "..."), "U D L"),
        (("#.#", "#@#", "#.#"), "U D"),
        (("###", "#@#", "###"), ""),
        (("#.#", ".@.", "#.#"), "U D L R"),  # corners do not matter
    ],
)
@pytest.mark.parametrize("width", [3, 4, 10, 100])
def test_a_way_is_free_unless_the_next_cell_is_taken(rows: tuple[str, ...], letters: str, width: int) -> None:
    taken = sum(1 << y * width + x for y, row in enumerate(rows) for x, cell in enumerate(row) if cell == "#")
    around, free = ways(width)
    assert free[taken >> (width + 1) - width & around] == letters


def test_of_a_crowded_grid_only_the_four_cells_around_are_looked_at() -> None:
    around, free = ways(6)
    taken = ((1 << 36) - 1) ^ 1 << 13 ^ 1 << 20  # all but the cells to the left of cell 14 and below it
    assert free[taken >> 14 - 6 & around] == "D L"
