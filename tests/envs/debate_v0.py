"""A debate: two debaters argue, a judge, who alone moves, reads what they wrote."""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import Role
from pettingllms_envs.tasks.plan_path import PlanPath
from pettingllms_envs.workflows.functions import Ask, Game, Questions, function_workflow


@function_workflow(
    Role("debater", "You are a debater. Argue for the best move.", count=2, delayed=True),
    Role("judge", "You are the judge. Your move is played."),
)
def debate(game: Game, rounds: int = 1) -> Questions:
    """Debaters argue for some rounds, then the judge moves."""
    while game.turns_left:
        said: list[str] = []
        for _ in range(rounds):
            for name in ("debater_0", "debater_1"):
                reply = yield Ask(name, game.show(*said))
                said.append(game.quote(name, reply))
        reply = yield Ask("judge", game.show(*said))
        game.play(reply, "judge")


raw_env, env, parallel_env = assemble(PlanPath, __name__, (debate,))
