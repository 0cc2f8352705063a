"""Laws found by experiments. Read `space`, which counts what is still possible, `formulas`, `rules`, `teams`.

Causal graphs are `graphs`, played by the same teams. A law of two halves is `benches`, with its `bench_teams`.
"""
