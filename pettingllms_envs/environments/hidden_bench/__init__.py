"""HiddenBench. Read `rules`, then the `rows` that its problems are made of, and its workflows, `discussion`."""
