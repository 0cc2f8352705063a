"""An environment with images: Plan-Path whose drafter and planner are shown the board as a picture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import Role
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.rendering import observed
from pettingllms_envs.teams.proposal import DRAFTER, PLANNER, DraftPlan


@dataclass(frozen=True, slots=True)
class PicturePlan(DraftPlan):
    """`DraftPlan` with a picture of the board before the text."""

    name: ClassVar[str] = "picture_plan"
    roles: ClassVar[tuple[Role, ...]] = tuple(replace(role, observes="parts") for role in (DRAFTER, PLANNER))

    def observe(self, state: Any, role: str) -> Any:
        words = DraftPlan.observe(self, state, role)
        return (observed(self.task, state.task, side=120), words) if words else words


raw_env, env, parallel_env = assemble(PlanPath, __name__, (PicturePlan,))
