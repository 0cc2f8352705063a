"""Mathematics. Read `rules`, then `math`, `aime` and `olympiad_bench`, which are the same with other problems.

Then the workflows `tool_reasoner` and `single_reasoner` (those of several solvers: `pettingllms_envs.teams`), and the
readers of data sets, `*_rows`.
"""

from pettingllms_envs.teams import Later


WORKFLOWS = (
    Later("tool_reasoner", "pettingllms_envs.environments.mathematics.tool_reasoner", "ToolReasoner"),
    Later("single", "pettingllms_envs.environments.mathematics.single_reasoner", "SingleReasoner"),
    Later("ensemble", "pettingllms_envs.teams.ensemble", "Ensemble"),
    Later("debate", "pettingllms_envs.teams.debate", "Debate"),
    Later("self_verification", "pettingllms_envs.teams.self_verification", "SelfVerification"),
)
"""The workflows of all three, the default one first."""
