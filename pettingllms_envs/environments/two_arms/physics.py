"""The table of two arms in MuJoCo: grippers on rails, which hold cubes by friction alone.

A slide joint along the row ends half a column beyond an arm's last one: what it reaches is a joint's range. A tick has
phases of the same length for both arms, which act at once: to the column, down, close or open, up, and back to where
the other arm does not reach. What came of it is measured: a cube is held if it hangs in a gripper, stands in a column
if it is within `NEAR` of it, and has slipped otherwise. The arms do not collide; the rules keep them from crossing.

A state is MuJoCo's own, as bytes (`mjSTATE_INTEGRATION`), which decide everything that follows, to the last bit in one
build of the simulator. Every thread has a simulator of its own to compute in, whose contents never matter.
"""

from __future__ import annotations

import math
import platform
import threading
from functools import cache
from typing import Any

import numpy as np

from pettingllms_envs.caching import remembered
from pettingllms_envs.environments.two_arms.table import ARMS, LOST, PICK, WAIT, Places, Skill, Skills, Table
from pettingllms_envs.failures import ServiceFailed
from pettingllms_envs.installing import needs_extra


with needs_extra("robots", "mujoco-core", 'simulator="mujoco"'):
    import mujoco


SPACING, NEAR, SIDE, HELD_AT = 0.1, 0.02, 0.02, 0.1
"""Metres between columns; within which a cube stands in one; half a cube's side; the height above which it is held."""
JITTER = 0.003
"""Most metres that a cube begins beside its column's middle."""
HIGH, GRASP, PUT = 0.05, -0.225, -0.22
"""Heights of a gripper against its rail: while it moves, to grasp, and to put down."""
CLOSED, OPEN = (-0.03, 0.03), (0.01, -0.01)
"""Positions of a gripper's fingers."""
PHASES, PARTS = (300, 200, 120, 120, 200), 10
"""Steps, of 4 ms, of each phase of a tick; parts of the driven two thirds of a phase."""
MOST_SPEED = 20.0
"""Metres or radians a second; a simulation with more has diverged."""
STATE = mujoco.mjtState.mjSTATE_INTEGRATION

_of_thread = threading.local()


class SimulationFailed(ServiceFailed):
    """The simulation diverged: the episode is not scored."""


def checked_build(build: str) -> str:
    """The build of MuJoCo that is installed, its version and the machine; ValueError if another one is expected."""
    found = f"{mujoco.mj_versionString()}-{platform.system()}-{platform.machine()}"
    if build not in ("", found):
        raise ValueError(
            f"the simulator is MuJoCo {found}; expected {build}, with which the episodes were played: other builds "
            "compute other bits. Install that mujoco-core on such a machine, or leave simulator_build out."
        )
    return found


@remembered(512)
def begun(table: Table, starts: Places, trial: int = 0) -> bytes:
    """The state in which an instance begins, once the cubes have come to rest; each trial has another jitter."""
    model, data = _simulator(table, len(starts))
    mujoco.mj_resetData(model, data)
    jitter = np.random.default_rng((*starts, trial)).uniform(-JITTER, JITTER, (len(starts), 2))
    for cube, place in enumerate(starts):
        data.joint(f"cube_{cube}").qpos[:3] = (_x(table, place) + jitter[cube, 0], jitter[cube, 1], SIDE)
    for arm, name in enumerate(ARMS):
        home = _x(table, table.reach[arm][-arm])
        data.joint(f"{name}_x").qpos[0] = home
        data.ctrl[5 * arm : 5 * arm + 5] = (home, 0.0, HIGH, *OPEN)
    _step(model, data, 125, str(starts))
    return _saved(model, data)


def simulated(table: Table, before: bytes, places: Places, move: Skills, instance: str) -> tuple[bytes, Places]:
    """The simulator's state after a tick, and the places of the cubes. A skill that is not possible is not played.

    Raises:
        SimulationFailed: It diverged, see `_step`; the words name the instance.
    """
    model, data = _loaded(table, before, len(places))
    active = [arm for arm, why in enumerate(table.failures(places, move)) if not why and move[arm].kind != WAIT]
    _step(model, data, 0, instance)
    for phase, steps in enumerate(PHASES):
        aims = [each for arm in active for each in _aims(table, data, arm, move[arm], phase)]
        _drive(model, data, aims, steps, instance)
    return _saved(model, data), tuple(_place(table, data, cube) for cube in range(len(places)))


def distance(table: Table, state: bytes, goals: Places) -> float:
    """The greatest distance, in metres, of a cube from the middle of its goal."""
    _, data = _loaded(table, state, len(goals))
    at = [data.body(f"cube_{cube}").xpos[:2] for cube in range(len(goals))]
    return max(math.dist(xy, (_x(table, goal), 0.0)) for xy, goal in zip(at, goals, strict=True))


def _aims(table: Table, data: Any, arm: int, skill: Skill, phase: int) -> list[tuple[int, float]]:
    """Where an arm's joints are driven to in a phase, with their numbers."""
    x, y, z, *fingers = range(5 * arm, 5 * arm + 5)
    picks = skill.kind == PICK
    if phase == 0:
        at = data.body(f"cube_{skill.target}").xpos[:2] if picks else (_x(table, skill.target), 0.0)
        return [(x, at[0]), (y, at[1])]
    if phase == 1:
        return [(z, GRASP if picks else PUT)]
    if phase == 2:
        return list(zip(fingers, CLOSED if picks else OPEN, strict=True))
    if phase == 3:
        return [(z, HIGH)]
    own = [_x(table, column) for column in table.reach[arm] if column not in table.reach[1 - arm]]
    return [(x, min(max(data.ctrl[x], own[0]), own[-1]))]


