"""The protocols of an environment: a task (the game), a workflow (the order and observations of roles), named rewards.

A *task* is a pure state machine: rules, parser, generator, oracle. It has no roles. A *workflow* lets a team play any
task: it defines the order of the roles, what each one observes, and how its reply is used and scored.
`pettingllms_envs.aec.TextEnv` turns a workflow into a PettingZoo environment. This module imports no pettingzoo, so
both can be used and tested without it.

A new task is one file with a class that has the methods of `Task`; a new workflow is one file with a class that has
those of `Workflow`. Both are frozen dataclasses whose fields are their settings; states are named tuples (or frozen
dataclasses) of numbers, strings and other such tuples, so that a snapshot is a reference and `repr(state)` says all
there is to say. Named tuples are used here because they are made in a third of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from pettingllms_envs.suggestions import did_you_mean


TEAM = "team"
SPLITS = ("train", "validation", "test")
UNREADABLE_PENALTY = -0.2

State = TypeVar("State")
Move = TypeVar("Move")


Parts = Mapping[str, Mapping[str, float]]
"""The named parts of a step's reward: by scope (`TEAM` for everybody, or the one role they belong to), then by name.

A name belongs to one scope. To be read only: a snapshot holds it.
"""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A reply that is not a move, with the reason: a clause for a prompt, without text that a model wrote."""

    reason: str


@dataclass(frozen=True, slots=True)
class Role:
    """A role in a team.

    Args:
        name: One lower-case word, unique in its workflow and not "team"; its agent is called `<name>_0`.
        job: The task of the role, in a sentence or two for its system prompt.
        delayed: Whether its replies are paid only at later steps. Training then needs another credit scheme: see
            docs/delayed_rewards.md.
    """

    name: str
    job: str
    delayed: bool = False


