"""Plan-Path seen as a picture: the planner is shown the board as an image, and no text of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import Role
from pettingllms_envs.environments.plan_path.grid import PlanPathState
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.observations import Part
from pettingllms_envs.rendering import observed
from pettingllms_envs.teams.single import PLANNER, Single, SingleState


@dataclass(frozen=True, slots=True)
class Look(Single[PlanPathState, str]):
    """The workflow `single` with images."""

    name: ClassVar[str] = "look"
    roles: ClassVar[tuple[Role, ...]] = (replace(PLANNER, observes="parts"),)

    def observe(self, state: SingleState[PlanPathState], role: str) -> tuple[Part, ...]:
        board = observed(self.task, state.task, side=80)
        return f"Turn {state.turn} of {self.num_turns}. The board:", board, state.feedback


raw_env, env, parallel_env = assemble(PlanPath, __name__, (Look,))
