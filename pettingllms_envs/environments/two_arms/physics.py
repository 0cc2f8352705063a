"""The table of two arms in MuJoCo: grippers on rails, cubes that are held by friction alone.

Columns are `SPACING` apart. A gripper's slide joint along the row ends beyond its last column, so what an arm reaches
is a joint's range. A tick has phases of the same length for both arms, which act at once: to the column, down, close
or open, up, and back to where the other arm does not reach. What a tick did is measured: a cube is held if it hangs in
a gripper, stands in a column if it is within `NEAR` of it, and has slipped otherwise. The arms themselves do not
collide; the rules keep them from crossing.

A state is MuJoCo's own, as bytes (`mjSTATE_INTEGRATION`), which decide everything that follows, to the last bit in one
build of the simulator. Every thread has a simulator of its own to compute in, whose contents never matter.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import threading
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pettingllms_envs.caching import remembered
from pettingllms_envs.environments.two_arms.table import ARMS, LOST, PICK, WAIT, Places, Skill, Skills, Table
from pettingllms_envs.failures import ServiceFailed
from pettingllms_envs.installing import needs_extra


if TYPE_CHECKING:
    from pettingllms_envs.environments.two_arms.rules import TwoArms, TwoArmsState

with needs_extra("robots", "mujoco-core", 'simulator="mujoco"'):
    import mujoco


SPACING = 0.1
"""Metres between columns."""
NEAR, CENTRED = 0.02, 0.005
"""Metres from a column's middle within which a cube stands in it, and those within which an oracle must leave it."""
SIDE, HELD_AT = 0.02, 0.1
"""Half a cube's side, and the height in metres above which it is held."""
HIGH, GRASP, PUT = 0.05, -0.225, -0.22
"""Heights of a gripper against its rail: while it moves, to grasp, and to put down."""
CLOSED, OPEN = (-0.03, 0.03), (0.01, -0.01)
"""Positions of a gripper's fingers."""
PHASES, PARTS = (300, 200, 120, 120, 200), 10
"""Steps, of 4 ms, of each phase: to the column, down, close or open, up, back; and parts of a phase."""
JITTER = 0.003
"""Most metres that a cube begins beside its column's middle."""
NUM_TRIALS = 3
"""Times that the oracle must succeed, each with other jitter, for an instance to ship."""
MOST_SPEED = 20.0
"""Metres or radians a second; a simulation with more has diverged."""
STATE = mujoco.mjtState.mjSTATE_INTEGRATION

_of_thread = threading.local()


class SimulationFailed(ServiceFailed):
    """The simulation diverged: the episode is not scored."""


def checked_build(build: str) -> str:
    """The version of MuJoCo that is installed, which must be the expected one; empty expects none.

    Raises:
        ValueError: It is another one.
    """
    found = importlib.metadata.version("mujoco-core")
    if build not in ("", found):
        raise ValueError(
            f"the simulator is MuJoCo {found}; expected {build}, with which the episodes were played: other builds "
            f"compute other bits. Install mujoco-core=={build}, or leave build out."
        )
    return found


@remembered(512)
def begun(table: Table, starts: Places, trial: int = 0) -> bytes:
    """The state in which an instance begins, after half a second in which the cubes come to rest."""
    model, data = _simulator(table, len(starts))
    mujoco.mj_resetData(model, data)
    jitter = np.random.default_rng((*starts, trial)).uniform(-JITTER, JITTER, (len(starts), 2))
    for cube, place in enumerate(starts):
        data.joint(f"cube_{cube}").qpos[:3] = (_x(table, place) + jitter[cube, 0], jitter[cube, 1], SIDE)
    for arm, name in enumerate(ARMS):
        home = table.reach[arm][0 if arm == 0 else -1]
        data.joint(f"{name}_x").qpos[0] = _x(table, home)
        data.ctrl[5 * arm : 5 * arm + 5] = (_x(table, home), 0.0, HIGH, *OPEN)
    mujoco.mj_step(model, data, 125)
    return _saved(model, data)


