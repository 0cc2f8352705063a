"""Mathematics. Read `rules`, then `math`, `aime` and `olympiad_bench`, which are the same with other problems.

Then the workflows `tool_reasoner` and `single_reasoner` (those of several solvers: `pettingllms_envs.teams`), and the
readers of data sets, `*_rows`.
"""
