"""Laws found by experiments. Read `space`, which counts what is still possible, `formulas`, `rules`, `teams`; then causal
graphs, `graphs`, and two benches, `benches` and `bench_teams`."""
