"""Push a puck to a mark on a plane: MuJoCo as a task. The simulator's own state is part of the task's, as bytes.

Rules: a move is a constant force for one second. Success is to be within 5 cm of the mark. Potential: 1 - distance
left / distance at the start. Instances: marks 0.5 to 1 m away, in all directions.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import mujoco
import numpy as np

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import SPLITS, Unreadable, check_choice
from pettingllms_envs.instances import seeded
from pettingllms_envs.replies.moves import last_line
from pettingllms_envs.tasks.base import OpenTask


XML = """
<mujoco><option timestep="0.005"/>
  <worldbody><body><geom type="cylinder" size=".1 .05" mass="1"/>
    <joint name="x" type="slide" axis="1 0 0" damping="1"/><joint name="y" type="slide" axis="0 1 0" damping="1"/>
  </body></worldbody>
  <actuator><motor joint="x"/><motor joint="y"/></actuator>
</mujoco>
"""
STEPS = 200  # of 5 ms
NEAR = 0.05
MAX_FORCE = 99.0
KIND = mujoco.mjtState.mjSTATE_INTEGRATION
NUMBER = r"(-?\d{1,2}(?:\.\d{1,3})?)"

_of_thread = threading.local()


@cache
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def simulate(before: bytes, force: tuple[float, float], steps: int) -> tuple[bytes, tuple[float, float]]:
    """The simulator's state after some steps, and where the puck is then."""
    if not hasattr(_of_thread, "data"):
        _of_thread.data = mujoco.MjData(model())
    data = _of_thread.data
    if before:
        mujoco.mj_setState(model(), data, np.frombuffer(before), KIND)
    else:
        mujoco.mj_resetData(model(), data)
    data.ctrl[:] = force
    for _ in range(steps):
        mujoco.mj_step(model(), data)
    after = np.empty(mujoco.mj_stateSize(model(), KIND))
    mujoco.mj_getState(model(), data, after, KIND)
    return after.tobytes(), (float(data.qpos[0]), float(data.qpos[1]))


class ReachState(NamedTuple):
    """The simulator's state, the mark, and where the puck is, in metres."""

    simulator: bytes
    mark: tuple[float, float]
    puck: tuple[float, float] = (0.0, 0.0)

    @property
    def left(self) -> float:
        return max(0.0, math.dist(self.puck, self.mark) - NEAR)


@dataclass(frozen=True, slots=True)
class Reach(OpenTask[ReachState]):
    """The task; its move is a force in newton."""

    name: ClassVar[str] = "reach"
    blind_replies: ClassVar[tuple[str, ...]] = ("Force: 1 0", "Force: 0 1", "Force: -1 0", "Force: 0 0")

    def generate(self, seed: int, *, split: str = "train") -> ReachState:
        check_choice("split", split, SPLITS)
        rng = seeded(self.name, self.version, split, seed)
        angle, distance = rng.uniform(0, math.tau), rng.uniform(0.5, 1.0)
        return ReachState(simulate(b"", (0.0, 0.0), 0)[0], (distance * math.cos(angle), distance * math.sin(angle)))

    def rules(self) -> str:
        return (
            "Push a puck of 1 kg, with a damping of 1 N s/m, on a plane by a constant force for one second. Bring it "
            "to within 5 cm of the mark."
        )

    def reply_format(self) -> str:
        return "End your reply with one line: Force: and two numbers, x and y in newton, of at most three decimals."

    def show(self, state: ReachState) -> str:
        return f"The puck is at {written(state.puck)}, the mark at {written(state.mark)}, in metres."

    def parse(self, reply: str) -> tuple[float, float] | Unreadable:
        found = re.fullmatch(rf"force: {NUMBER} {NUMBER}", last_line(reply), re.I | re.A)
        return (
            (float(found[1]), float(found[2]))
            if found
            else Unreadable("its last line is not 'Force:' and two numbers")
        )

    def write(self, move: tuple[float, float]) -> str:
        return f"Force: {written(move)}"

    def apply(self, state: ReachState, move: tuple[float, float]) -> ReachState:
        simulator, puck = simulate(state.simulator, move, STEPS)
        return ReachState(simulator, state.mark, puck)

    def solved(self, state: ReachState) -> bool:
        return state.left == 0

    def value(self, state: ReachState) -> float:
        return 1 - state.left / (math.hypot(*state.mark) - NEAR)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {"value": (-2000.0, 1.0)}

    def oracle(self, state: ReachState) -> tuple[float, float]:
        """The dynamics are linear, so two trials say what a force of 1 N adds."""
        rest, pushed = self.apply(state, (0.0, 0.0)).puck, self.apply(state, (1.0, 1.0)).puck
        forces = ((mark - at) / (then - at) for mark, at, then in zip(state.mark, rest, pushed, strict=True))
        x, y = (round(max(-MAX_FORCE, min(MAX_FORCE, force)), 3) for force in forces)
        return x, y


def written(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.3f} {pair[1]:.3f}"


raw_env, env, parallel_env = assemble(Reach, __name__)
