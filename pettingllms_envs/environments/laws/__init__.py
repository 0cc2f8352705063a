"""Laws found by experiments. Read `space`, which counts what is still possible, `formulas`, `rules`, `teams`."""
