"""A grid small enough to work out by hand, and an environment that plays on it."""

from collections.abc import Callable

import pytest

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.environments.plan_path.grid import PlanPathState
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.environments.plan_path.text import read_board
from pettingllms_envs.plan_path_v0 import raw_env


# Distances to G by hand, row by row: 6 5 4 3 / 5 # # 2 / 4 3 # 1 / # 2 1 0.
# Two shortest walks: R R R D D D and D D R D R R.
PICTURE = """
@ . . .
. # # .
. . # .
# . . G
"""


@pytest.fixture
def grid() -> PlanPathState:
    return read_board(PICTURE, 4)


@pytest.fixture
def task() -> PlanPath:
    return PlanPath(size=4)


@pytest.fixture
def by_hand(grid: PlanPathState) -> Callable[..., TextEnv]:
    """A Plan-Path environment, in the first turn on the grid above."""

    def make(workflow: str = "draft_plan", **settings: float) -> TextEnv:
        env = raw_env(size=4, workflow=workflow, **settings)
        env.reset(seed=0)
        env.restore(env.snapshot()._replace(play=env.workflow.start(grid)))
        return env

    return make
