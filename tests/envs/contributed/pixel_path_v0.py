"""Plan-Path seen as a picture: the planner is shown the board as an image, and no text of it."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import ClassVar

from PIL import Image as Picture

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import Role
from pettingllms_envs.observations import Image, Part
from pettingllms_envs.rendering import rgb_array
from pettingllms_envs.tasks.plan_path import PlanPath
from pettingllms_envs.tasks.plan_path_grid import PlanPathState
from pettingllms_envs.workflows.single import PLANNER, Single, SingleState


@dataclass(frozen=True, slots=True)
class Look(Single[PlanPathState, str]):
    """The workflow `single` with images."""

    name: ClassVar[str] = "look"
    roles: ClassVar[tuple[Role, ...]] = (replace(PLANNER, observes="parts"),)

    def observe(self, state: SingleState[PlanPathState], role: str) -> tuple[Part, ...]:
        image = Image(png_of(rgb_array(self.task, state.task, side=16)), alt=self.task.show(state.task))
        return f"Turn {state.turn} of {self.num_turns}. The board:", image, state.feedback


def png_of(pixels: object) -> bytes:
    file = io.BytesIO()
    Picture.fromarray(pixels).save(file, "png")
    return file.getvalue()


raw_env, env, parallel_env = assemble(PlanPath, __name__, (Look,))
