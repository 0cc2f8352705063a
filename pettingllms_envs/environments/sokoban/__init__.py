"""Sokoban. Read `rules`, then `text`, `levels`, `generator`, `solver`, its `table` of solved positions, and `bound`."""
