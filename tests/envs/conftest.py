"""A grid small enough to work out by hand, and an environment that plays on it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.plan_path_v0 import raw_env
from pettingllms_envs.tasks.plan_path import PlanPath, PlanPathState


# Distances to G by hand, row by row: 6 5 4 3 / 5 # # 2 / 4 3 # 1 / # 2 1 0.
# Two shortest walks: R R R D D D and D D R D R R.
PICTURE = """
@ . . .
. # # .
. . # .
# . . G
"""


def read(picture: str) -> PlanPathState:
    cells = picture.split()
    blocked = sum(1 << i for i, cell in enumerate(cells) if cell == "#")
    start = cells.index("@")
    return PlanPathState(round(len(cells) ** 0.5), blocked, start, cells.index("G"), start)


@pytest.fixture
def grid() -> PlanPathState:
    return read(PICTURE)


@pytest.fixture
def task() -> PlanPath:
    return PlanPath(size=4)


@pytest.fixture
def by_hand(grid: PlanPathState) -> Callable[..., TextEnv]:
    """A Plan-Path environment, in the first turn on the grid above."""

    def make(workflow: str = "draft_plan", **settings: float) -> TextEnv:
        env = raw_env(size=4, workflow=workflow, **settings)
        env.reset(seed=0)
        env.restore(replace(env.snapshot(), play=env.workflow.start(grid)))
        return env

    return make
