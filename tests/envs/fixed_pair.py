"""A design of two members, and the same team as a workflow of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import Role
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.teams.base import TurnWorkflow
from pettingllms_envs.teams.channels import Channel
from pettingllms_envs.teams.designs import Design, Member


PAIR = Design((Member("Draw."), Member("Check.", (0,))))


@dataclass(frozen=True, slots=True)
class FixedPair(TurnWorkflow[Any, Any]):
    """What `PAIR` is, as a workflow of its own."""

    num_turns: int = 1

    name: ClassVar[str] = "fixed_pair"
    roles: ClassVar[tuple[Role, ...]] = (
        Role("member", "You are a member of a team. Do the job that you are given.", count=2, delayed=True),
    )
    channel: ClassVar[Channel] = Channel(2_000)

    def system(self, role: str) -> str:
        return f"{self.task.rules()}\n{self.roles[0].job}"

    def observe(self, state: Any, role: str) -> str:
        lines = [self.task.show(state.task), "Your job:"]
        if state.messages:
            lines += [
                "> Check.",
                state.messages[0].shown,
                "Your reply is the team's answer.",
                self.task.reply_format(),
            ]
        else:
            lines += ["> Draw.", "Your reply is shown to members that read you, up to 2000 characters."]
        return "\n".join(lines)


def fixed_pair() -> TextEnv:
    """On Plan-Path of three rows."""
    return TextEnv(FixedPair(PlanPath(size=3)))
