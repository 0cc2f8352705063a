"""Sokoban. Read `rules`, then `text`, `levels`, `generator`, `solver`, `table` of all solvable positions, `bound`."""
