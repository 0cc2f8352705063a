"""The contract of an environment: a task (the game), a workflow (who acts when and sees what), and rewards with names.

A *task* is a pure state machine: rules, parser, generator, oracle. It knows no role. A *workflow* turns any task into
play for a team: the order of the roles, what each one is shown, how its reply is used and scored.
`pettingllms_envs.aec.TextEnv` turns a workflow into a PettingZoo environment. This module imports no pettingzoo, so
both can be used and tested without it.

A new task is one file with a class that has the methods of `Task`; a new workflow is one file with a class that has
those of `Workflow`. Both are frozen dataclasses whose fields are their settings; states are frozen dataclasses of
numbers, strings, tuples and other such dataclasses, so that a snapshot is a reference and `repr(state)` says all
there is to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar


TEAM = "team"
UNREADABLE_PENALTY = -0.2

State = TypeVar("State")
Move = TypeVar("Move")


@dataclass(frozen=True, slots=True)
class Reward:
    """One named part of a step's reward.

    Args:
        name: What it is for, such as `"progress"`.
        value: How much.
        scope: `TEAM` for everybody, or the name of the one role that it belongs to.
    """

    name: str
    value: float
    scope: str = TEAM


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A reply that is not a move, and why: a clause for a prompt, no full stop, and never text that a model wrote."""

    reason: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What a role reads before it decides: `system` stays the same over an episode, `text` is the situation now."""

    system: str
    text: str


@dataclass(frozen=True, slots=True)
class Role:
    """A seat in a team.

    Args:
        name: One lower-case word; its agent is called `<name>_0`.
        job: What the role has to do, in a sentence or two of its system prompt.
    """

    name: str
    job: str


class Task(Protocol[State, Move]):
    """A game as pure functions of its state: no clock, no global random numbers, no role."""

    @property
    def name(self) -> str:
        """The task's name, such as `"plan_path"`."""
        ...

    @property
    def version(self) -> int:
        """Goes up when the same moves could lead to anything else; part of every instance and snapshot."""
        ...

    @property
    def instance_fields(self) -> tuple[str, ...]:
        """Names of the keyword arguments of `generate` besides the seed; the environment's reset options."""
        ...

    def generate(self, seed: int, *args: Any, **fields: Any) -> State:
        """The start state of the instance that the seed and the fields decide, the same in every process.

        Raises:
            ValueError: A field has a value that the task does not know.
        """
        ...

    def parse(self, reply: str) -> Move | Unreadable:
        """The move in a reply. Total and linear in the reply's length; ambiguous means unreadable."""
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
        """All that a player needs to know of the state; never a solution."""
        ...

    def describe(self, before: State, move: Move, after: State, *, proposed: bool = False) -> str:
        """The move and what came of it, or would come of it if only proposed, in one or two sentences."""
        ...

    def oracle(self, state: State) -> Move:
        """A best move, the same every time. It never reaches an observation."""
        ...

    def write(self, move: Move) -> str:
        """The canonical reply that `parse` reads as this move."""
        ...

    def outcome(self, state: State) -> Mapping[str, bool | int | float]:
        """What to report about the state; at least `"success"`."""
        ...


class Play(Protocol):
    """What every workflow's state shows of itself."""

    @property
    def task(self) -> Any:
        """The task's state."""
        ...

    @property
    def turn(self) -> int:
        """The turn now being played, from 1; once the episode is over, the last turn played."""
        ...


WorkflowState = TypeVar("WorkflowState", bound=Play)


@dataclass(frozen=True, slots=True)
class Transition(Generic[WorkflowState]):
    """What one reply led to: the next state, the parts of the reward, and whether the episode is over and how."""

    state: WorkflowState
    rewards: tuple[Reward, ...]
    terminated: bool
    truncated: bool


class Workflow(Protocol[WorkflowState]):
    """Who acts when in a task, what each role sees, and how its reply is used and scored. Pure, like the task."""

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

    def observe(self, state: WorkflowState, role: str) -> Observation:
        """Exactly what the workflow lets the role know now, whether or not it is the one to act."""
        ...

    def step(self, state: WorkflowState, reply: str) -> Transition[WorkflowState]:
        """What the actor's reply leads to. Every string is legal."""
        ...


@dataclass(frozen=True, slots=True)
class Played(Generic[State]):
    """What became of a reply that was played: the task's state, the rewards, and the words for the next prompt."""

    state: State
    rewards: tuple[Reward, ...]
    feedback: str


def scalar(rewards: Iterable[Reward], role: str, alpha: float) -> float:
    """`alpha * team + local`, the number that a role is paid for a step (arXiv:2510.11062, section 3)."""
    team = local = 0.0
    for reward in rewards:
        if reward.scope == TEAM:
            team += reward.value
        elif reward.scope == role:
            local += reward.value
    return alpha * team + local


def worth(task: Task[State, Any], state: State) -> float:
    """The potential plus 1 if solved: what the team rewards of an episode that ends here add up to."""
    return task.value(state) + task.solved(state)


def play(task: Task[State, Move], state: State, reply: str, role: str) -> Played[State]:
    """Play a role's reply on the task.

    The team gets `progress`, the change of the task's potential with gamma 1 (so that no loop can farm it), and
    `success`, 1 when the task is solved. The role gets `format`, -0.2, for an unreadable reply (nothing is played
    then), or the task's costs.
    """
    move = task.parse(reply)
    if isinstance(move, Unreadable):
        feedback = f"Last turn the {role}'s reply was unreadable: {move.reason}. Nothing was played."
        return Played(state, (Reward("format", UNREADABLE_PENALTY, role),), feedback)
    after = task.apply(state, move)
    rewards = [Reward("progress", task.value(after) - task.value(state))]
    if task.solved(after):
        rewards.append(Reward("success", 1.0))
    rewards += [Reward(name, value, role) for name, value in task.costs(state, move, after).items()]
    return Played(after, tuple(rewards), f"Last turn the {role} played: {task.describe(state, move, after)}")


def prompt(workflow: Workflow[WorkflowState], state: WorkflowState, role: Role, *notes: str) -> Observation:
    """The usual prompt: rules, job, reply format; then the turn, the situation and the notes, without empty ones."""
    task = workflow.task
    lines = (f"Turn {state.turn} of {workflow.num_turns}.", task.show(state.task), *notes)
    return Observation(f"{task.rules()}\n{role.job}\n{task.reply_format()}", "\n".join(filter(None, lines)))


def check_num_turns(num_turns: object) -> None:
    """Raise ValueError unless the turn budget is a whole number of at least 1."""
    if not isinstance(num_turns, int) or num_turns < 1:
        raise ValueError(
            f"num_turns is {num_turns!r}; expected a whole number of at least 1. Give the turns of an episode."
        )
