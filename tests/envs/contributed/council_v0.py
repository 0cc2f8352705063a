"""Plan-Path with a team that talks as it likes: the acting agent names the next to reply, until the chair moves.

A reply that ends with a line such as `To: critic` is a message to the critic, who replies next. Any other reply of the
chair is the team's move, any other of the rest a message to the chair. Only the chair is paid for its own step.
"""

from __future__ import annotations

import re

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import Role
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.replies.moves import last_line
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


PARTNERS = {"chair": ("worker", "critic"), "worker": ("chair", "critic"), "critic": ("chair", "worker")}


def role(name: str, job: str, reply_format: str | None) -> Role:
    return Role(name, f"You are the {name}. {job}", delayed=name != "chair", reply_format=reply_format)


@function_workflow(
    role("chair", "You alone move. To ask first, end your reply with the line To: worker or To: critic.", None),
    role("worker", "Work out a move.", "End your reply with the line To: chair or To: critic."),
    role("critic", "Find what is wrong with a move.", "End your reply with the line To: chair or To: worker."),
)
def council(game: Game, max_messages: int = 6) -> Questions:
    """After `max_messages` in a turn the chair must move."""
    while game.turns_left:
        actor, num_messages = "chair", 0
        seen: dict[str, list[str]] = {name: [] for name in PARTNERS}
        while True:
            reply = yield Ask(actor, game.show(*seen[actor]), keeps=seen)
            named = re.fullmatch(r"to: (\w+)", last_line(reply), re.I)
            to = named[1].lower() if named and num_messages < max_messages else "chair"
            to = to if to in PARTNERS[actor] else "chair"
            if actor == to:
                break
            message = game.quote(actor, reply)
            seen[actor].append(message)
            seen[to].append(message)
            actor, num_messages = to, num_messages + 1
        game.play(reply, "chair")


raw_env, env, parallel_env = assemble(PlanPath, __name__, (council,))