def simulated(table: Table, state: TwoArmsState, move: Skills) -> tuple[bytes, Places]:
    """The simulator's state after a tick, and the places of the cubes. A skill that is not possible is not played.

    Raises:
        SimulationFailed: A number of the state is not finite, or a speed above `MOST_SPEED`.
        ValueError: The state is of another build.
    """
    checked_build(state.build)
    model, data = _simulator(table, len(state.places))
    _load(model, data, state.simulator)
    failures = table.failures(state.places, move)
    active = [arm for arm, (kind, _) in enumerate(move) if kind != WAIT and not failures[arm]]
    is_sound = _is_sound(data)  # MuJoCo starts over where it is not
    for phase, steps in enumerate(PHASES):
        if is_sound:
            aims = {at: aim for arm in active for at, aim in _aims(table, data, arm, move[arm], phase).items()}
            _drive(model, data, aims, steps)
            is_sound = _is_sound(data)
    if not is_sound:
        digest = hashlib.sha256(repr((table.columns, state.starts, state.goals)).encode()).hexdigest()[:12]
        raise SimulationFailed(
            f"the simulation diverged in tick {state.ticks + 1} of the instance {digest}, cubes from {state.starts} "
            f"to {state.goals}; expected finite numbers and speeds up to {MOST_SPEED:g}. Report it; it is not scored."
        )
    return _saved(model, data), tuple(_place(table, data, cube) for cube in range(len(state.places)))


def _is_sound(data: Any) -> bool:
    numbers = np.concatenate([data.qpos, data.qvel, data.ctrl])
    return bool(np.isfinite(numbers).all() and np.abs(data.qvel).max() <= MOST_SPEED)


def ships(task: TwoArms, state: TwoArmsState) -> bool:
    """Whether the oracle succeeds in each trial, and leaves every cube within `CENTRED` of its goal."""
    return all(_succeeds(task, state, trial) for trial in range(NUM_TRIALS))


def _succeeds(task: TwoArms, state: TwoArmsState, trial: int) -> bool:
    state = state._replace(simulator=begun(task.table, state.starts, trial))
    while not task.is_over(state):
        state = task.apply(state, task.oracle(state))
    return task.solved(state) and distance(task.table, state) <= CENTRED


def distance(table: Table, state: TwoArmsState) -> float:
    """The greatest distance, in metres, of a cube from the middle of its goal."""
    model, data = _simulator(table, len(state.places))
    _load(model, data, state.simulator)
    at = [data.body(f"cube_{cube}").xpos for cube in range(len(state.places))]
    return max(math.dist(xyz[:2], (_x(table, goal), 0.0)) for xyz, goal in zip(at, state.goals, strict=True))


def _place(table: Table, data: Any, cube: int) -> int:
    """Where a cube is, as measured."""
    x, y, z = data.body(f"cube_{cube}").xpos
    if z > HELD_AT:
        grippers = [abs(data.body(name).xpos[0] - x) for name in ARMS]
        nearest = int(np.argmin(grippers))
        return table.columns + nearest if grippers[nearest] < NEAR else LOST
    column = round(x / SPACING + (table.columns - 1) / 2)
    is_there = 0 <= column < table.columns and math.dist((x, y), (_x(table, column), 0.0)) < NEAR
    return column if is_there and z < 2 * SIDE else LOST


def _x(table: Table, column: int) -> float:
    return (column - (table.columns - 1) / 2) * SPACING


def _aims(table: Table, data: Any, arm: int, skill: Skill, phase: int) -> dict[int, float]:
    """Where an arm's joints are driven to in a phase, by their numbers."""
    x, y, z, *fingers = range(5 * arm, 5 * arm + 5)
    picks = skill.kind == PICK
    if phase == 0:
        at = data.body(f"cube_{skill.target}").xpos[:2] if picks else (_x(table, skill.target), 0.0)
        return {x: at[0], y: at[1]}
    if phase == 1:
        return {z: GRASP if picks else PUT}
    if phase == 2:
        return dict(zip(fingers, CLOSED if picks else OPEN, strict=True))
    if phase == 3:
        return {z: HIGH}
    own = [_x(table, column) for column in table.reach[arm] if column not in table.reach[1 - arm]]
    return {x: min(max(data.ctrl[x], own[0]), own[-1])}


