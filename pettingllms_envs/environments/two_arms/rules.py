"""Two arms: cubes are moved to their goals on a table of which each arm reaches a part.

Rules: a row of `columns` places with room for one cube each. The left arm reaches the left ones, the right arm the
right ones, and both the two in the middle. In each tick each arm plays a skill: it picks a cube up, places the one
that it holds in a column, or waits. Both begin at once: a skill must be possible before the tick, and where both arms
work, the left one must be on the left, or the right arm's skill fails. A skill that fails does nothing. An episode has
`spare` ticks more than the fewest. The agents are those of `teams`: a planner, who alone knows the goals, and arms.
Replies: the last line, an arm's `pick 0`, `place 5` or `wait`, or `Left: pick 0. Right: wait.` for both.
Success: all cubes are in their goals. Potential: 1 - distance / distance at the start, in skills if one arm acts at a
time, and exact; not below -1, and -1 once a cube has slipped, as in MuJoCo it can. Cost: `failed`, -0.05 a skill.
Outcome: `success`, `ticks`, `failed` skills, `skills_left`, and the proof that the instance needs both arms (`Proof`):
`left_cannot` and `right_cannot`, how many cubes an arm alone cannot bring to their goals; the `fewest` ticks of two
arms, `one_at_a_time`, those of arms that take turns, and the `limit`, those of an episode; `lone_bound`, 0: some cube
begins out of one arm's reach and some goal is out of the other's, so no arm alone succeeds, whatever it is told. With
`spare=1`, the default, arms that take turns are too slow as well.
Instances: a function of settings, split, level and seed, drawn until they need both arms. Splits never share one, not
even mirrored or renumbered. Levels, by cubes and fewest ticks: 1: 2 cubes, 4; 2: 2, 5 or more; 3: 3, up to 6; 4: 3, 7
or more; 5: 4 cubes. In MuJoCo the oracle must also succeed in three simulations, within 5 mm of the goals.
Simulators: `"twin"`, the rules above, or `"mujoco"`, the same skills of two grippers under physics (`physics`).
Oracle: a move after which the fewest ticks are left. It succeeds within `fewest`.
Source: our own; robots with their own reach as in Z. Mandi et al., "RoCo: Dialectic multi-robot collaboration with
large language models", ICRA 2024 (arXiv:2307.04738).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

from pettingllms_envs.boards import Tile
from pettingllms_envs.caching import remembered
from pettingllms_envs.core import SPLITS, Unreadable, check_choice, check_whole
from pettingllms_envs.environments.two_arms.table import ARMS, LOST, Places, Skill, Skills, Table
from pettingllms_envs.instances import seeded, split_of
from pettingllms_envs.replies.moves import match_last_line
from pettingllms_envs.tasks.base import OpenTask


SIMULATORS = ("twin", "mujoco")
FAILED = -0.05
NUM_TRIALS, CENTRED = 3, 0.005
"""Simulations in which the oracle must succeed for an instance to ship, and metres that cubes may then be off."""
PAPER, SHARED, CUBE, GOAL, ARM = "#f4f1ea", "#e2ddd0", "#2f6fde", "#3a9d5d", "#4a4e57"

_SKILL = r"(?:(wait)|(pick|place) (-?[0-9]{1,6}))"
_LINE = re.compile(rf"{_SKILL}\.?|left: {_SKILL}\.? +right: {_SKILL}\.?", re.I | re.A)


class Level(NamedTuple):
    """Cubes of an instance, and the least and greatest fewest ticks."""

    cubes: int
    least: int
    most: int


LEVELS = (Level(2, 4, 4), Level(2, 5, 99), Level(3, 4, 6), Level(3, 7, 99), Level(4, 4, 99))


class TwoArmsState(NamedTuple):
    """A moment of an episode.

    Args:
        places: Of the cubes, see `table`.
        goals: Of each cube its column.
        starts: The places at the start.
        limit: Ticks of the episode.
        most: Skills from the start to the goals.
        left: Skills from here, -1 if a cube has slipped.
        simulator: State of the simulator, empty in the twin.
        build: Of the simulator that wrote it.
    """

    places: Places
    goals: Places
    starts: Places
    limit: int
    most: int
    left: int
    ticks: int = 0
    failed: int = 0
    simulator: bytes = b""
    build: str = ""


@dataclass(frozen=True, slots=True)
class TwoArms(OpenTask[TwoArmsState]):
    """The task. Its state is a `TwoArmsState`, its move `Skills`.

    Args:
        cubes: Cubes, 2 to 4.
        columns: Columns of the table, an even number from 8 to 16.
        spare: Ticks of an episode beyond the fewest, 0 to 20.
        simulator: `"twin"`, or `"mujoco"` with the extra `robots`.
        simulator_build: The simulator's version and machine, which must be those here; empty for whatever is here.
            Records of episodes name it, since another build computes other bits.
        communication_reward: Whether the planner is paid at once for the skills that it proposes.
    """

    cubes: int = 2
    columns: int = 10
    spare: int = 1
    simulator: str = SIMULATORS[0]
    simulator_build: str = ""
    communication_reward: bool = True

    name: ClassVar[str] = "two_arms"
    single_agent: ClassVar[str] = "full"
    legend: ClassVar[str] = (
        "The first row has the arms with what they hold, the second the cubes, the third a ring for each goal."
    )
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "split": SPLITS,
        "level": tuple(range(1, len(LEVELS) + 1)),
    }
    blind_replies: ClassVar[tuple[str, ...]] = (
        *("wait", "pick 0", "pick 1", "place 4", "place 5", "place 0"),
        *("Left: wait. Right: wait.", "Left: pick 0. Right: pick 1.", "Left: place 4. Right: place 5."),
    )

    def __post_init__(self) -> None:
        check_whole("cubes", self.cubes, 2, 4)
        check_whole("columns", self.columns, 8, 16)
        check_whole("spare", self.spare, 0, 20)
        if self.columns % 2:
            raise ValueError(f"columns is {self.columns}; expected an even number, the same for each arm. Add one.")
        check_choice("simulator", self.simulator, SIMULATORS)
        if self.simulator == SIMULATORS[0]:
            check_choice("simulator_build of the twin", self.simulator_build, ("",))
        else:
            from pettingllms_envs.environments.two_arms.physics import checked_build  # only MuJoCo needs it

            object.__setattr__(self, "simulator_build", checked_build(self.simulator_build))

    @property
    def table(self) -> Table:
        return Table(self.columns)

    def lone_bound(self) -> Fraction:
        """The greatest share of successes of one arm: 0, by reach. See `Proof`."""
        return Fraction(0)

    def generate(self, seed: int, split: str | None = None, level: int | None = None) -> TwoArmsState:
        """The instance of a seed in a split, `"train"` (also for None), with `cubes`, or at a level."""
        split = SPLITS[0] if split is None else split
        check_choice("split", split, SPLITS)
        if level is not None:
            check_choice("level", level, self.instance_fields["level"])
        wanted = Level(self.cubes, 4, 99) if level is None else LEVELS[level - 1]
        rng = seeded(self.name, f"v{self.version}", self.columns, wanted, split, seed)
        while True:
            starts, goals = (tuple(rng.sample(range(self.columns), wanted.cubes)) for _ in range(2))
            if any(map(int.__eq__, starts, goals)) or split_of(self.table.form(starts, goals)) != split:
                continue
            proof = self.table.proof(starts, goals)
            is_wanted = proof.needs_both and wanted.least <= proof.fewest <= wanted.most
            if is_wanted and (self.simulator == SIMULATORS[0] or _ships(self, starts, goals)):
                return self.start(starts, goals)

    def start(self, starts: Places, goals: Places) -> TwoArmsState:
        """The first state of an instance: different columns for the starts, and for the goals."""
        proof = self.table.proof(starts, goals)
        state = TwoArmsState(
            starts, goals, starts, proof.fewest + self.spare, proof.one_at_a_time, proof.one_at_a_time
        )
        if self.simulator == SIMULATORS[0]:
            return state
        from pettingllms_envs.environments.two_arms.physics import begun

        return state._replace(simulator=begun(self.table, starts), build=self.simulator_build)

    def parse(self, reply: str) -> Skills | Skill | Unreadable:
        """The skills of both arms in the last line, or the skill of one."""
        found = match_last_line(_LINE, reply, "a skill, or 'Left:' and 'Right:' with a skill each")
        if isinstance(found, Unreadable):
            return found
        one, left, right = (_skill(*found.groups()[at : at + 3]) for at in (0, 3, 6))
        return one or (left or Skill(), right or Skill())

    def proposed(self, message: str) -> Skills | None:
        """The skills of both arms with which a message ends, if it does; other messages are not unreadable."""
        move = self.parse(message)
        return None if isinstance(move, Skill | Unreadable) else move

    def read(self, reply: str, *, of_both: bool) -> Skills | Skill | Unreadable:
        """The skills of both arms, or the skill of one, in the last line."""
        move = self.parse(reply)
        if isinstance(move, Unreadable) or isinstance(move, Skill) != of_both:
            return move
        return Unreadable("its last line has the skill of one arm" if of_both else "its last line has two skills")

    def write(self, move: Skills | Skill) -> str:
        """Such as `Left: pick 0. Right: wait.`, or `pick 0`."""
        if isinstance(move, Skill):
            return move.text
        return f"Left: {move[0].text}. Right: {move[1].text}."

    def moved(self, state: TwoArmsState, move: Skills) -> TwoArmsState:
        """The state after a tick in the twin."""
        return self._placed(state, move, self.table.after(state.places, move))

    def _placed(self, state: TwoArmsState, move: Skills, places: Places) -> TwoArmsState:
        """The state after a tick that led to these places."""
        failed = state.failed + sum(map(bool, self.table.failures(state.places, move)))
        left = -1 if LOST in places else self.table.distances(places, state.goals)[0]
        return state._replace(places=places, left=left, ticks=state.ticks + 1, failed=failed)

    def apply(self, state: TwoArmsState, move: Skills | Skill) -> TwoArmsState:
        """The state after a tick; both arms wait where a skill is not said to be of one of them.

        Raises:
            SimulationFailed: The simulation diverged.
            ValueError: The state is of another build of the simulator.
        """
        if isinstance(move, Skill):
            move = Skill(), Skill()
        if self.simulator == SIMULATORS[0]:
            return self.moved(state, move)
        from pettingllms_envs.environments.two_arms.physics import checked_build, simulated

        checked_build(state.build)
        instance = hashlib.sha256(repr((self.columns, state.starts, state.goals)).encode()).hexdigest()[:12]
        simulator, places = simulated(self.table, state.simulator, state.places, move, instance)
        return self._placed(state, move, places)._replace(simulator=simulator)

    def solved(self, state: TwoArmsState) -> bool:
        return state.places == state.goals

    def is_over(self, state: TwoArmsState) -> bool:
        """Whether the cubes are in their goals, or the ticks of the episode are used up."""
        return state.places == state.goals or state.ticks >= state.limit

    def value(self, state: TwoArmsState) -> float:
        """1 - skills left / skills at the start, not below -1; -1 if a cube has slipped."""
        return max(-1.0, 1 - state.left / state.most) if state.left >= 0 else -1.0

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {"value": (-1.0, 1.0), "failed": (len(ARMS) * FAILED, 0.0)}

    def costs(self, before: TwoArmsState, move: Skills | Skill, after: TwoArmsState) -> Mapping[str, float]:
        """`failed` for the skills that were not possible."""
        failed = after.failed - before.failed
        return {"failed": FAILED * failed} if failed else {}

    def rules(self) -> str:
        """The game in about 130 words."""
        left, right = ((own[0], own[-1]) for own in self.table.reach)
        return (
            f"Two arms move cubes on a table with the columns 0 to {self.columns - 1}, from left to right. In a column"
            f" there is room for one cube. The left arm reaches the columns {left[0]} to {left[1]}, the right arm"
            f" {right[0]} to {right[1]}. In each tick each arm plays one skill, both at once: 'pick' and the number of"
            " a cube takes the cube if the gripper is empty, 'place' and the number of a column puts down the cube"
            " that it holds in a column that was free before the tick, 'wait' does nothing. Where both work in a tick,"
            " the left arm must be to the left of the right one, or the right arm's skill fails. A skill that fails"
            " does nothing. You succeed together when every cube is in its goal column."
        )

    def reply_format(self) -> str:
        return "End with one line that has a skill for each arm, like this: Left: pick 9. Right: wait."

    def show(self, state: TwoArmsState) -> str:
        """Where the cubes are, and their goals."""
        cubes = ", ".join(f"{cube} {self.write_place(place)}" for cube, place in enumerate(state.places))
        goals = ", ".join(f"{cube} in column {goal}" for cube, goal in enumerate(state.goals))
        return f"Cubes: {cubes}.\nGoals: {goals}."

    def write_place(self, place: int) -> str:
        """Such as `in column 3` or `held by the left arm`."""
        if place == LOST:
            return "has slipped"
        return f"in column {place}" if place < self.columns else f"held by the {ARMS[place - self.columns]} arm"

    def describe(
        self, before: TwoArmsState, move: Skills | Skill, after: TwoArmsState, *, proposed: bool = False
    ) -> str:
        """What each arm did, or why it could not."""
        left, right = ("nothing", "nothing") if isinstance(move, Skill) else self.table.words(before.places, move)
        return f"left {left}; right {right}."

    def oracle(self, state: TwoArmsState) -> Skills:
        """A move after which the fewest ticks are left; of those, one with the fewest skills left, waiting first."""
        if LOST in state.places:
            return Skill(), Skill()

        def left(move: Skills) -> tuple[int, int]:
            skills, ticks = self.table.distances(self.table.after(state.places, move), state.goals)
            return ticks, skills

        return min(self.table.possible(state.places), key=left)

    def outcome(self, state: TwoArmsState) -> Mapping[str, bool | int | float]:
        """`success`, what was played, and the proof that both arms are needed."""
        proof = self.table.proof(state.starts, state.goals)
        return {
            "success": self.solved(state),
            "ticks": state.ticks,
            "failed": state.failed,
            "skills_left": state.left,
            "left_cannot": len(proof.left_cannot),
            "right_cannot": len(proof.right_cannot),
            "fewest": proof.fewest,
            "one_at_a_time": proof.one_at_a_time,
            "limit": state.limit,
            "lone_bound": float(self.lone_bound()),
        }

    def tiles(self, state: TwoArmsState) -> list[list[Tile]]:
        """From above: the arms with what they hold, the cubes, and the goals; darker columns are reached by both."""
        reach = self.table.reach
        paper = [SHARED if column in reach[0] and column in reach[1] else PAPER for column in range(self.columns)]
        rows = [[Tile("", colour) for colour in paper] for _ in range(3)]
        for cube, (place, goal) in enumerate(zip(state.places, state.goals, strict=True)):
            rows[2][goal] = Tile(str(cube), paper[goal], "#000000", "ring", GOAL)
            if 0 <= place < self.columns:
                colour = GOAL if place == goal else CUBE
                rows[1][place] = Tile(str(cube), paper[place], "#ffffff", "square", colour)
        for arm, column in enumerate((0, self.columns - 1)):
            held = "".join(str(cube) for cube, place in enumerate(state.places) if place == self.columns + arm)
            shape, fill = ("square", CUBE) if held else ("disc", ARM)
            rows[0][column] = Tile(held or "LR"[arm], paper[column], "#ffffff", shape, fill)
        return rows


def _skill(waits: str | None, kind: str | None, target: str | None) -> Skill | None:
    return Skill() if waits else Skill(kind.lower(), int(target)) if kind and target else None


@remembered(4096)
def _ships(task: TwoArms, starts: Places, goals: Places) -> bool:
    """Whether the oracle succeeds in all simulations, which begin with other jitter, close to the goals."""
    from pettingllms_envs.environments.two_arms.physics import begun, distance

    for trial in range(NUM_TRIALS):
        state = task.start(starts, goals)._replace(simulator=begun(task.table, starts, trial))
        while not task.is_over(state):
            state = task.apply(state, task.oracle(state))
        if not task.solved(state) or distance(task.table, state.simulator, goals) > CENTRED:
            return False
    return True