def _drive(model: Any, data: Any, aims: list[tuple[int, float]], steps: int, instance: str) -> None:
    """Drive joints to their aims, at an even speed in the first two thirds of the steps, so that no cube slips."""
    driven, begins = 2 * steps // (3 * PARTS), data.ctrl.copy()
    for part in range(1, PARTS + 1):
        for at, aim in aims:
            data.ctrl[at] = begins[at] + (aim - begins[at]) * part / PARTS
        _step(model, data, driven, instance)
    _step(model, data, steps - PARTS * driven, instance)


def _step(model: Any, data: Any, steps: int, instance: str) -> None:
    """Simulate; SimulationFailed for speeds above `MOST_SPEED` and all warnings, after which MuJoCo resets itself."""
    mujoco.mj_step(model, data, steps)
    if data.warning.number.any() or not np.abs(data.qvel).max() <= MOST_SPEED:  # neither is a NaN
        raise SimulationFailed(
            f"the simulation of the instance {instance} diverged; expected finite numbers and speeds up to"
            f" {MOST_SPEED:g}. Report it: the episode is not scored."
        )


def _place(table: Table, data: Any, cube: int) -> int:
    x, y, z = data.body(f"cube_{cube}").xpos
    if z > HELD_AT:
        return next(
            (table.columns + arm for arm, name in enumerate(ARMS) if abs(data.body(name).xpos[0] - x) < NEAR), LOST
        )
    column = round(x / SPACING + (table.columns - 1) / 2)
    stands = 0 <= column < table.columns and z < 2 * SIDE
    return column if stands and math.dist((x, y), (_x(table, column), 0.0)) < NEAR else LOST


def _x(table: Table, column: int) -> float:
    return (column - (table.columns - 1) / 2) * SPACING


def _saved(model: Any, data: Any) -> bytes:
    state = np.empty(mujoco.mj_stateSize(model, STATE))
    mujoco.mj_getState(model, data, state, STATE)
    return state.tobytes()


def _loaded(table: Table, state: bytes, cubes: int) -> tuple[Any, Any]:
    model, data = _simulator(table, cubes)
    mujoco.mj_setState(model, data, np.frombuffer(state), STATE)
    mujoco.mj_kinematics(model, data)
    data.warning.number[:] = 0
    return model, data


def _simulator(table: Table, cubes: int) -> tuple[Any, Any]:
    """The model, and this thread's data to compute in."""
    model, name = _model(table, cubes), f"data_{table.columns}_{cubes}"
    if name not in vars(_of_thread):
        setattr(_of_thread, name, mujoco.MjData(model))
    return model, vars(_of_thread)[name]


@cache
def _model(table: Table, cubes: int) -> Any:
    """Two grippers that carry their own weight, each with joints in x, y and z and two fingers; cubes on a plane."""
    cube = (
        f'<geom type="box" size="{SIDE} {SIDE} {SIDE}" mass=".05" friction="1 .05 .01" contype="1" conaffinity="3"/>'
    )
    bodies = [f'<body name="cube_{n}"><freejoint name="cube_{n}"/>{cube}</body>' for n in range(cubes)]
    for name, own in zip(ARMS, table.reach, strict=True):
        ends = _x(table, own[0]) - SPACING / 2, _x(table, own[-1]) + SPACING / 2
        palm = '<geom type="box" size=".03 .03 .01" mass=".5" contype="0" conaffinity="0"/>'
        rails = [("x", "1 0 0", *ends), ("y", "0 1 0", -0.3, 0.3), ("z", "0 0 1", -0.24, 0.1)]
        joints = "".join(_joint(f"{name}_{at}", axis, 20, *limits) for at, axis, *limits in rails)
        fingers = "".join(
            f'<body pos="0 {y} -.04" gravcomp="1">'
            f"{_joint(f'{name}_{side}', '0 1 0', 5, *sorted((CLOSED[n], OPEN[n])))}"
            '<geom type="box" size=".015 .006 .03" mass=".05" friction="2 .1 .01" contype="2" conaffinity="1"/></body>'
            for n, (side, y) in enumerate((("l", 0.04), ("r", -0.04)))
        )
        bodies.append(f'<body name="{name}" pos="0 0 .3" gravcomp="1">{joints}{palm}{fingers}</body>')
    drives = [f'<position joint="{name}_{at}" kp="{150 if at in "lr" else 400}"/>' for name in ARMS for at in "xyzlr"]
    return mujoco.MjModel.from_xml_string(
        '<mujoco><option timestep=".004" integrator="implicitfast" cone="elliptic" impratio="50"/><worldbody>'
        f'<geom type="plane" size="3 3 .1" contype="1" conaffinity="1"/>{"".join(bodies)}</worldbody>'
        f"<actuator>{''.join(drives)}</actuator></mujoco>"
    )


def _joint(name: str, axis: str, damping: float, least: float, most: float) -> str:
    return f'<joint name="{name}" type="slide" axis="{axis}" damping="{damping}" range="{least} {most}"/>'