def _drive(model: Any, data: Any, aims: Mapping[int, float], steps: int) -> None:
    """Drive joints to where they are to be, at an even speed in the first two thirds, so that no cube slips."""
    begins = {at: data.ctrl[at] for at in aims}
    for part in range(1, PARTS + 1):
        for at, aim in aims.items():
            data.ctrl[at] = begins[at] + (aim - begins[at]) * part / PARTS
        mujoco.mj_step(model, data, 2 * steps // (3 * PARTS))
    mujoco.mj_step(model, data, steps - PARTS * (2 * steps // (3 * PARTS)))


def _load(model: Any, data: Any, state: bytes) -> None:
    mujoco.mj_setState(model, data, np.frombuffer(state), STATE)
    mujoco.mj_kinematics(model, data)


def _saved(model: Any, data: Any) -> bytes:
    state = np.empty(mujoco.mj_stateSize(model, STATE))
    mujoco.mj_getState(model, data, state, STATE)
    return state.tobytes()


def _simulator(table: Table, cubes: int) -> tuple[Any, Any]:
    """The model, and this thread's data to compute in."""
    model = _model(table, cubes)
    if not hasattr(_of_thread, "data"):
        _of_thread.data = {}
    data = _of_thread.data.get((table, cubes))
    if data is None:
        data = _of_thread.data[table, cubes] = mujoco.MjData(model)
    return model, data


@cache
def _model(table: Table, cubes: int) -> Any:
    return mujoco.MjModel.from_xml_string(_xml(table, cubes))


def _xml(table: Table, cubes: int) -> str:
    """Two grippers, each on a rail in x, y and z with two fingers, and cubes on a plane."""
    bodies = "".join(
        _arm(name, _x(table, own[0]), _x(table, own[-1])) for name, own in zip(ARMS, table.reach, strict=True)
    )
    bodies += "".join(
        f'<body name="cube_{cube}" pos="0 0 {SIDE}"><freejoint name="cube_{cube}"/><geom type="box" mass=".05"'
        f' size="{SIDE} {SIDE} {SIDE}" friction="1 .05 .01" contype="1" conaffinity="3"/></body>'
        for cube in range(cubes)
    )
    drives = "".join(
        f'<position joint="{name}_{joint}" kp="{400 if joint in "xyz" else 150}"/>'
        for name in ARMS
        for joint in "xyzlr"
    )
    return (
        '<mujoco><option timestep="0.004" integrator="implicitfast" cone="elliptic" impratio="50"/><worldbody>'
        f'<geom type="plane" size="3 3 .1" contype="1" conaffinity="1"/>{bodies}</worldbody>'
        f"<actuator>{drives}</actuator></mujoco>"
    )


def _arm(name: str, least: float, most: float) -> str:
    """A gripper whose rail ends half a column beyond those that it reaches. It carries its own weight."""
    rail = '<joint name="{0}_{1}" type="slide" axis="{2}" damping="20" range="{3} {4}"/>'
    finger = (
        '<body pos="0 {y} -0.04" gravcomp="1"><joint name="{name}_{side}" type="slide" axis="0 1 0" damping="5"'
        ' range="{range}"/><geom type="box" size=".015 .006 .03" friction="2 .1 .01" mass=".05" contype="2"'
        ' conaffinity="1"/></body>'
    )
    return (
        f'<body name="{name}" pos="0 0 0.30" gravcomp="1">'
        + rail.format(name, "x", "1 0 0", least - SPACING / 2, most + SPACING / 2)
        + rail.format(name, "y", "0 1 0", -0.3, 0.3)
        + rail.format(name, "z", "0 0 1", -0.24, 0.1)
        + '<geom type="box" size=".03 .03 .01" mass=".5" contype="0" conaffinity="0"/>'
        + finger.format(name=name, side="l", y=0.04, range="-0.03 0.01")
        + finger.format(name=name, side="r", y=-0.04, range="-0.01 0.03")
        + "</body>"
    )
