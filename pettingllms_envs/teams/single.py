"""Workflow `single` (L0): one planner, whose every reply is played. The baseline that a team is compared with.

Roles: `planner`. It sees the task's state and what came of its last reply.
Rewards: team `progress` (change of the potential, sums to at most 1 over an episode) and `success` (1 once); to the
planner `format` (-0.2 for an unreadable reply) or the task's costs.
"""

from __future__ import annotations

from pettingllms_envs.core import Role
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


PLANNER = Role("planner", "You are the planner. Your moves are played.")


@function_workflow(PLANNER, name="single", cyclic=True, channel=None, turns_apart=True)
def Single(game: Game) -> Questions:
    """One role plays the task."""
    while game.turns_left:
        game.play((yield Ask("planner", game.situation, keeps=())), "planner")