class Task(Protocol[State, Move]):
    """A game as pure functions of its state: no clock, no global random numbers, no role."""

    @property
    def name(self) -> str:
        """The task's name, such as `"plan_path"`."""
        ...

    @property
    def version(self) -> int:
        """Increased whenever the same moves could lead to another result; part of every instance and snapshot."""
        ...

    @property
    def instance_fields(self) -> Mapping[str, tuple[object, ...]]:
        """The keyword arguments of `generate` besides the seed, each with its legal values, or () if it is open.

        They are the environment's reset options. By convention `split` is one of `SPLITS`, `level` a difficulty from
        1 (easiest) up, and `board` an instance written out.
        """
        ...

    @property
    def blind_replies(self) -> tuple[str, ...]:
        """Well-formed replies that ignore the state: one move, every move, to and fro.

        The action space samples them, and the conformance suite checks that playing them earns next to nothing.
        """
        ...

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Least and greatest of `"value"`, the potential, and of each cost of a move by name."""
        ...

    def generate(self, seed: int, *args: Any, **fields: Any) -> State:
        """The start state of the instance given by the seed and the fields, the same in every process.

        Raises:
            ValueError: A field has an unknown value.
        """
        ...

    def parse(self, reply: str) -> Move | Unreadable:
        """Parse the move in a reply, in linear time and without raising; an ambiguous reply is unreadable."""
        ...

    def apply(self, state: State, move: Move) -> State:
        """The state after the move. Every move that `parse` returns can be applied to every state."""
        ...

    def solved(self, state: State) -> bool:
        """Whether the goal is reached, by the outcome alone."""
        ...

    def value(self, state: State) -> float:
        """The potential, from the exact distance: 0 at the start of the instance, 1 at the goal; may be negative."""
        ...

    def costs(self, before: State, move: Move, after: State) -> Mapping[str, float]:
        """Penalties of the move by name, each at most 0; names that do not apply are left out."""
        ...

    def rules(self) -> str:
        """The game in a few plain sentences, for a system prompt."""
        ...

    def reply_format(self) -> str:
        """How a reply must end, in one sentence. An example in it must solve nothing."""
        ...

    def show(self, state: State) -> str:
        """Everything that a player needs to know about the state, but not a solution."""
        ...

    def describe(self, before: State, move: Move, after: State, *, proposed: bool = False) -> str:
        """A description of the move and its result, or its expected result if only proposed, in a sentence or two."""
        ...

    def oracle(self, state: State) -> Move:
        """An optimal move, the same every time. It must never reach an observation."""
        ...

    def write(self, move: Move) -> str:
        """The canonical reply that `parse` reads as this move."""
        ...

    def outcome(self, state: State) -> Mapping[str, bool | int | float]:
        """What to report about the state; at least `"success"`."""
        ...


class Tile(NamedTuple):
    """How one cell of a board looks.

    Args:
        text: What is written on it, at most two characters; may be empty.
        paper: Colour of the cell, `"#rrggbb"`.
        ink: Colour of the text.
        shape: Under the text: `"none"`, `"disc"`, `"square"` or `"ring"`.
        fill: Colour of the shape.
    """

    text: str
    paper: str
    ink: str = "#000000"
    shape: str = "none"
    fill: str = "#000000"


@runtime_checkable
class Board(Protocol):
    """An optional feature of a task: a board of tiles, for pictures and terminals. Without it the text is drawn."""

    def tiles(self, state: Any) -> Sequence[Sequence[Tile]]:
        """The state as rows of tiles, all rows of the same length."""
        ...


class DataSet(NamedTuple):
    """The source of a task's problems.

    Args:
        name: Argument of `datasets.load`: `"own:aime"` for rows of this package, a file, or an id of the Hub.
        stands_for: For rows written for this package, the benchmark that they imitate, such as `"AIME"`: results on
            them are not results on the benchmark. Empty for all other data.
        remedy: How to play the benchmark itself, such as `"--set year=2024 for the exam"`; may be empty.
    """

    name: str
    stands_for: str = ""
    remedy: str = ""

    @property
    def note(self) -> str:
        """A note about the problems for every report; empty if the name suffices."""
        return f"problems written for this package, not {self.stands_for}" if self.stands_for else ""


@runtime_checkable
class OnDataSet(Protocol):
    """An optional feature of a task on a data set: the data set."""

    @property
    def data_set(self) -> DataSet:
        """The source of the problems."""
        ...


class Play(Protocol):
    """The attributes that every workflow's state has."""

    @property
    def task(self) -> Any:
        """The task's state."""
        ...

    @property
    def turn(self) -> int:
        """The turn now being played, from 1; once the episode is over, the last turn played."""
        ...


WorkflowState = TypeVar("WorkflowState", bound=Play)


Transition = tuple[WorkflowState, Parts, bool, bool]
"""The result of one reply: the next state, the parts of the reward, whether the episode is terminated by the workflow
(the task is solved, or the roles agree on something, right or wrong), and if not, whether no turns are left."""


class Workflow(Protocol[WorkflowState]):
    """The order of the roles, what each observes, and how its reply is used and scored. Pure, like the task."""

    @property
    def name(self) -> str:
        """The workflow's name, such as `"draft_plan"`."""
        ...

    @property
    def task(self) -> Task[Any, Any]:
        """The task that is played."""
        ...

    @property
    def num_turns(self) -> int:
        """The turn budget."""
        ...

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles in the order in which they act within a turn."""
        ...

    def start(self, task_state: Any) -> WorkflowState:
        """The first state of an episode on this instance."""
        ...

    def actor(self, state: WorkflowState) -> str:
        """The name of the role whose reply `step` takes next."""
        ...

    def system(self, role: str) -> str:
        """The role's system prompt, the same in every episode: the rules, its job, how to reply."""
        ...

    def observe(self, state: WorkflowState, role: str) -> str:
        """The role's observation in this state, whether or not it is the acting one."""
        ...

    def step(self, state: WorkflowState, reply: str) -> Transition[WorkflowState]:
        """Apply the acting role's reply. Every string is legal."""
        ...

    def oracle(self, state: WorkflowState) -> str:
        """An optimal reply of the acting role, the same every time. It must never reach an observation."""
        ...

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Least and greatest value of each part of a step's reward, by name."""
        ...


