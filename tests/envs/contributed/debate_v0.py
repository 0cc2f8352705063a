"""Plan-Path with a debate: two debaters argue for their moves, a critic compares them, and a judge decides."""

from __future__ import annotations

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import Role
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


@function_workflow(
    Role("debater", "You are a debater. Argue for the best move.", count=2, delayed=True),
    Role("critic", "You are the critic. Say which debater is right, and why.", delayed=True, reply_format=""),
    Role("judge", "You are the judge. You read the debate and decide. Your move is played."),
)
def debate(game: Game, rounds: int = 1) -> Questions:
    """A debate of some rounds in each turn."""
    while game.turns_left:
        said: list[str] = []
        for role in ["debater_0", "debater_1"] * rounds + ["critic"]:
            reply = yield Ask(role, game.show(*said), keeps=said)
            said.append(game.quote(role, reply))
        reply = yield Ask("judge", game.show(*said), keeps=())
        game.play(reply, "judge")


raw_env, env, parallel_env = assemble(PlanPath, __name__, (debate,))
