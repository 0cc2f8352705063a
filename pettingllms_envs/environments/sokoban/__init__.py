"""Sokoban. Read `rules`, then `text`, `levels`, `generator`, `solver`, `table` (all solvable positions) and `bound`."""