class Execution(NamedTuple):
    """The result of running a program: its output, and why it failed in a few fixed words (empty if it did not)."""

    stdout: str
    error: str = ""


class PythonExecutor(Protocol):
    """Runs Python programs that a model wrote in isolation.

    The same program must give the same result, and a call must return whatever the program does: an endless program is
    stopped, a crash is an `Execution` with an error. `exec`, `eval` or a bare subprocess are not isolated.
    """

    def __call__(self, program: str) -> Execution:
        """Run the program from its first line to its end."""
        ...


def scalars(parts: Parts, roles: Iterable[str], alpha: float) -> tuple[float, ...]:
    """The reward of each role for a step, `alpha * team + local` (arXiv:2510.11062, section 3)."""
    team = alpha * sum(parts[TEAM].values()) if TEAM in parts else 0.0
    rewards = []
    for role in roles:  # a comprehension would take a third longer: it is a call in Python 3.11
        rewards.append(team + sum(parts[role].values()) if role in parts else team)
    return tuple(rewards)


def team_return(task: Task[State, Any], state: State) -> float:
    """The sum of the team rewards of an episode that ends here: the potential, plus 1 if solved."""
    return task.value(state) + task.solved(state)


def play(
    task: Task[State, Move], state: State, reply: str, role: str
) -> tuple[State, bool, dict[str, Mapping[str, float]], str]:
    """Play a role's reply on the task.

    The team gets `progress`, the change of the task's potential with gamma 1 (so that no loop can farm it), and
    `success`, 1 when the task is solved. The role gets `format`, -0.2, for an unreadable reply (nothing is played
    then), or the task's costs.

    Returns:
        The task's state, whether it is solved, the parts of the reward, and the words for the next prompt.
    """
    move = task.parse(reply)
    if isinstance(move, Unreadable):
        feedback = f"Last turn the {role}'s reply was unreadable: {move.reason}. Nothing was played."
        return state, task.solved(state), {role: {"format": UNREADABLE_PENALTY}}, feedback
    after = task.apply(state, move)
    solved = task.solved(after)
    progress = task.value(after) - task.value(state)
    team = {"progress": progress, "success": 1.0} if solved else {"progress": progress}
    parts = {TEAM: team, role: task.costs(state, move, after)}
    return after, solved, parts, f"Last turn the {role} played: {task.describe(state, move, after)}"


def system_prompt(task: Task[Any, Any], role: Role) -> str:
    """The usual system prompt: rules, job, reply format."""
    return f"{task.rules()}\n{role.job}\n{task.reply_format()}"


def situation(workflow: Workflow[WorkflowState], state: WorkflowState, *notes: str) -> str:
    """The usual prompt: the turn, the task's state, and the notes, without empty ones."""
    text = f"Turn {state.turn} of {workflow.num_turns}.\n{workflow.task.show(state.task)}"
    for note in notes:
        if note:
            text = f"{text}\n{note}"
    return text


def part_ranges(task: Task[Any, Any]) -> dict[str, tuple[float, float]]:
    """Least and greatest of the parts that `play` pays: progress, success, format, and the task's costs."""
    ranges = dict(task.ranges())
    low, high = ranges.pop("value")
    return {"progress": (low - high, high - low), "success": (0.0, 1.0), "format": (UNREADABLE_PENALTY, 0.0), **ranges}


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise ValueError unless the value of a setting or field is one of the choices."""
    if value not in choices:
        expected = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} is {value!r}; expected one of {expected}.{did_you_mean(value, choices)}")


def check_num_turns(num_turns: object) -> None:
    """Raise ValueError unless the turn budget is a whole number of at least 1."""
    if not isinstance(num_turns, int) or num_turns < 1:
        raise ValueError(
            f"num_turns is {num_turns!r}; expected a whole number of at least 1. Give the turns of an episode."
        )
