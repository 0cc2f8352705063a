"""Sudoku. Read `rules`, then `text`, `digging`, which makes puzzles, the `solver`, and the `table` of all 4 x 4."""
